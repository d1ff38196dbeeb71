"""Producers by a replay of a log's batches, and a broker's memory beside them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from highwater.broker.coordinator.group.group import Group, State
from highwater.broker.coordinator.group.records import CommittedOffset, OffsetRecord
from highwater.broker.log.producer_entry import Batch as Remembered
from highwater.broker.log.producer_entry import ProducerEntry
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.record_codec import Record
from highwater.kafka.wire.records import CONTROL, TRANSACTIONAL, build_batch
from highwater.simulation.rules.mirror import Batch, parse
from highwater.simulation.rules.replayed_state import Producer, differing, producers, unlike

STAMP = 1_700_000_000_000


def sent(
    at: int, sequence: int, *, epoch: int = 0, records: int = 1, transactional: bool = False
) -> Batch:
    """A batch of producer 7, as it comes back from a disk."""
    data = build_batch(
        [Record(None, b"v", STAMP)] * records,
        base_offset=at,
        producer_id=7,
        producer_epoch=epoch,
        base_sequence=sequence,
        attributes=TRANSACTIONAL if transactional else 0,
    )
    (batch,), _ = parse(bytes(data))
    return batch


def marker(at: int, *, epoch: int = 0, records: bytes = b"\x10") -> Batch:
    return Batch(at, at, 0, 0, records, TRANSACTIONAL | CONTROL, 7, STAMP, epoch, -1)


def replayed(*log: Batch) -> str:
    return str(producers(log)[7])


def test_a_batch_on_the_disk_tells_its_producer() -> None:
    batch = sent(3, 5, epoch=2, records=4, transactional=True)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 2, 5)
    assert batch.transactional
    assert not batch.control


def test_sequences_go_on_and_begin_again() -> None:
    assert replayed(sent(0, 0), sent(1, 1, records=3)) == "epoch 0, sequence 3, open from -1"
    assert replayed(sent(0, 2**31 - 2, records=3)) == "epoch 0, sequence 0, open from -1"
    assert replayed(sent(0, 9), sent(1, 0, epoch=1)) == "epoch 1, sequence 0, open from -1"
    assert producers([Batch(0, 0, 0, 0, b"")]) == {}, "of no producer"


def test_a_transaction_is_open_from_its_first_batch_to_its_marker() -> None:
    first, second = sent(4, 0, transactional=True), sent(5, 1, transactional=True)
    assert replayed(first, second) == "epoch 0, sequence 1, open from 4"
    assert replayed(first, second, marker(6)) == "epoch 0, sequence 1, open from -1"
    assert replayed(first, marker(6, epoch=1)) == "epoch 1, sequence -1, open from -1"
    assert replayed(first, marker(6, records=b"")) == "epoch 0, sequence 0, open from 4"


def a_log(*entries: ProducerEntry, start: int = 0, compacts: bool = False) -> Any:
    by_id = {entry.producer_id: entry for entry in entries}
    states = SimpleNamespace(get=by_id.get, entries=list(entries), expiration_ms=1000)
    config = SimpleNamespace(compacts=compacts)
    return cast("Any", SimpleNamespace(producers=states, log_start_offset=start, config=config))


KNOWN = ProducerEntry(7, 0, 0, STAMP, -1, (Remembered(0, 3, 0, 3, STAMP),), 3)
LOG = {7: Producer(0, 3, -1, 3, STAMP)}


@pytest.mark.parametrize(
    ("log", "found"),
    [
        (a_log(KNOWN), []),
        (a_log(), ["knows nothing of producer 7, of epoch 0, sequence 3, open from -1"]),
        (a_log(start=4), []),
        (
            a_log(KNOWN._replace(txn_first_offset=2)),
            ["knows producer 7 by epoch 0, sequence 3, open from 2, and the log has "
             "epoch 0, sequence 3, open from -1"],
        ),
        (a_log(KNOWN._replace(epoch=1)), ["knows producer 7 by epoch 1"]),
        (a_log(KNOWN, compacts=True), []),
        (a_log(KNOWN._replace(epoch=1), compacts=True), []),
        (a_log(KNOWN._replace(epoch=-1), compacts=True), ["knows producer 7 by epoch -1"]),
        (a_log(KNOWN._replace(epoch=1, batches=()), compacts=True), []),
        (a_log(KNOWN, KNOWN._replace(producer_id=8), compacts=True), []),
        (a_log(KNOWN._replace(txn_first_offset=2), compacts=True), ["knows producer 7 by epoch 0"]),
        (a_log(KNOWN._replace(txn_first_offset=4), compacts=True), []),
        (a_log(KNOWN._replace(txn_first_offset=4)), ["knows producer 7 by epoch 0"]),
        (
            a_log(KNOWN, ProducerEntry(8, 0)),
            ["knows producer 8, which the log does not have"],
        ),
        (a_log(KNOWN, ProducerEntry(8, 0), start=1), []),
    ],
)  # fmt: skip
def test_what_a_broker_knows_otherwise(log: Any, found: list[str]) -> None:
    told = list(differing(log, LOG, STAMP + 10))
    assert len(told) == len(found)
    assert all(text.startswith(start) for text, start in zip(told, found, strict=True))


@pytest.mark.parametrize(
    ("known", "compacts", "agree"),
    [(1, True, True), (2, True, True), (3, True, False), (-1, True, False), (1, False, False)],
)
def test_the_first_batch_of_an_open_transaction_may_be_cleaned_away(
    known: int, compacts: bool, agree: bool
) -> None:
    """It was ended then, and its marker was cut off since."""
    log = a_log(KNOWN._replace(txn_first_offset=known), compacts=compacts)
    told = list(differing(log, {7: Producer(0, 3, 2, 3, STAMP)}, STAMP + 10))
    assert (not told) == agree


def test_an_expired_producer_may_be_forgotten() -> None:
    assert list(differing(a_log(), LOG, STAMP + 1000)) == []


def test_a_group_at_rest_is_as_its_log_has_it() -> None:
    logged, mine = Group("g"), Group("g")
    record = OffsetRecord("g", TopicPartition("t", 0), CommittedOffset(7))
    logged.replay(record, 0)
    assert "CommittedOffset" in "".join(unlike(mine, logged))
    mine.replay(record, 0)
    assert not list(unlike(mine, logged))
    mine.generation = 1
    assert list(unlike(mine, logged)) == [
        "has (1, None, None, None, []) of group g, and (0, None, None, None, []) in the log"
    ]
    mine.state = State.PREPARING_REBALANCE
    assert not list(unlike(mine, logged)), "it is ahead of its log"
    mine.state = State.DEAD
    assert list(unlike(mine, logged)) == ["takes group g for dead, and it is coordinated here"]
