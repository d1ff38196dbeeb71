"""Faults of the hosts of a cluster's brokers: their disks and wall clocks.

A full disk is made with Linux's own means: the process may let no file grow any more
(RLIMIT_FSIZE), so each of its writes fails (EFBIG), even those to its own output.  A slow disk and
a clock that jumps need a door into the process (`world.real.fault_door`), which only Highwater's
brokers have: no system lets an unprivileged process slow another's disk or move its clock.
"""

from __future__ import annotations

import errno
import resource
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from highwater.world.real.fault_door import VARIABLE, FaultDoor

NO_DOOR = "only Highwater's own brokers, as processes, have a door for it"
NO_LIMITS = "only Linux sets the limits of a process that runs (prlimit)"
"""Why brokers cannot have `slow_disk` and `clock_jump`, or `disk_full`."""


def refuse_writes(pid: int) -> Callable[[], None]:
    """Keeps a process from writing to any file; returns the function that allows it again.  Sockets
    are not affected.  Raises OSError where this user may not set its limits, or the system cannot.

    CPython and the JVM ignore the signal (SIGXFSZ) that would end the process.
    """
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, NO_LIMITS)
    limit = resource.RLIMIT_FSIZE
    before = resource.prlimit(pid, limit)
    resource.prlimit(pid, limit, (0, before[1]))

    def allow() -> None:
        with suppress(OSError):  # it has ended meanwhile
            resource.prlimit(pid, limit, before)

    return allow


class Hosts:
    """The doors into the brokers of a cluster, one file each; nothing is wrong at first."""

    def __init__(self, folder: Path, brokers: Sequence[int]) -> None:
        self._folder = folder
        self._doors: dict[int, FaultDoor] = {}
        for number in brokers:
            path = self._path(number)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._doors[number] = FaultDoor(path)
        self.mend()

    def _path(self, number: int) -> Path:
        return self._folder / f"broker-{number}" / "fault-door"

    def environment(self, number: int) -> dict[str, str]:
        """Variables that are added to a broker's environment."""
        return {VARIABLE: str(self._path(number))} if number in self._doors else {}

    def door(self, number: int) -> FaultDoor | None:
        """None for a broker of another program."""
        return self._doors.get(number)

    def mend(self) -> None:
        for door in self._doors.values():
            door.close()
