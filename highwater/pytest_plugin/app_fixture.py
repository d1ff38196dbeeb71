"""`kafka.app`: an application that the test starts, killed or paused in its own window.

    app = kafka.app(orders, invoices, match="$.order_id")
    process = subprocess.Popen([*command, app.bootstrap])
    struck = app.kill(process, when="behind")

What it sends is told apart from all others' by bootstrap servers of its own (docs/app.md).
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from highwater.pytest_plugin.errors import FixtureError, Plainly

if TYPE_CHECKING:
    from highwater.agent.client import Control

__tracebackhide__ = True
When = Literal["ahead", "behind", "ending"]
Process = subprocess.Popen[Any] | int
"""A process, or its number."""


@dataclass(frozen=True, slots=True)
class Strike:
    """How a strike ended."""

    hit: bool
    """Whether the process was struck; else its messages were held over a commit that was due, and
    the moment did not come: this application does not get there."""
    told: str
    inputs: tuple[str, ...]
    """The ids that were in the window."""


class App:
    """See the module's docstring."""

    def __init__(self, control: Control, input: str, output: str, match: str, copies: int) -> None:
        self._control = control
        ends = {"input": str(input), "output": str(output)}
        with Plainly():
            known = control.call("POST", "/v1/apps", {**ends, "match": match, "copies": copies})
        self._path = f"/v1/apps/{known['app']}"
        self.bootstraps: list[str] = known["bootstrap"]
        """The bootstrap servers of each copy."""

    @property
    def bootstrap(self) -> str:
        """The first copy's bootstrap servers."""
        return self.bootstraps[0]

    def kill(self, process: Process, *, when: When, copy: int = 1) -> Strike:
        """Holds what the copy sends until the moment has come, and kills it; what was held never
        arrives.  Whoever started it starts it again.

        Raises FixtureError where it sends nothing that could be held: such a test proves nothing.
        """
        return self._strike("kill", process, when, copy, 0)

    def pause(self, process: Process, *, when: When, for_s: float, copy: int = 1) -> Strike:
        """Likewise, but it stands still for so long, another copy takes over if there is one, and
        what was held arrives late."""
        return self._strike("pause", process, when, copy, for_s)

    def _strike(self, name: str, process: Process, when: str, copy: int, for_s: float) -> Strike:
        pid = process if isinstance(process, int) else process.pid
        entry = {"name": name, "pid": pid, "when": when, "copy": copy, "for": for_s}
        with Plainly():
            told = self._control.call("POST", f"{self._path}/strikes", entry)
        if told["outcome"] == "not run":
            raise FixtureError(f"the process was not struck: {told['told']}")
        return Strike(told["outcome"] == "hit", told["told"], tuple(told["inputs"]))

    def close(self) -> None:
        """Its doors close; the test's end does this, too."""
        self._control.call("DELETE", self._path)
