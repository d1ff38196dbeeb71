"""A producer's promise, without a network: the other side is a log that behaves as a broker."""

from __future__ import annotations

import random as random_module
from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as their_murmur2

from highwater.kafka.client.batches import (
    NOBODY,
    Batch,
    Delivery,
    Identity,
    Outcome,
    PartitionBatches,
)
from highwater.kafka.client.partitioner import murmur2
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.records import Record, batches, records_of

TP = TopicPartition("t", 0)


class Log:
    """One partition's leader: sequences, duplicates of the last five batches, and offsets.

    Of a producer that it does not know it takes any sequence number, as Kafka does (KIP-360).
    """

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.producers: dict[Identity, deque[tuple[int, int, int]]] = {}

    def append(self, data: bytearray) -> tuple[ErrorCode, int]:
        (header,) = batches(data)
        identity = Identity(header.producer_id, header.producer_epoch)
        last = self.producers.setdefault(identity, deque(maxlen=5))
        for first, end, offset in last:
            if (first, end) == (header.base_sequence, header.last_sequence):
                return ErrorCode.NONE, offset
        if last and header.base_sequence != last[-1][1] + 1:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        offset = len(self.values)
        self.values += [record.value or b"" for record in records_of(data)]
        last.append((header.base_sequence, header.last_sequence, offset))
        return ErrorCode.NONE, offset


def partition(max_in_flight: int = 5, identity: Identity = NOBODY) -> PartitionBatches:
    found = PartitionBatches(TP, acks=-1, batch_bytes=150, max_in_flight=max_in_flight)
    found.identify(identity)
    return found


@pytest.mark.thorough
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.floats(0, 0.5), st.floats(0, 0.3))
def test_every_record_once_and_in_order_whatever_is_lost(
    seed: int, lost_requests: float, lost_answers: float
) -> None:
    """Lost requests and answers, retried without end: exactly once, in order."""
    random = random_module.Random(seed)
    log = Log()
    parts = partition(identity=Identity(7, 0))
    now = 0.0
    waiting: deque[tuple[Batch, bytearray]] = deque()
    told: dict[int, Delivery] = {}

    def report(number: int) -> Callable[[Delivery], None]:
        def told_of(delivery: Delivery) -> None:
            assert number not in told, "reported twice"
            told[number] = delivery

        return told_of

    for n in range(60):
        parts.append(Record(None, b"%d" % n), 30, report(n), now)
    for _ in range(5000):
        now += 1
        if not len(parts):
            break
        if parts.needs_identity():
            parts.identify(Identity(random.randrange(100, 10**9), 0))
        batch = parts.next(now, 0.0)
        if batch is not None and random.random() < 0.7:
            waiting.append((batch, parts.sent(batch, "c")))
            continue
        if not waiting:
            continue
        batch, data = waiting.popleft()
        if random.random() < lost_requests:
            parts.failed(batch, ErrorCode.NETWORK_EXCEPTION, "", retry_at_s=now)
            continue
        code, offset = log.append(data)
        if random.random() < lost_answers:
            parts.failed(batch, ErrorCode.NETWORK_EXCEPTION, "", retry_at_s=now)
        elif code is ErrorCode.NONE:
            parts.acked(batch, offset)
        else:
            parts.failed(batch, code, "", retry_at_s=now)
    values = [int(v) for v in log.values]
    assert values == sorted(set(values))
    assert len(told) == 60
    for number, delivery in told.items():
        assert delivery.outcome is Outcome.ACKED
        assert values[delivery.offset] == number


def test_a_definite_failure_leaves_no_gap() -> None:
    log = Log()
    parts = partition(identity=Identity(7, 0))
    reports: list[Delivery] = []
    for size in (10, 100, 10):
        parts.append(Record(None, b"x" * size), 150, reports.append, 0.0)
        batch = parts.next(0.0, 0.0)
        assert batch is not None
        data = parts.sent(batch, "c")
        if size == 100:
            code = ErrorCode.MESSAGE_TOO_LARGE
            assert not parts.failed(batch, code, "", retry_at_s=0.0)
        else:
            code, offset = log.append(data)
            assert code is ErrorCode.NONE
            parts.acked(batch, offset)
    assert [d.outcome for d in reports] == [Outcome.ACKED, Outcome.FAILED, Outcome.ACKED]
    assert [d.sequence for d in reports] == [0, 1, 1]


