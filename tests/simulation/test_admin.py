"""Administrators at work under faults, and a topic that is made again, in the simulation."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import trio

from highwater.kafka import znodes
from highwater.kafka.replica_assignment import ReplicaAssignment
from highwater.kafka.types import TopicPartition
from highwater.simulation.options import Options
from highwater.simulation.rules.agreed_log import PartitionTruth
from highwater.simulation.rules.findings import Book
from highwater.simulation.rules.zookeeper_rules import ZooKeeperRules
from highwater.simulation.seed_run import simulate
from highwater.simulation.workloads.administrators import (
    FIRST_VALUE,
    GOVERNED,
    REBORN,
    Administrators,
)
from highwater.simulation.workloads.plain_client import Polled

TP = TopicPartition(GOVERNED, 0)


def test_what_administrators_were_told_holds_after_faults() -> None:
    outcome = simulate(4, Options(seconds=12, pace=0.2, admin=True))
    assert outcome.ok, outcome.violation
    done = outcome.operations
    for what in ("moves", "questions", "records"):
        assert done[f"admin: {what}"], what
    assert done["reborn: lives"] > 1
    assert done["reborn: sent"] > 2


def test_a_cancelled_move_takes_away_no_last_member_of_the_isr() -> None:
    """The target alone is in the ISR, and the origin is down: to cancel would lose its records."""
    outcome = simulate(65, Options(pace=0.15, admin=True))
    assert outcome.ok, outcome.violation
    assert outcome.operations["admin: records"]


class _Book(Book):
    def __init__(self) -> None:
        self.rules: list[str] = []
        self.partitions = {TP: PartitionTruth(TP), TopicPartition(REBORN, 0): _truth(REBORN)}

    def broken(self, rule: str, what: str) -> None:
        self.rules.append(rule)

    def happened(self, *_: object) -> None:
        """For the coverage."""


def _truth(topic: str) -> PartitionTruth:
    return PartitionTruth(TopicPartition(topic, 0))


class _Client:
    """A cluster that is whole: no move, a property, and a reborn topic's records."""

    def __init__(self, value: int, records: list[bytes]) -> None:
        self._value, self._records = value, records

    def addresses(self) -> list[tuple[str, int]]:
        return [("broker-1", 9092)]

    async def moves(self) -> list[TopicPartition]:
        return []

    async def pause(self, *_: float) -> None:
        await trio.lowlevel.checkpoint()

    async def value(self, *_: object) -> str:
        return str(self._value)

    async def fetch(self, *_: object) -> Polled:
        return Polled(0, 0, 0, [(n, 0, value) for n, value in enumerate(self._records)])


@pytest.mark.parametrize(
    ("value", "records", "partitions", "assigned", "rules"),
    [
        (2, [b"3/0"], 1, (1, 2), []),
        (3, [], 1, (1, 2), []),  # of unknown outcome, and so perhaps the last
        (1, [], 1, (1, 2), ["L2"]),
        (FIRST_VALUE, [], 1, (1, 2), ["L2"]),
        (2, [b"2/0", b"3/0"], 1, (1, 2), ["C7"]),
        (2, [b"2/1"], 1, (1, 2), []),  # its answer was lost: it may have come late
        (2, [], 2, (1, 2), ["L2"]),
        (2, [], 1, (1, 3), ["L2"]),
    ],
)
def test_what_is_broken_is_told(
    value: int, records: list[bytes], partitions: int, assigned: tuple[int, ...], rules: list[str]
) -> None:
    book: Any = _Book()
    made = Administrators(book, Counter({"admin: properties set": 2}), Counter())
    made.acked, made.uncertain = 2, {3}
    made.requested.grown(GOVERNED, partitions)
    made.requested.moves[TP] = {(1, 2), (2, 3)}
    made.lives, made.written = 3, {b"2/0", b"3/0"}
    book.partitions[TP].assigned = assigned
    client: Any = _Client(value, records)
    trio.run(made.judge, client)
    assert book.rules == rules


def _state(isr: tuple[int, ...]) -> Any:
    fields: Any = (1, 1, 0, isr)
    return znodes.PartitionState(*fields)


@pytest.mark.parametrize(
    ("isr", "ends_on", "rules"),
    [
        ((1, 2, 3), (3, 2), []),
        ((1, 2), (3, 2), ["R2"]),
        ((1, 2, 3), (2, 3), []),
        ((1, 2), (2, 3), ["R2"]),
        ((1, 2), (1, 2), []),  # cancelled
        ((1, 2), (2, 1), []),
        ((1, 2, 3), (1, 3), ["R2"]),
        ((1, 2, 3), (3,), ["R2"]),
    ],
)
def test_a_move_ends_when_its_target_was_in_the_isr(
    isr: tuple[int, ...], ends_on: tuple[int, ...], rules: list[str]
) -> None:
    book: Any = _Book()
    checker = ZooKeeperRules(book, ensemble=None)  # type: ignore[arg-type]
    truth = book.partitions[TP]
    truth.state = _state(isr)
    made: Any = ReplicaAssignment((1, 2))  # type: ignore[arg-type]
    checker._moving(truth, (), made)
    started = made.reassign_to((3, 2))
    checker._moving(truth, made.replicas, started)
    truth.state = _state((1, 2))
    ended: Any = ReplicaAssignment(ends_on)  # type: ignore[arg-type]
    checker._moving(truth, started.replicas, ended)
    assert book.rules == rules


def test_a_move_keeps_its_origin_whatever_its_target_is() -> None:
    book: Any = _Book()
    checker = ZooKeeperRules(book, ensemble=None)  # type: ignore[arg-type]
    truth = book.partitions[TP]
    made: Any = ReplicaAssignment((1, 2))  # type: ignore[arg-type]
    checker._moving(truth, (), made)
    checker._moving(truth, made.replicas, made.reassign_to((3, 2)))
    checker._moving(truth, (3, 2, 1), made.reassign_to((4, 2)))
    assert book.rules == []
    without: Any = ReplicaAssignment((5, 2), (5,))  # type: ignore[arg-type]
    checker._moving(truth, (4, 2, 1), without)
    assert book.rules == ["R2"]
