"""Compacted topics in simulation: every replica's cleaner works under faults, and no key loses its
last value."""

from __future__ import annotations

from collections import Counter
from math import inf

import pytest

from highwater.simulation.cluster import SimCluster
from highwater.simulation.options import Options
from highwater.simulation.rules.agreed_log import PartitionTruth
from highwater.simulation.rules.findings import Book
from highwater.simulation.seed_run import simulate
from highwater.simulation.workloads.compacted import TP, CompactedTopic, Deletion


@pytest.mark.parametrize("seed", range(2))
def test_a_compacted_topic_keeps_its_last_values(seed: int) -> None:
    outcome = simulate(seed, Options(seconds=10, compacted=True))
    assert outcome.ok, outcome.violation
    assert outcome.seen["compacted_replicas"] >= 3, "all replicas were cleaned"


def test_transactions_leave_each_key_its_last_committed_value() -> None:
    outcome = simulate(0, Options(seconds=15, compacted=True, transactions=True))
    assert outcome.ok, outcome.violation
    for what in ("committed", "aborted", "read", "keys compared"):
        assert outcome.operations[f"keyed: {what}"] > 5, outcome.operations


class _Cluster(SimCluster):
    """A cluster without brokers: only the clients' view is judged."""

    def __init__(self) -> None:
        self.nodes = {}


class _Book(Book):
    def __init__(self) -> None:
        self.rules: list[str] = []
        self.seen = Counter()
        self.truth = PartitionTruth(TP, compacted=True)
        self.partitions = {TP: self.truth}

    def broken(self, rule: str, what: str) -> None:
        self.rules.append(rule)


def topic() -> tuple[CompactedTopic, _Book]:
    book = _Book()
    made = CompactedTopic(book)
    made.sent = {b"a": {b"1": None, b"2": None, None: None}, b"b": {b"3": None}}
    made.acknowledged(0, [(b"a", b"1"), (b"a", b"2"), (b"b", b"3")])
    return made, book


@pytest.mark.parametrize(
    ("final", "rules"),
    [
        ({1: (b"a", b"2"), 2: (b"b", b"3")}, []),
        ({1: (b"a", b"2"), 2: (b"b", b"3"), 3: (b"a", b"1")}, []),
        ({0: (b"a", b"1"), 2: (b"b", b"3")}, ["C4"]),
        ({1: (b"a", b"2")}, ["C4"]),
        ({1: (b"a", b"1"), 2: (b"b", b"3")}, ["C7"]),
        ({1: (b"a", b"2"), 2: (b"b", b"3"), 5: (b"b", b"9")}, ["C7"]),
    ],
)
def test_what_is_broken_is_told(
    final: dict[int, tuple[bytes, bytes | None]], rules: list[str]
) -> None:
    made, book = topic()
    made.judge(final, _Cluster())
    assert book.rules == rules


def test_a_deleted_key_must_not_come_back() -> None:
    made, book = topic()
    made.acknowledged(3, [(b"a", None)])
    made.judge({2: (b"b", b"3")}, _Cluster())
    assert not book.rules
    made.judge({1: (b"a", b"2"), 2: (b"b", b"3")}, _Cluster())
    assert book.rules == ["C15"]


@pytest.mark.parametrize(
    ("deletion", "final", "rules"),
    [
        (Deletion(1.0, crc=7), {2: (b"b", b"3")}, []),
        (Deletion(1.0, crc=7), {0: (b"a", b"1"), 2: (b"b", b"3")}, ["C4"]),
        (Deletion(1.0, crc=8), {2: (b"b", b"3")}, ["C4"]),
        (Deletion(1.0, crc=9), {2: (b"b", b"3")}, ["C4"]),
    ],
    ids=["committed", "an older value is there", "before the record", "never committed"],
)
def test_a_tombstone_without_an_answer_removes_a_key_if_it_was_committed(
    deletion: Deletion, final: dict[int, tuple[bytes, bytes | None]], rules: list[str]
) -> None:
    made, book = topic()
    made.deletions[b"a"] = [deletion]
    book.truth.stood = {7: 4, 8: 0}
    made.judge(final, _Cluster())
    assert book.rules == rules


