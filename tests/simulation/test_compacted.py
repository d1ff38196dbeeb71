"""Compacted topics in simulation: every replica's cleaner at work under faults, and nobody loses a
key's last value."""

from __future__ import annotations

import pytest

from highwater.chaos.simulated.book import Book
from highwater.chaos.simulated.cluster import SimCluster
from highwater.chaos.simulated.compacted import CompactedTopic
from highwater.chaos.simulated.run import Options, simulate


@pytest.mark.parametrize("seed", range(2))
def test_a_compacted_topic_keeps_its_last_values(seed: int) -> None:
    outcome = simulate(seed, Options(seconds=10, compacted=True))
    assert outcome.ok, outcome.violation
    assert outcome.seen["compacted_replicas"] >= 3, "all replicas were cleaned"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_with_power_losses(seed: int) -> None:
    outcome = simulate(seed, Options(compacted=True, power_loss=seed % 2 == 0, flush=seed % 2 == 1))
    assert outcome.ok, outcome.violation


class _Cluster(SimCluster):
    """Without brokers: what clients saw is judged alone."""

    def __init__(self) -> None:
        self.nodes = {}


class _Book(Book):
    def __init__(self) -> None:
        self.rules: list[str] = []

    def broken(self, rule: str, what: str) -> None:
        self.rules.append(rule)


def topic() -> tuple[CompactedTopic, _Book]:
    book = _Book()
    made = CompactedTopic(book)
    made.sent = {b"a": {b"1": None, b"2": None, None: None}, b"b": {b"3": None}}
    made.acked = {0: (b"a", b"1"), 1: (b"a", b"2"), 2: (b"b", b"3")}
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
    made.acked[3] = (b"a", None)
    made.judge({2: (b"b", b"3")}, _Cluster())
    assert not book.rules
    made.judge({1: (b"a", b"2"), 2: (b"b", b"3")}, _Cluster())
    assert book.rules == ["C15"]
