"""An expected loss excuses the transactions and groups that it names, and no more."""

from __future__ import annotations

import pytest

from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.record_codec import Record
from highwater.kafka.wire.records import TRANSACTIONAL, build_batch
from highwater.simulation.last_events import Trace
from highwater.simulation.rules.agreed_log import PartitionTruth, undecided_without
from highwater.simulation.rules.allowed_losses import (
    DECISIONS,
    Moment,
    excused,
    lost_between,
    moment,
)
from highwater.simulation.rules.findings import Book
from highwater.simulation.rules.mirror import Batch, ReplicaMirror, parse
from highwater.world.sim.disk import SimDisk
from highwater.world.sim.kernel import Kernel

TP = TopicPartition("t", 0)
LOG = TopicPartition(DECISIONS, 0)


def data(base: int, producer: int, count: int = 2) -> Batch:
    return Batch(base, base + count - 1, 0, base, b"", 1 << 4, producer)


def marker(base: int, producer: int) -> Batch:
    return Batch(base, base, 0, base, b"", 1 << 4 | 1 << 5, producer)


@pytest.fixture
def book() -> Book:
    found = Book(lambda: 0.0, Trace(lambda: 0.0), {}, "/data")
    found.begin(TP)
    found.begin(LOG)
    return found


def test_a_batch_tells_whose_it_is() -> None:
    built = build_batch(
        [Record(None, b"v", 1)], producer_id=77, producer_epoch=1, base_sequence=0,
        attributes=TRANSACTIONAL,
    )  # fmt: skip
    ((batch,), _) = parse(bytes(built))
    assert (batch.producer_id, batch.transactional, batch.marker) == (77, True, False)


def test_records_are_undecided_whose_marker_is_gone() -> None:
    log = [
        data(0, 1), marker(2, 1), data(3, 1), data(5, 2), Batch(7, 7, 0, 7, b""), marker(8, 2),
        marker(9, 1), data(10, 2),
    ]  # fmt: skip
    assert undecided_without(log, 9) == [(3, 5)]
    assert undecided_without(log, 8) == [(5, 7), (3, 5)]
    assert undecided_without(log, 4) == [], "what is cut away itself is given up, not undecided"
    assert undecided_without(log, 10) == []


def test_excused_is_what_was_given_up_and_what_stood_on_it(book: Book) -> None:
    truth = book.partitions[TP]
    truth.commit([data(0, 1), data(2, 2), marker(4, 1), marker(5, 2)], 6)
    truth.forget_above(5)
    assert [excused(book, TP, offset) for offset in range(6)] == [
        False, False, True, True, False, True,
    ]  # fmt: skip
    assert not excused(book, TopicPartition("other", 0), 5)


def test_a_former_leader_gives_up_what_its_successor_lacked(book: Book) -> None:
    truth, mirror = book.partitions[TP], ReplicaMirror(SimDisk(Kernel(1), "broker-1"), "/data/t-0")
    mirror.batches = log = [data(0, 1), data(2, 1), data(4, 1)]
    truth.commit(log[:2], 4)
    truth.given_up_by(mirror, 4)
    assert not truth.given_up, "all that it shows is there"
    truth.given_up_by(mirror, 5)
    truth.given_up_by(mirror, 6)
    assert truth.given_up == [(4, 6)]
    keyed = PartitionTruth(TP, compacted=True, lost_from=4)
    keyed.given_up_by(mirror, 6)
    assert keyed.given_up == [(4, 6)], "its committed batches are not known"


def test_lost_is_what_was_written_between_two_moments(book: Book) -> None:
    truth: PartitionTruth = book.partitions[LOG]

    def at(exposed: int) -> Moment:
        truth.exposed = exposed
        return moment(book, DECISIONS, "id")

    before, begun, ended = at(3), at(5), at(8)
    assert not lost_between(book, DECISIONS, "id", before, begun)
    truth.given_up.append((6, 10))
    truth.exposed = 6
    assert lost_between(book, DECISIONS, "id", begun, ended)
    assert lost_between(book, DECISIONS, "id", begun)
    assert not lost_between(book, DECISIONS, "id", before, begun), "it stands below"
    after = moment(book, DECISIONS, "id")
    assert after.losses == 1
    assert not lost_between(book, DECISIONS, "id", after), "a loss of before excuses nothing"
    assert not lost_between(book, "__consumer_offsets", "id", Moment(0, 0)), "another log"
