"""How long calls on files have kept a thread: those of more than a millisecond.

A write to the page cache takes microseconds, unless the kernel holds it up: it waits for the
journal or for the disk, or has to find memory for it first, which computes and is no more the
program's doing.  Neither the thread's CPU time nor its waiting tells the two apart from work of the
program; the duration of the call does.
"""

from __future__ import annotations

import threading
import time

SLOW_NS = 1_000_000
clock = time.perf_counter_ns


class SlowCalls:
    """Of the thread that made it; calls of other threads are no matter of its loop."""

    __slots__ = ("_thread", "ns")

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self.ns = 0
        """Nanoseconds, of all slow calls so far."""

    def ended(self, began_ns: int) -> None:
        """A call that began at this reading of `clock` is over."""
        took = clock() - began_ns
        if took > SLOW_NS and threading.get_ident() == self._thread:
            self.ns += took
