"""One call of a simulated disk that fails, after which the disk works again."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from highwater.world.sim.kernel import Life


@dataclass(slots=True)
class FailingCall:
    """The next such call of a process on a file whose path begins and ends so.

    `share` of an append's bytes are written before it fails, also of a file that is replaced.  A
    failed flush leaves the bytes where readers see them, and not on the disk, as Linux does.
    """

    call: str
    """append, read, send, load, load to send, truncate, flush, open, rename, remove, sync (of a
    folder)."""
    prefix: str
    suffix: str = ""
    share: float = 0.0
    number: int = errno.EIO
    cut: bool = False
    """Whether the truncation of that file fails as well, if that is the next call to fail."""
    path: str = ""
    """The file that it struck."""
    process: Life | None = None
    """The process whose call failed."""
    struck: trio.Event = field(default_factory=trio.Event)

    def strikes(self, process: Life, call: str, path: str) -> bool:
        """Whether this call fails."""
        if call != self.call or not path.startswith(self.prefix) or not path.endswith(self.suffix):
            return False
        self.path, self.process = path, process
        self.struck.set()
        return True

    def next(self) -> FailingCall | None:
        """The call that fails after this one."""
        return FailingCall("truncate", self.path, number=self.number) if self.cut else None
