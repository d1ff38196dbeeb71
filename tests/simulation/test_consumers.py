"""A group of the consumer protocol under faults, and what its rules call wrong."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from highwater.simulation.faults.joints import OF_CONSUMERS
from highwater.simulation.options import Options
from highwater.simulation.rules.findings import Book
from highwater.simulation.seed_run import simulate
from highwater.simulation.seeds import replay_command
from highwater.simulation.workloads.consumers.consumer_client import (
    REBALANCE_MS,
    Described,
    Report,
    Told,
)
from highwater.simulation.workloads.consumers.ownership import (
    SESSION_MS,
    Life,
    Owners,
    Term,
)

T = UUID(int=1)
BOTH, ONE, OTHER = frozenset({(T, 0), (T, 1)}), frozenset({(T, 0)}), frozenset({(T, 1)})
NOBODY = ""
"""The coordinator by a tree that has none."""


@pytest.mark.parametrize("seed", range(2))
def test_members_come_to_rest_and_late_commits_are_refused(seed: int) -> None:
    outcome = simulate(seed, Options(seconds=12, pace=0.5, consumer_groups=True))
    assert outcome.violation is None, str(outcome.violation)
    seen = outcome.operations
    assert seen["consumer partitions given"] >= 8
    assert seen["consumer commits"] >= 30
    assert seen["consumer groups described"] >= 30
    assert seen["consumer topics changed"] >= 2
    assert seen["consumer groups at rest"] == 2 * seen["consumer empty at the end"] == 2
    assert "--consumer-groups" in replay_command(seed, Options(consumer_groups=True))


def test_joints_of_consumers_are_played() -> None:
    options = Options(seconds=20, pace=0.3, consumer_groups=True, joints=True)
    outcome = simulate(1, options)
    assert outcome.violation is None, str(outcome.violation)
    assert sum(outcome.faults[name] for name in OF_CONSUMERS) >= 2


class _Book(Book):
    """Nothing is known of any log."""

    def __init__(self) -> None:
        self.rules: list[str] = []
        self.partitions = {}
        self.now_s = 100.0
        self.now = lambda: self.now_s

    def broken(self, rule: str, what: str) -> None:
        self.rules.append(rule)


class _Group:
    """Two members whose heartbeats are answered at once."""

    def __init__(self) -> None:
        self.book: Any = _Book()
        self.owners = Owners(self.book, Counter())
        self.a, self.b = self.owners.begins("a"), self.owners.begins("b")

    def beat(
        self, life: Life, epoch: int, assigned: Any = None, says: Any = None, at: int = -1
    ) -> None:
        report = Report(life.member_id, life.epoch if at < 0 else at, says)
        call = self.owners.beats(life, report, NOBODY)
        self.owners.told(call, report, Told(epoch, 1.0, assigned))

    def fails(self, life: Life, error: str, says: Any = None) -> None:
        report = Report(life.member_id, life.epoch, says)
        self.owners.failed(self.owners.beats(life, report, NOBODY), report, error)

    def rebalances(self) -> None:
        """One member has all, and is to give up one partition."""
        self.beat(self.a, 1, BOTH, says=frozenset())
        self.beat(self.b, 2, frozenset(), says=frozenset())
        self.beat(self.a, 1, ONE)


@pytest.mark.parametrize(
    ("waits_s", "heard", "reports", "rules"),
    [
        (0.5, True, None, ["G3"]),
        (0.5, True, ONE, []),
        (REBALANCE_MS / 1000, True, None, []),  # it took too long
        (SESSION_MS / 1000 - 0.1, False, None, []),  # so did it
    ],
)
def test_a_partition_has_one_owner(
    waits_s: float, heard: bool, reports: Any, rules: list[str]
) -> None:
    group = _Group()
    group.rebalances()
    group.book.now_s += waits_s
    if heard:
        group.beat(group.a, 2 if reports else 1, says=reports)
    group.beat(group.b, 2, OTHER)
    assert group.book.rules == rules
    assert group.a.out == (not rules and reports is None)


def test_a_late_report_is_not_held_against_the_coordinator() -> None:
    group = _Group()
    group.beat(group.a, 1, ONE, says=frozenset())
    group.fails(group.a, "TIMEOUT", says=ONE)
    group.beat(group.a, 1, BOTH)
    group.beat(group.b, 2, OTHER)
    assert group.book.rules == []
    group.beat(group.b, 2, BOTH)
    assert group.book.rules == ["G3"]


def test_who_was_put_out_may_not_commit() -> None:
    group = _Group()
    group.rebalances()
    group.book.now_s += SESSION_MS / 1000
    group.beat(group.b, 3, BOTH)
    call = group.owners.asks(group.a, NOBODY)
    assert group.owners.stale(group.a, 1)
    group.owners.committed(call, 1, stale=False)
    assert group.book.rules == []
    group.owners.committed(call, 1, stale=True)
    assert group.book.rules == ["G4"]
    group.beat(group.a, 4, ONE, says=frozenset(), at=0)
    assert not group.owners.stale(group.a, 4)
    assert group.owners.stale(group.a, 3)


@pytest.mark.parametrize(
    ("waits_s", "before", "rules"),
    [(0.5, [], ["G5"]), (0.5, ["TIMEOUT"], []), (SESSION_MS / 1000, [], [])],
)
def test_who_is_in_time_is_not_put_out(waits_s: float, before: list[str], rules: list[str]) -> None:
    group = _Group()
    group.beat(group.a, 1, BOTH, says=frozenset())
    group.book.now_s += waits_s
    for error in [*before, "FENCED_MEMBER_EPOCH"]:
        group.fails(group.a, error)
    assert group.book.rules == rules


@pytest.mark.parametrize(("epoch", "joins"), [(1, False), (2, True)])
def test_epochs_do_not_fall(epoch: int, joins: bool) -> None:
    group = _Group()
    group.beat(group.a, 3, BOTH, says=frozenset())
    group.beat(group.b if joins else group.a, epoch)
    assert group.book.rules == ["G5"]


@pytest.mark.parametrize(
    ("epoch", "target", "members", "rules"),
    [
        (3, 3, {"a": (3, ONE), "b": (-2, OTHER)}, []),
        (2, 2, {}, ["G5"]),
        (3, 4, {}, ["G5"]),
        (3, 3, {"a": (4, ONE)}, ["G5"]),
        (3, 3, {"a": (3, ONE), "b": (3, BOTH)}, ["G3"]),
    ],
)
def test_a_description_fits(epoch: int, target: int, members: Any, rules: list[str]) -> None:
    group = _Group()
    group.beat(group.a, 3, ONE, says=frozenset())
    found = Described("Stable", epoch, target, members, {})
    owners = group.owners
    owners.described(Term("", -1), owners.newest, owners.now(), found)
    assert group.book.rules == rules
