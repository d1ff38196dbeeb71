"""The states of each member's process (up, paused, down), as the harness caused or saw them.

ZooKeeper's registration is a different thing: it outlives a killed broker by a session, and a
starting broker is not registered at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from highwater.verdict.history import LineLog

UP: Final = "up"
PAUSED: Final = "paused"
DOWN: Final = "down"


class Lives:
    """The states of all members; each change is a line {"t_ns", "member", "state"} of a log."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self._since: dict[str, int] = {}
        self._log: LineLog | None = None

    def note(self, member: str, state: str) -> None:
        """Notes that `member` has just changed to this state; does nothing if it was in it."""
        if self.states.get(member) == state:
            return
        self.states[member] = state
        self._since[member] = time.monotonic_ns()
        self._write(member)

    def look(self, running: Callable[[str], bool]) -> None:
        """Notes the members that have ended unasked."""
        for member, state in self.states.items():
            if state != DOWN and not running(member):
                self.note(member, DOWN)

    def write_to(self, log: LineLog | None) -> None:
        """Logs changes from now on, after the present states; None ends the log."""
        self._log = log
        for member in self.states:
            self._write(member)

    def _write(self, member: str) -> None:
        if self._log is not None:
            line: dict[str, Any] = {"t_ns": self._since[member], "member": member}
            self._log.write(**line, state=self.states[member])
