"""`highwater bench purgatory`: the cost of a delayed operation among a thousand or a million.

Theory of operation.  The broker's own purgatory and timing wheel run in this process, under a clock
of the benchmark's.  For each number pending: operations are inserted (watched under one of 1,000
keys, time-outs spread over a minute), a tenth of them is completed by key, as by a moving HW, and
the rest expires by time-out.  The time of each part is divided by the number; the promise of a
timing wheel is that the quotient stays.  One access to memory is measured beside it: a million
operations do not fit into a processor's caches, whatever holds them.  Memory is the growth of
Python's allocator (with at most 100,000 pending, because it is slow under watch).
"""

from __future__ import annotations

import gc
import random
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from highwater.bench.figures.rows import rows_text
from highwater.bench.figures.sides import Progress
from highwater.broker.request.purgatory import DelayedOperation, Purgatories
from highwater.broker.request.response import Response
from highwater.kafka.types import TopicPartition

SIZES = (1_000, 10_000, 100_000, 1_000_000)
KEYS = 1000
_ANSWER = Response()


class _Operation(DelayedOperation):
    kind: ClassVar[str] = "Bench"

    __slots__ = ("ready",)

    def __init__(self, key: TopicPartition, timeout_ms: int) -> None:
        self.keys = (key,)
        self.timeout_ms = timeout_ms
        self.ready = False

    def try_complete(self) -> Response | None:
        return _ANSWER if self.ready else None

    def on_expire(self) -> Response:
        return _ANSWER


@dataclass(frozen=True, slots=True)
class Found:
    pending: int
    insert_us: float
    complete_us: float
    expire_us: float
    touch_ns: float
    bytes_each: float

    def as_json(self) -> dict[str, Any]:
        return {
            "pending": self.pending,
            "insert, us": round(self.insert_us, 3),
            "complete, us": round(self.complete_us, 3),
            "expire, us": round(self.expire_us, 3),
            "touch, ns": round(self.touch_ns),
            "bytes each": round(self.bytes_each),
        }


def run(sizes: Sequence[int], rounds: int, progress: Progress) -> list[Found]:
    """The best of the rounds for each size, because disturbances only slow it down."""
    found = []
    for size in sizes:
        measured = [_measure(size) for _ in range(rounds)]
        best = Found(
            size,
            min(m.insert_us for m in measured),
            min(m.complete_us for m in measured),
            min(m.expire_us for m in measured),
            min(m.touch_ns for m in measured),
            _memory(min(size, 100_000)),
        )
        found.append(best)
        progress(f"{size:,} pending: {best.insert_us:.2f} us to insert")
    return found


def _operations(size: int, chance: random.Random) -> list[_Operation]:
    keys = [TopicPartition("bench", n) for n in range(KEYS)]
    return [_Operation(keys[n % KEYS], chance.randrange(1000, 61_000)) for n in range(size)]


def _measure(size: int) -> Found:
    now = [0]
    purgatories = Purgatories(lambda: now[0])
    answered = [0]

    def respond(_: Response) -> None:
        answered[0] += 1

    operations = _operations(size, random.Random(1))
    gc.collect()
    gc.disable()  # a collection in between would count for the part that it hits
    try:
        began = time.perf_counter()
        for op in operations:
            purgatories.submit(op, respond)
        inserted = time.perf_counter()
        completed = operations[::10]
        for op in completed:
            op.ready = True
        keys = dict.fromkeys(op.keys[0] for op in completed)
        completing = time.perf_counter()
        purgatories.check("Bench", keys)
        ended = time.perf_counter()
        assert answered[0] == len(completed)
        expiring = time.perf_counter()
        wheel = purgatories._wheel
        assert wheel is not None
        while (due := wheel.next_due_ms()) is not None:
            now[0] = due
            wheel.advance(due)
        expired = time.perf_counter()
        touch_ns = _touch([op for first in range(0, KEYS, 10) for op in operations[first::KEYS]])
    finally:
        gc.enable()
    assert answered[0] == size, "each is answered once"
    looked_at = sum(1 for op in operations if op.keys[0] in keys)
    return Found(
        size,
        (inserted - began) / size * 1e6,
        (ended - completing) / looked_at * 1e6,
        (expired - expiring) / (size - len(completed)) * 1e6,
        touch_ns,
        0.0,
    )


def _touch(operations: Sequence[_Operation]) -> float:
    """The nanoseconds to read one attribute of each, in the order of completion.

    Growth with the number here is the time of the memory, which every access below pays.
    """
    began = time.perf_counter()
    for op in operations:
        _ = op.ready
    return (time.perf_counter() - began) / len(operations) * 1e9


def _memory(size: int) -> float:
    """The bytes of each operation and all that refers to it."""
    purgatories = Purgatories(lambda: 0)

    def respond(_: Response) -> None: ...

    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for op in _operations(size, random.Random(1)):
            purgatories.submit(op, respond)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) / size


def table(found: Sequence[Found]) -> str:
    rows = [
        (
            f"{f.pending:,}",
            *(round(v, 2) for v in (f.insert_us, f.complete_us, f.expire_us)),
            int(f.touch_ns),
            int(f.bytes_each),
        )
        for f in found
    ]
    return rows_text(
        ("pending", "insert us", "complete us", "expire us", "touch ns", "bytes each"), rows
    )