@pytest.mark.parametrize(
    ("deletion", "away", "rules"),
    [
        (Deletion(20.0, 20.1, 3), (19.0, 30.0), []),
        (Deletion(20.0), (19.0, 30.0), []),
        (Deletion(18.9, 19.1, 3), (19.0, 22.0), []),
        (Deletion(20.0, 20.1, 3), (19.0, 22.0), ["C15"]),
        (Deletion(18.0, 18.1, 3), (19.0, 30.0), ["C15"]),
        (Deletion(20.0, 20.1, 0), (19.0, 30.0), ["C15"]),
    ],
    ids=["missed", "without an answer", "sent before", "back in time", "had it", "an older one"],
)
def test_a_replica_that_was_away_for_the_life_of_a_tombstone_may_have_missed_it(
    deletion: Deletion, away: tuple[float, float], rules: list[str]
) -> None:
    """Broker 1 was away for 11 s, tombstones stay for 3, and a cleaner had not heard of it."""
    made, book = topic()
    made.acknowledged(3, [(b"a", None)])
    made.deletions[b"a"] = [deletion]
    book.truth.isr_changed((1, 2), (2,), away[0])
    book.truth.isr_changed((2,), (2, 1), away[1])
    book.truth.unaware.append(away[1])
    made.judge({1: (b"a", b"2"), 2: (b"b", b"3")}, _Cluster())
    assert book.rules == rules


@pytest.mark.parametrize("unaware", [[], [8.9, 20.1]])
def test_it_has_missed_nothing_where_every_cleaner_knew_that_it_was_away(
    unaware: list[float],
) -> None:
    made, book = topic()
    made.acknowledged(3, [(b"a", None)])
    made.deletions[b"a"] = [Deletion(10.0, 10.1, 3)]
    book.truth.isr_changed((1, 2), (2,), 9.0)
    book.truth.isr_changed((2,), (2, 1), 20.0)
    book.truth.unaware += unaware
    made.judge({1: (b"a", b"2"), 2: (b"b", b"3")}, _Cluster())
    assert book.rules == ["C15"]


def test_a_replica_that_never_left_has_missed_nothing() -> None:
    made, book = topic()
    made.acknowledged(3, [(b"a", None)])
    made.deletions[b"a"] = [Deletion(20.0, inf)]
    book.truth.isr_changed((1, 2), (1, 2), 19.0)
    made.judge({1: (b"a", b"2"), 2: (b"b", b"3")}, _Cluster())
    assert book.rules == ["C15"]


def test_an_offset_is_acknowledged_once() -> None:
    made, book = topic()
    made.acknowledged(2, [(b"b", b"3")])
    assert not book.rules
    made.acknowledged(2, [(b"a", b"2")])
    assert book.rules == ["C12"]


def test_what_a_loss_took_may_be_acknowledged_once_more_and_then_binds() -> None:
    """Seeds 70028 with power losses and 91069, 91070, 91115 with stalls as well, false alarms: a
    leader that had lost its tail with the power was the last of its ISR, and led again."""
    made, book = topic()
    book.truth.given_up.append((2, 4))
    made.acknowledged(2, [(b"a", b"1")], 1)
    assert not book.rules
    made.acknowledged(2, [(b"a", b"2")], 1)
    assert book.rules == ["C12"], "both came after the loss"


def test_what_lies_below_a_loss_is_not_excused() -> None:
    made, book = topic()
    book.truth.given_up.append((2, 4))
    made.acknowledged(1, [(b"b", b"3")], 1)
    assert book.rules == ["C12"]


@pytest.mark.parametrize(
    ("final", "rules"),
    [
        ({0: (b"a", b"1")}, []),
        ({0: (b"a", b"1"), 1: (b"b", b"3")}, []),
        ({}, ["C4"]),
        ({0: (b"a", b"2")}, ["C7"]),
    ],
)
def test_a_loss_excuses_what_it_took_and_no_more(
    final: dict[int, tuple[bytes, bytes | None]], rules: list[str]
) -> None:
    """A key's last value before the loss is its last value again."""
    made, book = topic()
    book.truth.given_up.append((1, 3))
    made.judge(final, _Cluster())
    assert book.rules == rules


def test_what_came_after_the_loss_must_be_there() -> None:
    made, book = topic()
    book.truth.given_up.append((1, 3))
    made.acknowledged(1, [(b"b", b"3")], 1)
    made.judge({0: (b"a", b"1")}, _Cluster())
    assert book.rules == ["C4"]


def test_a_replica_that_is_away_for_longer_than_a_tombstone_stays_misses_none() -> None:
    """Broker 1 is away for 11 s, and tombstones stay for 3."""
    outcome = simulate(13, Options(pace=0.3, compacted=True, stalls=True))
    assert outcome.ok, outcome.violation
    assert not outcome.seen["missed_tombstones"]
