"""One call of a simulated disk that fails, after which the disk works again."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from highwater.world.sim.kernel import Life

CALLS = ("append", "write", "read", "send", "truncate", "flush", "rename")


@dataclass(slots=True)
class FailingCall:
    """The next such call of a process on a file whose path begins and ends so.

    `share` of an append's bytes are written before it fails.  A failed flush leaves the bytes
    where readers see them, and not on the disk, as Linux does.
    """

    call: str
    prefix: str
    suffix: str = ""
    share: float = 0.0
    number: int = errno.EIO
    path: str = ""
    """The file that it struck."""
    process: Life | None = None
    """Whose call it was."""
    struck: trio.Event = field(default_factory=trio.Event)

    def strikes(self, process: Life, call: str, path: str) -> bool:
        """Whether this call fails; it is the last one that does."""
        if call != self.call or not path.startswith(self.prefix) or not path.endswith(self.suffix):
            return False
        self.path, self.process = path, process
        self.struck.set()
        return True
