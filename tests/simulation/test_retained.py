"""Retention by size and by time, and lookups by time, in the simulation."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from highwater.kafka.wire.record_codec import Record
from highwater.simulation.options import Options
from highwater.simulation.rules.agreed_log import PartitionTruth, Replica
from highwater.simulation.rules.answers import Answers
from highwater.simulation.rules.findings import Book
from highwater.simulation.rules.mirror import Batch
from highwater.simulation.seed_run import simulate
from highwater.simulation.workloads.retained import (
    RETENTION_BYTES,
    RETENTION_MS,
    TPS,
    RetainedTopics,
)

KEPT, SIZED, AGED = TPS
NOTHING = (-1, -1)


def test_retention_takes_its_part_and_lookups_skip_nothing() -> None:
    outcome = simulate(1, Options(seconds=10, pace=0.5, retained=True))
    assert outcome.ok, outcome.violation
    done = outcome.operations
    assert done["retention: sized"] > 1
    assert done["retention: aged"] > 1
    assert done["lookups by time"] > 30
    assert done["retained: read"] > 50


class _Book(Book):
    """The rules' findings."""

    def __init__(self) -> None:
        self.rules: list[str] = []
        self.partitions = {tp: PartitionTruth(tp) for tp in TPS}
        self.tables = {}
        self.answers = Answers(self)

    def broken(self, rule: str, what: str) -> None:
        self.rules.append(rule)

    def acknowledged(self, *_: object) -> None:
        """Another rule's matter (R4)."""


def replica(tp: Any, start: int, size: int = 0) -> Replica:
    mirror: Any = SimpleNamespace(start=start, size=size)
    return Replica(1, mirror)


def topics() -> tuple[RetainedTopics, _Book]:
    """Records of 1000, 3000, 2000 at 0 to 2 in each topic; the broker's clock says 6000."""
    book: Any = _Book()
    host: Any = SimpleNamespace(clock=SimpleNamespace(wall_ms=lambda: 6000))
    made = RetainedTopics(book, Counter(), Counter(), 1.0, {1: host})
    for tp in TPS:
        records = [Record(None, b"%d" % n, at) for n, at in enumerate((1000, 3000, 2000))]
        made.acknowledged(tp, 0, records, 0)
    return made, book


@pytest.mark.parametrize(
    ("timestamp", "answer", "rules"),
    [
        (1000, (1000, 0), []),
        (1001, (3000, 1), []),
        (1001, (2000, 2), ["C4"]),  # it skips the record at 1
        (2500, (2000, 2), ["C4", "C4"]),  # too early, and it skips one
        (2500, (2600, 1), ["C4"]),  # that record is of 3000
        (3001, NOTHING, []),
        (3000, NOTHING, ["C4"]),
        (3001, (4000, 3), []),  # one whose answer was lost
        (-3, (3000, 1), []),
        (-3, (2000, 2), ["C4"]),
    ],
)
def test_what_a_lookup_by_time_may_say(
    timestamp: int, answer: tuple[int, int], rules: list[str]
) -> None:
    made, book = topics()
    made.answered(KEPT, timestamp, answer, dict(made.acked[KEPT]), current=True)
    assert book.rules == rules


def test_what_retention_took_is_not_missed_and_a_former_leader_may_lack_the_last() -> None:
    made, book = topics()
    made.answered(KEPT, 3000, NOTHING, dict(made.acked[KEPT]), current=False)
    book.partitions[KEPT].replicas[1] = replica(KEPT, 2)
    made.answered(KEPT, 3000, NOTHING, dict(made.acked[KEPT]), current=True)
    assert not book.rules


def gone(first: int, last: int) -> list[Batch]:
    return [Batch(first, last, 0, 0, b"")]


@pytest.mark.parametrize(
    ("tp", "size", "last", "rules"),
    [
        (KEPT, 9000, 0, ["R5"]),
        (SIZED, RETENTION_BYTES, 0, []),
        (SIZED, RETENTION_BYTES - 1, 0, ["R5"]),
        (AGED, 0, 0, []),
        (AGED, 0, 1, ["R5"]),
    ],
)
def test_what_retention_may_take(tp: Any, size: int, last: int, rules: list[str]) -> None:
    assert 6000 - 3000 <= RETENTION_MS < 6000 - 1000
    made, book = topics()
    mine = replica(tp, last + 1, size)
    book.partitions[tp].replicas[1] = mine
    made.log_begins(book.partitions[tp], mine, gone(0, last))
    assert book.rules == rules
    book.rules.clear()
    book.partitions[tp].replicas[2] = replica(tp, last + 1)
    made.log_begins(book.partitions[tp], mine, gone(0, last))
    assert not book.rules, "a follower goes where its leader has gone"
    book.partitions[tp].replicas.clear()
    made.log_begins(book.partitions[tp], mine, gone(0, last))
    assert not book.rules, "though the leader's copy in another directory has the records again"
    made.log_begins(book.partitions[tp], replica(tp, last + 2, 0), gone(0, 1))
    assert book.rules == ["R5"]


@pytest.mark.parametrize(("asked", "rules"), [(3, []), (4, ["C15"])])
async def test_a_former_leaders_log_may_end_below_a_readers_position(
    asked: int, rules: list[str]
) -> None:
    """The reader went by metadata that was older than what it had read."""
    book: Any = _Book()
    book.partitions[KEPT].state = SimpleNamespace(leader=1, leader_epoch=4)
    topics = RetainedTopics(book, Counter(), Counter())
    topics.positions[KEPT] = 7

    async def earliest(*_: object) -> int:
        return 0

    client: Any = SimpleNamespace(known_term=lambda _: (1, asked), list_offset=earliest)
    await topics._reset(client, KEPT)
    assert book.rules == rules
    assert topics.positions[KEPT] == 0
    assert topics.count["retained: out of a former leader's range"] == (not rules)
