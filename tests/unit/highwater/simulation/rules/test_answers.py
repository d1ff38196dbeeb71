"""Each offset in an answer is one that its leader had, and that the log bears out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.fetch import FetchedPartition
from highwater.kafka.wire.records import CONTROL, TRANSACTIONAL
from highwater.simulation.last_events import Trace
from highwater.simulation.rules.agreed_log import Replica
from highwater.simulation.rules.answers import Answers, Question
from highwater.simulation.rules.findings import Book
from highwater.simulation.rules.mirror import Batch

TP = TopicPartition("t", 0)
MARKER = TRANSACTIONAL | CONTROL


class Cluster:
    """Broker 1 leads: a transaction at 4 and 5, its marker at 8; HW 8 of 10, log start 2."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.book = Book(lambda: 0.0, Trace(lambda: 0.0), {}, "/data")
        self.book.broken = lambda rule, what: self.found.append(rule)  # type: ignore[method-assign]
        self.truth = self.book.begin(TP)
        batches = [
            Batch(0, 3, 0, 0, b""),
            Batch(4, 5, 0, 0, b"", TRANSACTIONAL, 7),
            Batch(6, 7, 0, 0, b""),
            Batch(8, 8, 0, 0, b"", MARKER, 7),
            Batch(9, 9, 0, 0, b""),
        ]
        disk: Any = SimpleNamespace(start=0, batches=list(batches))
        self.disk = disk
        self.truth.replicas[1] = Replica(1, disk)
        self.truth.commit(batches[:3], 8)
        broker: Any = SimpleNamespace(
            is_leader=True, generation=3, high_watermark=8, last_stable_offset=4,
            log=SimpleNamespace(log_start_offset=2),
        )  # fmt: skip
        self.broker = broker
        self.book.tables[1] = {TP: broker}
        self.answers = Answers(self.book)

    def ask(self) -> Question:
        return self.answers.question(1, (TP,))

    def goes_on(self) -> None:
        """The marker is committed, and DeleteRecords has come to 6."""
        self.truth.commit([Batch(8, 8, 0, 0, b"", MARKER, 7)], 9)
        self.broker.high_watermark = self.broker.last_stable_offset = 9
        self.broker.log.log_start_offset = 6

    def is_replaced(self) -> None:
        self.broker.is_leader, self.broker.generation = False, 4


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def fetched(hw: int, lso: int, log_start: int = 2) -> FetchedPartition:
    return FetchedPartition(TP, 0, hw, lso, log_start, b"", 0)


@pytest.mark.parametrize(
    ("got", "rules"),
    [
        (fetched(8, 4), set()),
        (fetched(10, 4), {"R3"}),  # the LEO
        (fetched(6, 4), {"R3"}),  # a former HW
        (fetched(8, 8), {"T7"}),  # the HW
        (fetched(8, 9), {"T7"}),
        (fetched(8, 3), {"T7"}),
        (fetched(8, 4, 0), {"R3"}),  # the first segment
        (fetched(8, 4, 3), {"R3"}),
        (fetched(8, 4, 9), {"R3"}),
        (fetched(8, 4, 5), {"R3", "T7"}),  # the LSO lies below it, too
    ],
)
def test_an_answer_of_a_leader(cluster: Cluster, got: FetchedPartition, rules: set[str]) -> None:
    question = cluster.ask()
    question.fetched(got)
    assert set(cluster.found) == rules
    cluster.found.clear()
    question.left_out(got)
    assert set(cluster.found) == rules, "and where a session leaves it out"


@pytest.mark.parametrize(
    ("got", "rules"),
    [
        (fetched(8, 4), set()),
        (fetched(9, 9, 6), set()),
        (fetched(9, 9, 4), set()),
        (fetched(9, 4, 6), {"T7"}),  # of two moments
        (fetched(8, 8), {"T7"}),
        (fetched(7, 4), {"R3"}),
        (fetched(9, 9, 7), {"R3"}),
    ],
)
def test_what_a_leader_knew_meanwhile(
    cluster: Cluster, got: FetchedPartition, rules: set[str]
) -> None:
    question = cluster.ask()
    cluster.goes_on()
    question.fetched(got)
    assert set(cluster.found) == rules


def test_a_log_start_below_the_segments_on_the_disk(cluster: Cluster) -> None:
    cluster.disk.start = 4
    cluster.ask().earliest(TP, 2)
    assert cluster.found == ["R3"], "though the broker itself still takes it for the start"


@pytest.mark.parametrize(
    ("earliest", "latest", "stable", "rules"),
    [
        (2, 8, 4, []),
        (6, 9, 9, []),
        (0, 8, 4, ["R3"]),
        (2, 10, 4, ["R3", "R3"]),  # never committed, and not the HW
        (2, 8, 8, ["T7"]),
        (2, 8, 6, []),  # its first records may have been deleted before it ended
        (2, 8, 7, ["T7"]),
    ],
)
def test_answers_of_list_offsets(
    cluster: Cluster, earliest: int, latest: int, stable: int, rules: list[str]
) -> None:
    question = cluster.ask()
    cluster.goes_on()
    question.earliest(TP, earliest)
    question.latest(TP, latest)
    question.latest(TP, stable, committed=True)
    assert cluster.found == rules


def test_a_former_leader_tells_less_and_never_more(cluster: Cluster) -> None:
    question = cluster.ask()
    cluster.is_replaced()
    question.fetched(fetched(6, 4, 0))
    question.latest(TP, 6)
    question.latest(TP, 4, committed=True)
    assert not cluster.found
    question.fetched(fetched(6, 6))
    assert cluster.found == ["T7"], "but its LSO is that of the log below its HW"
    question.latest(TP, 10)
    assert cluster.found == ["T7", "R3"]
    cluster.truth.given_up.append((8, 10))
    question.latest(TP, 10)
    assert len(cluster.found) == 2, "what was lost as expected was known to a former leader"


def test_where_records_were_given_up_the_leaders_own_disk_counts(cluster: Cluster) -> None:
    cluster.truth.given_up.append((3, 4))
    cluster.truth.committed = []
    cluster.ask().fetched(fetched(8, 4))
    assert not cluster.found
    cluster.broker.last_stable_offset = 8
    cluster.ask().fetched(fetched(8, 8))
    assert cluster.found == ["T7"]


def test_lookups_by_time(cluster: Cluster) -> None:
    for offset in (-1, 2, 7):
        cluster.ask().dated(TP, offset)
    assert not cluster.found
    cluster.ask().dated(TP, 1)
    cluster.ask().dated(TP, 8)
    assert cluster.found == ["R3", "R3", "R3"]


def test_the_largest_timestamp_may_be_that_of_a_deleted_record(cluster: Cluster) -> None:
    cluster.ask().dated(TP, 1, largest=True)
    assert not cluster.found, "its segment is there"
    cluster.disk.start = 2
    cluster.ask().dated(TP, 1, largest=True)
    assert cluster.found == ["R3"]


def test_a_topic_that_was_made_again_is_another(cluster: Cluster) -> None:
    question = cluster.ask()
    cluster.book.begin(TP)
    question.fetched(fetched(10, 10, 10))
    assert not cluster.found
