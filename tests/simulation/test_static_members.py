"""Static members, and groups that are deleted, under faults in the simulation."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from random import Random
from typing import Any, cast

import pytest
import trio

from highwater.kafka.types import TopicPartition
from highwater.simulation.options import Options
from highwater.simulation.rules.agreed_log import PartitionTruth, Replica
from highwater.simulation.rules.allowed_losses import GROUPS
from highwater.simulation.rules.findings import Book
from highwater.simulation.rules.mirror import ReplicaMirror
from highwater.simulation.seed_run import simulate
from highwater.simulation.seeds import replay_command
from highwater.simulation.workloads.filing import (
    DEFAULTS,
    NONE,
    SIZE,
    Filing,
    Put,
)
from highwater.simulation.workloads.group_client import Seat
from highwater.simulation.workloads.group_workload import Acked
from highwater.simulation.workloads.plain_client import Failed
from highwater.simulation.workloads.static_members import INSTANCES, NAME, Shift, StaticClient

FORMER, NOW = Seat("early-1", 4, (0,)), Seat("early-2", 4, (0,))


def test_static_members_come_back_and_what_a_clerk_deletes_stays_away() -> None:
    outcome = simulate(1, Options(seconds=20, pace=0.2, static_members=True))
    assert outcome.ok, outcome.violation
    done = outcome.operations
    for what in ("commits", "seats", "late commits", "empty at the end"):
        assert done[f"static {what}"], what
    assert done["static: came back without a rebalance"] >= 2
    assert done["static: commit refused"] == done["static: came back"]
    for what in ("offsets deleted", "groups deleted", "configurations replaced"):
        assert done[f"filing: {what}"] >= 2, what
    assert done["filing: folders put away"] >= 5
    assert "--static-members" in replay_command(0, Options(static_members=True))


def test_a_clerk_moves_replicas_where_brokers_have_two_directories() -> None:
    options = Options(seconds=15, pace=0.2, static_members=True, log_dirs=True)
    outcome = simulate(0, options)
    assert outcome.ok, outcome.violation
    assert outcome.operations["filing: replicas moved"] >= 3


class _Book(Book):
    """Nothing is known of any log."""

    def __init__(self) -> None:
        self.rules: list[str] = []
        self.partitions = {}
        self.now = lambda: 0.0

    def broken(self, rule: str, what: str) -> None:
        self.rules.append(rule)

    def happened(self, *_: object) -> None:
        """For the coverage."""


class _Member:
    """A process whose commits and heartbeats are taken, or refused with an error."""

    name = INSTANCES[0]
    instance: str | None = None

    def __init__(self, commit: str, heartbeat: str) -> None:
        self._errors = {"commit": commit, "heartbeat": heartbeat}
        self.random = self

    def choice(self, of: list[Any]) -> Any:
        return of[0]

    async def _answer(self, what: str) -> None:
        await trio.lowlevel.checkpoint()
        if self._errors[what]:
            raise Failed(self._errors[what])

    async def commit(self, *_: object) -> None:
        await self._answer("commit")

    async def heartbeat(self, *_: object) -> None:
        await self._answer("heartbeat")


@pytest.mark.parametrize(
    ("commit", "heartbeat", "rules"),
    [
        ("FENCED_INSTANCE_ID", "FENCED_INSTANCE_ID", []),
        ("TIMEOUT", "NOT_COORDINATOR", []),
        ("", "FENCED_INSTANCE_ID", ["G4"]),
        ("FENCED_INSTANCE_ID", "", ["G4"]),
    ],
)
def test_a_process_that_was_replaced_is_fenced(
    commit: str, heartbeat: str, rules: list[str]
) -> None:
    book: Any = _Book()
    shift = Shift(book, Counter(), Counter())
    shift.acked[0] = Acked(7, shift.now(), shift.now())
    member: Any = shift._one(_Member(commit, heartbeat))  # type: ignore[arg-type]
    member.replaced = FORMER
    trio.run(member._late, NOW)
    assert book.rules == rules
    assert member.replaced is None
    assert shift.count["static: came back without a rebalance"] == 1


@pytest.mark.parametrize(
    ("error", "stored", "late_join", "rules"),
    [
        ("FENCED_INSTANCE_ID", NOW.member_id, False, ["G4"]),
        ("FENCED_INSTANCE_ID", NOW.member_id, True, []),  # a JoinGroup of its own came late
        ("FENCED_INSTANCE_ID", FORMER.member_id, False, []),  # a new coordinator knows no other
        ("NOT_COORDINATOR", NOW.member_id, False, []),
    ],
)
def test_a_process_that_nobody_replaced_is_not_fenced(
    error: str, stored: str, late_join: bool, rules: list[str]
) -> None:
    book: Any = _Book()
    client = object.__new__(StaticClient)
    client.name, client.late_join = INSTANCES[0], late_join
    member: Any = Shift(book, Counter(), Counter())._one(client)
    member.member_id, member.stored_id = NOW.member_id, stored
    member.refused(error)
    assert book.rules == rules


@pytest.mark.parametrize(("led_until", "rules"), [(-1.0, []), (-10.0, ["G4"])])
def test_a_former_coordinator_may_fence_by_what_it_knows_alone(
    led_until: float, rules: list[str]
) -> None:
    book: Any = _Book()
    tp, mirror = TopicPartition(GROUPS, 0), cast(ReplicaMirror, None)
    replica = Replica(9, mirror, led_until=led_until)
    book.partitions[tp] = PartitionTruth(tp, replicas={9: replica})
    client = object.__new__(StaticClient)
    client.name, client.late_join = INSTANCES[0], False
    client.__dict__["_coordinators"] = {(0, NAME): ("broker-9", 9092)}
    member: Any = Shift(book, Counter(), Counter())._one(client)
    member.member_id = member.stored_id = NOW.member_id
    member.refused("FENCED_INSTANCE_ID")
    assert book.rules == rules


def test_one_instance_may_have_two_member_ids_in_a_generation() -> None:
    book: Any = _Book()
    shift = Shift(book, Counter(), Counter())
    shift.seated(FORMER, shift.now(), "early")
    shift.seated(NOW, shift.now(), "early")
    assert book.rules == []
    shift.seated(NOW, shift.now(), "late")
    assert book.rules == ["G3"]


class _Clerk:
    """A cluster with one broker, that answers what it is told to."""

    group = ""

    def __init__(self, answer: dict[int, int], config: dict[str, str]) -> None:
        self._answer, self._config = answer, config

    def brokers(self) -> list[tuple[str, int]]:
        return [("broker--1", 9092)]

    async def coordinator(self, *_: object) -> tuple[str, int]:
        await trio.lowlevel.checkpoint()
        return self.brokers()[0]

    async def committed(self, *_: object) -> dict[int, int]:
        await trio.lowlevel.checkpoint()
        return self._answer

    async def config(self, *_: object) -> dict[str, str]:
        await trio.lowlevel.checkpoint()
        return self._config


HELD = {0: 5, 1: NONE}
ACKED, LATE, OTHER = (DEFAULTS | {SIZE: value} for value in ("7", "8", "9"))


@pytest.mark.parametrize(
    ("answer", "config", "rules"),
    [
        (HELD, ACKED, []),
        (HELD, LATE, []),
        ({0: 5, 1: 3}, ACKED, ["G4"]),  # a deleted offset is back
        ({0: NONE, 1: NONE}, ACKED, ["G4"]),
        (HELD, OTHER, ["L2"]),
        (HELD, dict(DEFAULTS), ["L2"]),
    ],
)
def test_what_is_broken_is_told(
    answer: dict[int, int], config: dict[str, str], rules: list[str]
) -> None:
    book: Any = _Book()
    made = Filing(book, Counter(), Counter())
    made.acked, made.uncertain = ACKED, [LATE]
    made.put.append(Put("folder-1", HELD, _moment(made), _moment(made)))
    clerk: Any = _Clerk(answer, config)
    trio.run(made.judge, clerk)
    assert book.rules == rules


def _moment(made: Filing) -> Any:
    return Shift(made.rules, Counter(), Counter()).now()


class _Deletes(Random):
    def random(self) -> float:
        return 0.99


class _Refusing:
    """A clerk's client whose group is not deleted."""

    def __init__(self, error: str) -> None:
        self._error, self.random = error, _Deletes()

    async def delete_group(self) -> None:
        await trio.lowlevel.checkpoint()
        raise Failed(self._error)


@pytest.mark.parametrize(("error", "ends"), [("GROUP_ID_NOT_FOUND", False), ("TIMEOUT", True)])
def test_a_call_that_may_have_had_its_effect_ends_the_folder(error: str, ends: bool) -> None:
    book: Any = _Book()
    made, held = Filing(book, Counter(), Counter()), {0: 5}
    client: Any = _Refusing(error)
    with pytest.raises(Failed) if ends else nullcontext():
        trio.run(made._step, client, held)
    assert held == {0: 5}
    assert made.errors[error] == (not ends)
