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


def stolen_clock() -> Callable[[], int]:
    """Nanoseconds in which a hypervisor gave this machine's CPUs to others: the mean of all CPUs.

    Linux counts hundredths of a second in /proc/stat; 0 for ever where it does not.
    """
    try:
        fd = os.open("/proc/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return lambda: 0
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK") // (os.cpu_count() or 1)

    def stolen_ns() -> int:
        return int(os.pread(fd, 256, 0).split(None, 9)[8]) * tick_ns

    return stolen_ns


def this_thread() -> Callable[[], bool]:
    """Tells whether who calls it runs in the thread that asked for it."""
    mine = threading.get_ident()
    return lambda: threading.get_ident() == mine
