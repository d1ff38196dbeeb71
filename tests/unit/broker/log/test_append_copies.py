"""A batch's bytes are not copied on their way from the request's buffer to the file, and back out.

What Python allocates meanwhile is counted: a copy would be as large as the batch.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from struct import pack

from highwater.broker.log.parts import Origin
from highwater.broker.log.validation import checked
from highwater.kafka.wire.fetch import parse_fetch_answer
from highwater.kafka.wire.produce import parse_produce
from highwater.kafka.wire.records import validate_fetched

from .conftest import START_MS, Logs, batch

SIZE = 1_000_000
ALLOWANCE = SIZE // 20


def allocated(work: Callable[[], object]) -> int:
    """The most bytes that Python held at once for `work`, beyond what it held before."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def test_a_produce_is_appended_from_the_requests_own_buffer(logs: Logs) -> None:
    log, records = logs.open(), batch(1, size=SIZE)
    head = pack(">hhiih", -1, -1, 1000, 1, 5) + b"topic" + pack(">iii", 1, 0, len(records))
    body = memoryview(bytearray(head) + records)

    def produce() -> None:
        [(_, asked)] = parse_produce(body, 7).partitions
        assert asked is not None
        log.append_as_leader(*checked(asked, log.config, Origin.CLIENT, START_MS), 3, START_MS)

    assert allocated(produce) < ALLOWANCE
    assert log.log_end_offset == 1


def test_a_follower_appends_from_the_answers_own_buffer(logs: Logs) -> None:
    log, records = logs.open(), batch(1, size=SIZE)
    head = pack(">ihiih", 0, 0, 7, 1, 5) + b"topic" + pack(">ii", 1, 0)
    head += pack(">hqqqii", 0, 1, 1, 0, -1, -1) + pack(">i", len(records))
    body = memoryview(bytearray(head) + records)

    def follow() -> None:
        [found] = parse_fetch_answer(body).partitions
        log.append_as_follower(found.records, validate_fetched(found.records))

    assert allocated(follow) < ALLOWANCE
    assert log.log_end_offset == 1


def test_a_read_is_a_place_in_the_file(logs: Logs) -> None:
    log, records = logs.open(), batch(1, size=SIZE)
    view = memoryview(records)
    log.append_as_leader(*checked(view, log.config, Origin.CLIENT, START_MS), 3, START_MS)
    assert allocated(lambda: log.read(0, 2 * SIZE, 1)) < ALLOWANCE
