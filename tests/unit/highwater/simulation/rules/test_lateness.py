"""What waits must end in time while all is well, and only then."""

from __future__ import annotations

import pytest

from highwater.kafka import znodes
from highwater.kafka.types import (
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    TopicPartition,
    ZkVersion,
)
from highwater.simulation.last_events import Trace
from highwater.simulation.rules.findings import Book
from highwater.simulation.rules.lateness import GRACE_S, NEWS_S, OF_PARTITION_S, REQUEST_S

TP = TopicPartition("t", 0)
FETCH, JOIN_GROUP = 1, 11


class Run:
    """One partition with its full ISR, and a clock."""

    def __init__(self) -> None:
        self.now, self.found = 0.0, list[str]()
        self.book = Book(lambda: self.now, Trace(lambda: self.now), {}, "/data")
        self.book.broken = lambda rule, what: self.found.append(rule)  # type: ignore[method-assign]
        self.truth = self.book.begin(TP)
        self.truth.assigned = (1, 2, 3)
        self.isr(1, 2, 3)
        self.late = self.book.lateness
        self.now = GRACE_S

    def isr(self, *members: int) -> None:
        isr = tuple(map(BrokerId, members))
        self.truth.state = znodes.PartitionState(
            ControllerEpoch(1), BrokerId(1), LeaderEpoch(0), isr, ZkVersion(0)
        )

    def request(self, took: float, api: int = FETCH, client: str = "c") -> list[str]:
        began = self.now
        self.now += took
        self.late.called(api, "Fetch", client, began)
        return self.found


@pytest.fixture
def run() -> Run:
    return Run()


def test_a_request_has_a_bound(run: Run) -> None:
    assert run.request(REQUEST_S - 0.01) == []
    assert run.late.longest == {"a request": pytest.approx(REQUEST_S - 0.01)}
    assert run.request(REQUEST_S + 0.01) == ["L6"]


def test_who_waits_for_others_has_none(run: Run) -> None:
    run.late.may_wait = frozenset({"quoted"})
    assert run.request(5.0, JOIN_GROUP) == run.request(5.0, client="quoted") == []


def test_whatever_is_wrong_excuses_it(run: Run) -> None:
    run.late.disturb()
    assert run.request(5.0) == [], "so soon after a fault"
    run.now += GRACE_S
    run.isr(1, 2)
    assert run.request(5.0) == [], "a replica lags"
    run.isr(1, 2, 3)
    run.late.under_way = lambda: True
    assert run.request(5.0) == [], "a fault"
    run.late.under_way = lambda: False
    run.late.registered = lambda: False
    assert run.request(5.0) == [], "a broker that is gone"
    run.late.registered = lambda: True
    assert run.request(5.0) == ["L6"]


@pytest.mark.parametrize(("waited", "rules"), [(NEWS_S - 0.01, []), (NEWS_S + 0.01, ["L6"])])
def test_an_answer_follows_the_commit(run: Run, waited: float, rules: list[str]) -> None:
    began = run.now = GRACE_S + 1
    run.now += 0.5
    run.truth.mark(7, run.now)
    run.now += waited
    run.late.answered("a Produce", "c", {TP: 6}, began)
    assert run.found == rules
    run.found.clear()
    run.late.fetched("c", TP, 6, began, 0)
    assert run.found == rules, "a Fetch that waited for it, too"
    run.late.fetched("c", TP, 7, began, 0)
    assert run.found == rules, "and not one that waits for more"
    run.found.clear()
    run.truth.changed = began - OF_PARTITION_S + 0.01
    run.late.answered("a Produce", "c", {TP: 6}, began)
    assert run.found == [], "nor where the leader has just changed"


def test_an_isr_does_not_shrink(run: Run) -> None:
    run.late.shrunk(TP, "broker-1")
    assert run.found == ["L6"]
    run.late.disturb()
    run.late.shrunk(TP, "broker-1")
    assert run.found == ["L6"]


def test_a_hw_that_falls_is_marked_anew(run: Run) -> None:
    for hw, at in ((3, 1.0), (9, 2.0), (5, 3.0), (8, 4.0)):
        run.truth.mark(hw, at)
    assert run.truth.marks == [(3, 1.0), (5, 3.0), (8, 4.0)]
