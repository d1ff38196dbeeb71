"""The transaction index of a log, checked against all appends; and the check before a transaction
begins."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highwater.broker.log.log import Log
from highwater.broker.log.log_config import LogConfig
from highwater.broker.log.txnindex import AbortedTransaction, TransactionIndex
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.wire.records import (
    TRANSACTIONAL,
    Marker,
    batches,
    build_marker,
    validate_produce,
)
from tests.unit.broker.log.conftest import OWN, START_MS, Logs, batch, bytes_of, follow, lead

SMALL = LogConfig(segment_bytes=700)


@dataclass
class Story:
    """The story apart from the log: the transactions and their places."""

    sequences: dict[int, int] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)
    ended: list[tuple[int, int, int, bool]] = field(default_factory=list)
    """producer id, first offset, marker's offset, aborted"""

    def send(self, log: Log, producer: int, count: int) -> None:
        sequence = self.sequences.get(producer, 0)
        info = lead(log, batch(count, producer=(producer, 0, sequence), attributes=TRANSACTIONAL))
        self.sequences[producer] = sequence + count
        self.open.setdefault(producer, info.base_offset)

    def end(self, log: Log, producer: int, commit: bool) -> None:
        marker = build_marker(Marker(commit, 0), producer, 0, START_MS)
        at = lead(log, marker, origin=OWN).base_offset
        if producer in self.open:
            self.ended.append((producer, self.open.pop(producer), at, not commit))

    def aborted(self, start: int, end: int) -> set[tuple[int, int]]:
        return {
            (producer, first)
            for producer, first, last, aborted in self.ended
            if aborted and last >= start and first < end
        }

    def truncated(self, end: int) -> None:
        for producer, first, last, _ in self.ended:
            if last >= end and first < end:
                self.open[producer] = first
        self.ended = [e for e in self.ended if e[2] < end]
        self.open = {p: first for p, first in self.open.items() if first < end}


def check(log: Log, story: Story) -> None:
    end = log.log_end_offset
    log.update_high_watermark(end)
    assert log.first_unstable_offset == min(story.open.values(), default=None)
    stable = end if log.first_unstable_offset is None else log.first_unstable_offset
    for start in range(stable):
        for stop in range(start + 1, stable + 1):
            found = log.aborted_transactions(start, stop)
            assert len(found) == len(set(found))
            # it may name one that ended before it could hurt the reader, never miss one
            assert set(found) == story.aborted(start, stop)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 3), st.integers(1, 3)),
        st.tuples(st.just("end"), st.integers(1, 3), st.booleans()),
        st.tuples(st.just("plain"), st.integers(1, 3), st.just(0)),
    ),
    max_size=25,
)


def tell(log: Log, steps: list[tuple[str, int, int]], story: Story) -> None:
    for what, who, how in steps:
        if what == "send":
            story.send(log, who, how)
        elif what == "end":
            story.end(log, who, bool(how))
        else:
            lead(log, batch(who))


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(STEPS, st.integers(0, 40))
def test_the_index_says_what_was_aborted(steps: list[tuple[str, int, int]], cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log, story = Logs(f"{folder}/a").open(SMALL), Story()
        tell(log, steps, story)
        check(log, story)
        copy = Logs(f"{folder}/b").open(SMALL)
        if log.log_end_offset:
            follow(copy, bytes_of(log))  # a follower, in one answer of its leader
        check(copy, story)
        log.close()
        check(Logs(f"{folder}/a").open(SMALL, clean=True), story)
        log = Logs(f"{folder}/a").open(SMALL)  # as after kill -9
        check(log, story)
        log.truncate_to(min(cut, log.log_end_offset))
        story.truncated(log.log_end_offset)
        check(log, story)
        log.close()
        check(Logs(f"{folder}/a").open(SMALL, clean=True), story)


def test_the_file_is_kafkas(logs: Logs) -> None:
    log = logs.open()
    lead(log, batch(2, producer=(7, 1, 0), attributes=TRANSACTIONAL))
    path = Path(f"{logs.folder}/{0:020d}.txnindex")
    log.segments[0].write_indexes()
    assert not path.exists()
    lead(log, build_marker(Marker(False, 3), 7, 1, START_MS), origin=OWN)
    log.close()
    assert path.read_bytes().hex() == (
        "0000" + "0000000000000007" + "0000000000000000" + "0000000000000002" + "0000000000000003"
    )


def test_a_torn_file_ends_where_it_is_torn() -> None:
    index = TransactionIndex()
    index.append(AbortedTransaction(1, 0, 5, 6))
    index.append(AbortedTransaction(2, 3, 8, 9))
    data = index.encode()
    assert TransactionIndex.decode(data[:-1]).entries == index.entries[:1]
    assert TransactionIndex.decode(data + data).entries == index.entries


def verified(log: Log, data: bytearray, shown: object) -> ErrorCode:
    headers = [validate_produce(data, log.config.max_message_bytes)]
    try:
        log.append_as_leader(memoryview(data), headers, 0, START_MS, verification=shown)  # type: ignore[arg-type]
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


def txn_batch(sequence: int) -> bytearray:
    return batch(1, producer=(1, 0, sequence), attributes=TRANSACTIONAL)


@pytest.fixture
def guarded(logs: Logs) -> Log:
    return logs.open(LogConfig(verify_transactions=True))


def test_a_transaction_begins_with_its_verification_alone(guarded: Log) -> None:
    log = guarded
    assert verified(log, txn_batch(0), None) is ErrorCode.INVALID_TXN_STATE
    right = log.producers.verifications.begin(1, 0, 0, START_MS)
    assert verified(log, txn_batch(0), object()) is ErrorCode.INVALID_TXN_STATE
    assert verified(log, txn_batch(0), right) is ErrorCode.NONE
    assert verified(log, txn_batch(1), None) is ErrorCode.NONE  # it is open now
    lead(log, build_marker(Marker(False, 0), 1, 0, START_MS), origin=OWN)
    # the verification for the transaction that has ended does not open another
    assert verified(log, txn_batch(2), right) is ErrorCode.INVALID_TXN_STATE


def test_a_marker_ends_a_verification_under_way(guarded: Log) -> None:
    log = guarded
    right = log.producers.verifications.begin(1, 0, 0, START_MS)
    lead(log, build_marker(Marker(False, 0), 1, 0, START_MS), origin=OWN)
    assert verified(log, txn_batch(0), right) is ErrorCode.INVALID_TXN_STATE


def test_the_lowest_sequence_comes_first(guarded: Log) -> None:
    log = guarded
    right = log.producers.verifications.begin(1, 0, 3, START_MS)
    assert log.producers.verifications.begin(1, 0, 0, START_MS) is right
    assert verified(log, txn_batch(3), right) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert verified(log, txn_batch(0), right) is ErrorCode.NONE
    assert len(log.producers.verifications) == 0


def test_a_verification_that_is_never_used_expires(guarded: Log) -> None:
    producers = guarded.producers
    producers.verifications.begin(1, 0, 0, START_MS)
    producers.expire(START_MS + producers.expiration_ms - 1)
    assert len(producers.verifications) == 1
    producers.expire(START_MS + producers.expiration_ms)
    assert len(producers.verifications) == 0


def test_every_batch_of_the_log_is_known(logs: Logs) -> None:
    log, story = logs.open(SMALL), Story()
    tell(log, [("send", 1, 2), ("end", 1, 0)] * 20, story)
    assert len(log.segments) > 2
    assert len(list(batches(bytes_of(log)))) == 40
    check(log, story)
