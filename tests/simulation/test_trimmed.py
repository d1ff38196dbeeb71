"""A topic whose first records are deleted, and requests of several partitions, in simulation."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import trio

from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.fetch import FetchAnswer, FetchedPartition
from highwater.kafka.wire.record_codec import Record
from highwater.kafka.wire.records import build_batch
from highwater.simulation.options import Options
from highwater.simulation.rules.agreed_log import PartitionTruth, Replica
from highwater.simulation.rules.findings import Book
from highwater.simulation.seed_run import simulate
from highwater.simulation.workloads.trimmed import TPS, TrimmedTopic

TP = TPS[0]


@pytest.mark.parametrize("seed", range(2))
def test_what_nobody_deleted_stays_and_sessions_come_to_the_end(seed: int) -> None:
    outcome = simulate(seed, Options(seconds=10, trimmed=True))
    assert outcome.ok, outcome.violation
    done = outcome.operations
    assert done["many: partitions"] > done["many: requests"] > 50
    assert done["sessions: partitions in error"] > 50
    assert done["sessions: read"] > 100
    believes = seed == 1
    assert (done["sessions: forgotten"] > 1) != believes, "it drops none, and names none again"
    assert done["records: deletions"] > 1


class _Book(Book):
    """The rules' findings, and partitions whose fate a test sets."""

    def __init__(self) -> None:
        self.rules: list[str] = []
        self.partitions = {tp: PartitionTruth(tp) for tp in TPS}

    def broken(self, rule: str, what: str) -> None:
        self.rules.append(rule)

    def acknowledged(self, *_: object) -> None:
        """Another rule's matter (R4)."""


def topic() -> tuple[TrimmedTopic, _Book]:
    """A topic with records a to d at 0 to 3, of which the first is deleted."""
    book: Any = _Book()
    made = TrimmedTopic(book, Counter(), Counter())
    made.sent = dict.fromkeys((b"a", b"b", b"c", b"d"), TP) | {b"other": TPS[1]}
    made.acknowledged(TP, 0, [b"a", b"b"])
    made.acknowledged(TP, 2, [b"c", b"d"])
    made.deleted[TP] = 1
    return made, book


@pytest.mark.parametrize(
    ("found", "rules"),
    [
        ("bcd", []),
        ("abcd", []),  # its segment is there still
        ("b?d", ["C4"]),
        ("bc", ["C4"]),
        ("bdc", ["C4", "C4"]),
        ("bcdb", ["C2"]),
        ("bcdx", ["C7"]),
    ],
)
def test_what_is_broken_is_told(found: str, rules: list[str]) -> None:
    made, book = topic()
    first = 0 if found.startswith("a") else 1
    there = {at: value.encode() for at, value in enumerate(found, first) if value != "?"}
    made.judge_partition(TP, there)
    assert book.rules == rules


def test_a_record_of_another_partition_is_told() -> None:
    made, book = topic()
    made.judge_partition(TP, {1: b"b", 2: b"c", 3: b"d", 4: b"other"})
    assert book.rules == ["C7"]


def test_an_offset_is_acknowledged_once_unless_it_was_lost_in_between() -> None:
    made, book = topic()
    book.partitions[TP].given_up.append((3, 4))
    made.acknowledged(TP, 3, [b"b"], 1)
    assert not book.rules
    made.acknowledged(TP, 3, [b"c"], 1)
    made.acknowledged(TP, 2, [b"d"], 1)
    assert book.rules == ["C12", "C12"], "both came after the loss; and it took no more than that"


def test_what_a_loss_took_is_not_missed() -> None:
    made, book = topic()
    book.partitions[TP].given_up.append((3, 4))
    made.judge_partition(TP, {1: b"b", 2: b"c"})
    assert not book.rules
    made.judge_partition(TP, {1: b"b"})
    assert book.rules == ["C4"]


def test_a_log_begins_no_higher_than_was_asked_for() -> None:
    made, book = topic()
    mirror: Any = type("Mirror", (), {"start": 1})()
    book.partitions[TP].replicas[1] = Replica(1, mirror)
    made.look_at_starts()
    assert not book.rules
    mirror.start = 2
    made.look_at_starts()
    assert book.rules == ["R5"]


@pytest.mark.parametrize(
    ("asked", "rules"),
    [({TP: 3}, []), ({TP: 5}, []), ({TP: 2}, ["C8"]), ({TP: 6}, ["C9"]), ({TPS[1]: 3}, ["C7"])],
)
def test_a_fetch_is_answered_from_the_position_on(
    asked: dict[TopicPartition, int], rules: list[str]
) -> None:
    made, book = topic()
    batch = build_batch([Record(None, b"v", 0)] * 3, base_offset=3)
    got = FetchedPartition(TP, 0, 9, 9, 0, bytes(batch), len(batch))
    made.answered(FetchAnswer(0, 1, [got]), asked)
    assert book.rules == rules


class _Client:
    """A client of a log that begins at offset 1."""

    async def list_offset(self, *_: object) -> int:
        return 1


@pytest.mark.parametrize(
    ("position", "given_up", "rules"),
    [(0, [], []), (1, [], ["C15"]), (4, [], ["C15"]), (4, [(3, 4)], []), (4, [(1, 3)], ["C15"])],
)
def test_a_position_is_out_of_range_for_a_reason(
    position: int, given_up: list[tuple[int, int]], rules: list[str]
) -> None:
    made, book = topic()
    book.partitions[TP].given_up = given_up
    made.positions[TP] = position
    client: Any = _Client()
    trio.run(made.reset, client, TP)
    assert book.rules == rules
    assert made.positions[TP] == 1