def test_one_lost_answer_makes_a_later_refusal_unknown() -> None:
    parts = partition()
    reports: list[Delivery] = []
    parts.append(Record(None, b"v"), 30, reports.append, 0.0)
    batch = parts.next(0.0, 0.0)
    assert batch is not None
    parts.sent(batch, "c")
    assert parts.failed(batch, ErrorCode.NETWORK_EXCEPTION, "", retry_at_s=0.0)
    parts.sent(batch, "c")
    assert not parts.failed(batch, ErrorCode.MESSAGE_TOO_LARGE, "", retry_at_s=0.0)
    assert reports[0].outcome is Outcome.UNKNOWN
    assert reports[0].attempts == 2


@pytest.mark.parametrize(
    ("error", "acks", "outcome"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, Outcome.UNKNOWN),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 1, Outcome.FAILED),
        (ErrorCode.NOT_ENOUGH_REPLICAS, -1, Outcome.FAILED),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1, Outcome.UNKNOWN),
        (ErrorCode.REQUEST_TIMED_OUT, -1, Outcome.UNKNOWN),
        (ErrorCode.UNKNOWN_SERVER_ERROR, -1, Outcome.UNKNOWN),
        (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1, Outcome.ACKED),
    ],
)
def test_what_one_attempt_proves(error: ErrorCode, acks: int, outcome: Outcome) -> None:
    parts = PartitionBatches(TP, acks=acks, batch_bytes=100, max_in_flight=1)
    parts.identify(NOBODY)
    reports: list[Delivery] = []
    parts.append(Record(None, b"v"), 30, reports.append, 0.0)
    batch = parts.next(0.0, 0.0)
    assert batch is not None
    parts.sent(batch, "c")
    parts.failed(batch, error, "", retry_at_s=0.0, retry=False)
    assert reports[0].outcome is outcome


def test_linger_fills_a_batch_and_in_flight_is_bounded() -> None:
    parts = partition(max_in_flight=2)
    reports: list[Delivery] = []
    parts.append(Record(None, b"1"), 40, reports.append, 10.0)
    assert parts.next(10.0, 0.5) is None
    assert parts.due_s(0.5) == 10.5
    parts.append(Record(None, b"2"), 40, reports.append, 10.1)
    for _ in range(6):
        parts.append(Record(None, b"x"), 80, reports.append, 10.1)
    first = parts.next(10.1, 0.5)
    assert first is not None
    assert len(first.records) == 2
    parts.sent(first, "c")
    second = parts.next(10.1, 0.5)
    assert second is not None
    parts.sent(second, "c")
    assert parts.next(10.1, 0.5) is None
    parts.acked(first, 0)
    assert parts.next(10.1, 0.5) is not None
    assert [d.offset for d in reports] == [0, 1]


def test_what_was_never_sent_expires_as_failed_and_the_rest_as_unknown() -> None:
    parts = partition(max_in_flight=1)
    reports: list[Delivery] = []
    for n in range(2):
        parts.append(Record(None, b"%d" % n), 150, reports.append, 0.0)
    batch = parts.next(0.0, 0.0)
    assert batch is not None
    parts.sent(batch, "c")
    assert parts.expire(5.0) == 1  # the one in flight is waited for
    parts.failed(batch, ErrorCode.NETWORK_EXCEPTION, "gone", retry_at_s=6.0)
    assert parts.expire(5.0) == 1
    assert [d.outcome for d in reports] == [Outcome.FAILED, Outcome.UNKNOWN]
    assert reports[1].detail == "gone"


@given(st.binary(max_size=40))
def test_murmur2_is_everyone_elses(key: bytes) -> None:
    assert murmur2(key) == their_murmur2(key) & 0xFFFFFFFF
