"""A hierarchical timing wheel: a million time-outs, constant cost each, no timer per request.

Time-outs of requests are nearly always cancelled, so insertion and removal have to be cheap and
expiry may cost a little more.  A wheel of 20 buckets of 1 ms takes what ends within 20 ms; what
ends later goes to the wheel above it, whose buckets are 20 ms wide, and so on: five wheels reach 53
minutes.  When a bucket of a higher wheel is due, its entries are inserted again, which moves them
down until they end to the millisecond.  An entry thus moves at most once per level.

A heap holds only the buckets in use, one item each however many entries there are, so the caller
can sleep until the next due bucket instead of ticking every millisecond.  A bucket is a dict, which
makes removal O(1) and keeps the order of insertion: expiry is deterministic.

Pure: the caller brings the time (monotonic milliseconds).
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, TypeVar

T = TypeVar("T")


class TimerEntry:
    """One time-out; `due_ms` is absolute."""

    __slots__ = ("_bucket", "argument", "callback", "due_ms")

    def __init__(self, due_ms: int, callback: Callable[[Any], None], argument: object) -> None:
        self.due_ms = due_ms
        self.callback = callback
        self.argument = argument
        self._bucket: dict[TimerEntry, None] | None = None

    @property
    def pending(self) -> bool:
        return self._bucket is not None

    def cancel(self) -> None:
        """Idempotent; the callback will not be called."""
        if self._bucket is not None:
            del self._bucket[self]
            self._bucket = None


class _Wheel:
    __slots__ = ("buckets", "due", "interval", "tick")

    def __init__(self, tick: int, size: int) -> None:
        self.tick = tick
        self.interval = tick * size
        self.buckets: list[dict[TimerEntry, None]] = [{} for _ in range(size)]
        self.due = [-1] * size
        """When each bucket is due, where it stands in the heap; else -1."""


class TimingWheel:
    """`add` time-outs, ask `next_due_ms`, and `advance` when that time has come."""

    def __init__(self, now_ms: int, tick_ms: int = 1, size: int = 20) -> None:
        self._size = size
        self._now = now_ms - now_ms % tick_ms
        self._tick = tick_ms
        self._wheels = [_Wheel(tick_ms, size)]
        self._heap: list[tuple[int, int, int]] = []

    def add(self, due_ms: int, callback: Callable[[T], None], argument: T) -> TimerEntry:
        """A time-out at `due_ms`; one that is due already is called at the next `advance`.

        A million entries share one callback: a closure of its own would be three objects for each.
        """
        entry = TimerEntry(due_ms, callback, argument)
        self._insert(entry, max(due_ms, self._now + self._tick))
        return entry

    def next_due_ms(self) -> int | None:
        """When `advance` has to be called next (at the latest); None where nothing is pending."""
        heap = self._heap
        while heap:
            due, level, index = heap[0]
            if self._wheels[level].buckets[index]:
                return due
            heappop(heap)  # all that was in it was cancelled: not worth waking up for
            self._wheels[level].due[index] = -1
        return None

    def advance(self, now_ms: int) -> int:
        """Calls what is due at `now_ms`, in order of time, then of insertion; gives how many.

        A callback may add and cancel entries.
        """
        expired = 0
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            due, level, index = heappop(heap)
            self._now = max(self._now, due)
            wheel = self._wheels[level]
            wheel.due[index] = -1
            bucket, wheel.buckets[index] = wheel.buckets[index], {}
            for entry in list(bucket):
                if entry._bucket is not bucket:
                    continue  # cancelled by a callback of this round
                entry._bucket = None
                if entry.due_ms < due + self._tick:
                    expired += 1
                    entry.callback(entry.argument)
                else:
                    self._insert(entry, entry.due_ms)
        self._now = max(self._now, now_ms - now_ms % self._tick)
        return expired

    def _insert(self, entry: TimerEntry, due_ms: int) -> None:
        level = 0
        wheel = self._wheels[0]
        now = self._now
        while due_ms >= now - now % wheel.tick + wheel.interval:
            level += 1
            if level == len(self._wheels):
                self._wheels.append(_Wheel(wheel.interval, self._size))
            wheel = self._wheels[level]
        slot = due_ms // wheel.tick
        index = slot % self._size
        bucket = wheel.buckets[index]
        bucket[entry] = None
        entry._bucket = bucket
        due = slot * wheel.tick
        if wheel.due[index] != due:
            wheel.due[index] = due
            heappush(self._heap, (due, level, index))
