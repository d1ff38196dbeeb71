"""A hierarchical timing wheel: a million time-outs, constant cost each, no timer per request.

Time-outs of requests are nearly always cancelled, so insertion and removal must be cheap, and
expiry may cost a little more.  A wheel of 20 buckets of 1 ms takes time-outs within 20 ms; later
ones go to the wheel above it, whose buckets are 20 ms wide, and so on: five wheels reach 53
minutes.
When a bucket of a higher wheel is due, its entries are inserted again, which moves them down until
they end to the millisecond.  An entry thus moves at most once per level.

A heap holds only the buckets in use, one item each however many entries there are, so the caller
can sleep until the next due bucket instead of ticking every millisecond.  A bucket is a dict, which
makes removal O(1) and keeps the order of insertion: expiry is deterministic.

Pure: the caller brings the time (monotonic milliseconds).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from heapq import heappop, heappush


class TimerTask(ABC):
    """The action of a time-out, and its entry in the wheel, so that only one object is touched.

    `due_ms` is absolute, and is set when the task is added.
    """

    __slots__ = ("_bucket", "due_ms")

    _bucket: dict[TimerTask, None] | None
    due_ms: int

    @abstractmethod
    def run(self) -> None:
        """Called when its time has come."""

    @property
    def timed(self) -> bool:
        """Whether it is on a wheel; only for a task that was added once."""
        return self._bucket is not None

    def cancel(self) -> None:
        """Takes the task off the wheel, if it is there; `run` will not be called."""
        bucket = self._bucket
        if bucket is not None:
            del bucket[self]
            self._bucket = None


class _Wheel:
    __slots__ = ("buckets", "due", "interval", "tick")

    def __init__(self, tick: int, size: int) -> None:
        self.tick = tick
        self.interval = tick * size
        self.buckets: list[dict[TimerTask, None]] = [{} for _ in range(size)]
        self.due = [-1] * size
        """The bucket's due time if it is in the heap; else -1."""


class TimingWheel:
    """The caller adds time-outs, asks `next_due_ms`, and calls `advance` at that time."""

    def __init__(self, now_ms: int, tick_ms: int = 1, size: int = 20) -> None:
        self._size = size
        self._now = now_ms - now_ms % tick_ms
        self._tick = tick_ms
        self._wheels = [_Wheel(tick_ms, size)]
        self._heap: list[tuple[int, int, int]] = []

    def add(self, task: TimerTask, due_ms: int) -> None:
        """Adds a time-out at `due_ms`; if that has passed, the next `advance` runs it."""
        task.due_ms = due_ms
        self._insert(task, max(due_ms, self._now + self._tick))

    def next_due_ms(self) -> int | None:
        """The latest time for the next call of `advance`; None if nothing is pending."""
        heap = self._heap
        while heap:
            due, level, index = heap[0]
            if self._wheels[level].buckets[index]:
                return due
            heappop(heap)  # all its entries were cancelled: not worth waking up for
            self._wheels[level].due[index] = -1
        return None

    def advance(self, now_ms: int) -> int:
        """Runs what is due at `now_ms`, in order of time, then of insertion; returns the number.

        A task may add and cancel others.
        """
        expired = 0
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            due, level, index = heappop(heap)
            self._now = max(self._now, due)
            wheel = self._wheels[level]
            wheel.due[index] = -1
            bucket, wheel.buckets[index] = wheel.buckets[index], {}
            for task in list(bucket):
                if task._bucket is not bucket:
                    continue  # cancelled by a task of this round
                due_ms = task.due_ms
                if due_ms < due + self._tick:
                    task._bucket = None
                    expired += 1
                    task.run()
                else:
                    self._insert(task, due_ms)
        self._now = max(self._now, now_ms - now_ms % self._tick)
        return expired

    def _insert(self, task: TimerTask, due_ms: int) -> None:
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
        bucket[task] = None
        task._bucket = bucket
        due = slot * wheel.tick
        if wheel.due[index] != due:
            wheel.due[index] = due
            heappush(self._heap, (due, level, index))
