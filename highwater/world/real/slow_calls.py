"""The time that slow calls on files (of more than a millisecond) have kept a thread.

A write to the page cache takes microseconds, unless the kernel holds it up: it waits for the
journal or for the disk, or first has to find memory, which computes but is not the program's work.
Neither the thread's CPU time nor its waiting tells such calls apart from the program's own work;
the duration of the call does.
"""

from __future__ import annotations

import threading
import time

SLOW_NS = 1_000_000
clock = time.perf_counter_ns


class SlowCalls:
    """Slow calls of the thread that made it; its loop does not wait for other threads' calls."""

    __slots__ = ("_thread", "ns")

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self.ns = 0
        """Nanoseconds, of all slow calls so far."""

    def ended(self, began_ns: int) -> None:
        """Ends a call that began at this reading of `clock`."""
        took = clock() - began_ns
        if took > SLOW_NS and threading.get_ident() == self._thread:
            self.ns += took
