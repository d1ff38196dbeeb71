"""A door through which a harness spoils this process's disk and wall clock, for tests of it.

A broker that the harness started maps a small file (`HIGHWATER_FAULT_DOOR` names it) into memory.
The harness writes there how much longer each write takes, and how far the clock is off; the broker
counts how often it met that.  A broker without the variable has neither the file nor this code in
its way.

A slow write keeps the loop waiting, as a write does on a system whose dirty pages have reached
their limit; flushes and loads wait in their threads.  What is read from memory, and the log
cleaner, which is a process of its own, are as quick as ever.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import trio

from highwater.world.api import Buffer
from highwater.world.real.clock import RealClock
from highwater.world.real.disk import RealDisk, RealFile
from highwater.world.real.slow_calls import SlowCalls

VARIABLE = "HIGHWATER_FAULT_DOOR"
_CLOCK_MS, _WRITE_US, _CLOCK_READ, _SLOWED = range(4)
_BYTES = 8 * 4


class FaultDoor:
    """Either end of a door: the harness sets values, the broker reads them and counts.  Raises
    OSError."""

    def __init__(self, path: Path) -> None:
        with path.open("a+b") as file:
            if file.seek(0, 2) < _BYTES:
                file.truncate(_BYTES)
            self._values = memoryview(mmap.mmap(file.fileno(), _BYTES)).cast("q")

    # --- the harness's end

    def jump(self, clock_ms: int) -> None:
        """From now on the broker's wall clock differs from the machine's by `clock_ms`."""
        self._values[_CLOCK_MS] = clock_ms

    def slow_down(self, write_us: int) -> None:
        """From now on each write, flush and load takes `write_us` longer."""
        self._values[_WRITE_US] = write_us

    def close(self) -> None:
        """Ends all faults."""
        self._values[_CLOCK_MS] = self._values[_WRITE_US] = 0

    @property
    def clock_ms(self) -> int:
        return self._values[_CLOCK_MS]

    @property
    def write_us(self) -> int:
        return self._values[_WRITE_US]

    @property
    def clock_read(self) -> int:
        """How often a clock was read while it was off."""
        return self._values[_CLOCK_READ]

    @property
    def slowed(self) -> int:
        """How many writes, flushes and loads took longer."""
        return self._values[_SLOWED]

    # --- the broker's end

    def clock_off_ms(self) -> int:
        off_ms = self._values[_CLOCK_MS]
        if off_ms:
            self._values[_CLOCK_READ] += 1
        return off_ms

    def wait(self) -> None:
        longer_us = self._values[_WRITE_US]
        if longer_us:
            time.sleep(longer_us / 1e6)
            self._values[_SLOWED] += 1


class DoorClock(RealClock):
    def __init__(self, door: FaultDoor) -> None:
        self._door = door

    def wall_ms(self) -> int:
        return super().wall_ms() + self._door.clock_off_ms()


class DoorFile(RealFile):
    __slots__ = ("_door",)

    def __init__(self, disk: RealDisk, path: str, fd: int, door: FaultDoor) -> None:
        super().__init__(disk, path, fd)
        self._door = door

    def append(self, views: Sequence[Buffer]) -> None:
        self._door.wait()
        super().append(views)

    async def _in_thread(
        self, work: Callable[[int], object], fd: int, limiter: trio.CapacityLimiter
    ) -> None:
        def slowly(fd: int) -> None:
            self._door.wait()
            work(fd)

        await super()._in_thread(slowly, fd, limiter)


class DoorDisk(RealDisk):
    def __init__(self, slow: SlowCalls, door: FaultDoor) -> None:
        super().__init__(slow)
        self._door = door

    def _file(self, path: str, fd: int) -> RealFile:
        return DoorFile(self, path, fd, self._door)

    def _replace(self, path: str, data: bytes, durably: bool) -> None:
        self._door.wait()
        super()._replace(path, data, durably)
