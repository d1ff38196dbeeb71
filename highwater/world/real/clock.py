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

    perf_ns = staticmethod(time.perf_counter_ns)
    """No function around it: a request asks for it a dozen times."""


def thread_time_ns() -> int:
    """The nanoseconds of CPU that the calling thread has used."""
    return time.thread_time_ns()


def cpu_wait_clock() -> Callable[[], int]:
    """Gives the nanoseconds in which the calling thread was ready to run and had no CPU.

    Linux counts them in schedstat; always 0 where it does not.
    """
    try:
        fd = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return lambda: 0

    def waited_ns() -> int:
        return int(os.pread(fd, 64, 0).split()[1])

    return waited_ns


class StolenTime:
    """The CPU time that a hypervisor took from this machine, by Linux's /proc/stat, in hundredths
    of a second; nothing where there is no such file.
    """

    def __init__(self) -> None:
        try:
            self._stat = os.open("/proc/stat", os.O_RDONLY | os.O_CLOEXEC)
            self._thread = os.open("/proc/thread-self/stat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._stat = self._thread = -1
        self._tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")

    def now(self) -> bytes:
        """A reading for `since`, not parsed; the kernel may need 60 microseconds for it."""
        return os.pread(self._stat, 8192, 0) if self._stat >= 0 else b""

    def cpu(self) -> int:
        """The number of the CPU on which this object's own thread runs, or -1."""
        if self._thread < 0:
            return -1
        return int(os.pread(self._thread, 4096, 0).rpartition(b")")[2].split()[36])

    def since(self, before: bytes) -> int:
        """Nanoseconds taken since `before` from the CPU of this object's own thread."""
        cpu = self.cpu()
        if cpu < 0:
            return 0
        return (_stolen_ticks(self.now(), cpu) - _stolen_ticks(before, cpu)) * self._tick_ns


def _stolen_ticks(stat: bytes, cpu: int) -> int:
    _, found, rest = stat.partition(b"\ncpu%d " % cpu)
    return int(rest.split(None, 8)[7]) if found else 0


def this_thread() -> Callable[[], bool]:
    """A function that tells whether its caller runs in the present thread."""
    mine = threading.get_ident()
    return lambda: threading.get_ident() == mine
