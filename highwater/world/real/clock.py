"""The wall clock, a counter for measuring short spans, and a thread's times: used and waited."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable


class RealClock:
    """`world.api.Clock` of this machine."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def perf_ns(self) -> int:
        return time.perf_counter_ns()


def thread_time_ns() -> int:
    """Of the calling thread: the nanoseconds of CPU that it has used."""
    return time.thread_time_ns()


def cpu_wait_clock() -> Callable[[], int]:
    """Of the calling thread: the nanoseconds in which it was ready to run and had no CPU.

    Linux counts them in schedstat; 0 for ever where it does not.
    """
    try:
        fd = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return lambda: 0

    def waited_ns() -> int:
        return int(os.pread(fd, 64, 0).split()[1])

    return waited_ns


class StolenTime:
    """What a hypervisor took of this machine's CPUs, by Linux's /proc/stat, in hundredths of a
    second; nothing where there is no such file.
    """

    def __init__(self) -> None:
        try:
            self._stat = os.open("/proc/stat", os.O_RDONLY | os.O_CLOEXEC)
            self._thread = os.open("/proc/thread-self/stat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._stat = self._thread = -1
        self._tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")

    def now(self) -> bytes:
        """For `since`: a few microseconds, as nothing of it is looked at yet."""
        return os.pread(self._stat, 8192, 0) if self._stat >= 0 else b""

    def cpu(self) -> int:
        """The number of the one that the thread runs on which made this object, or -1."""
        if self._thread < 0:
            return -1
        return int(os.pread(self._thread, 4096, 0).rpartition(b")")[2].split()[36])

    def since(self, before: bytes) -> int:
        """Nanoseconds, of the CPU that the thread runs on which made this object."""
        cpu = self.cpu()
        if cpu < 0:
            return 0
        return (_stolen_ticks(self.now(), cpu) - _stolen_ticks(before, cpu)) * self._tick_ns


def _stolen_ticks(stat: bytes, cpu: int) -> int:
    _, found, rest = stat.partition(b"\ncpu%d " % cpu)
    return int(rest.split(None, 8)[7]) if found else 0


def this_thread() -> Callable[[], bool]:
    """Tells whether who calls it runs in the thread that asked for it."""
    mine = threading.get_ident()
    return lambda: threading.get_ident() == mine
