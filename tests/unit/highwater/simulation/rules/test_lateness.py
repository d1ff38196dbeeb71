"""What waits must end in time while all is well, and only then."""

from __future__ import annotations

import pytest

from highwater.kafka import znodes
from highwater.kafka.topic_names import GROUP_METADATA_TOPIC
from highwater.kafka.types import (
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    TopicPartition,
    ZkVersion,
)
from highwater.simulation.last_events import Trace
from highwater.simulation.rules.findings import Book
from highwater.simulation.rules.lateness import (
    GRACE_S,
    NEWS_S,
    OF_PARTITION_S,
    REQUEST_S,
    SEATED_S,
)

TP, OF_GROUPS = TopicPartition("t", 0), TopicPartition(GROUP_METADATA_TOPIC, 0)
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

    def sits(self, waited: float) -> list[str]:
        """A member joins now, and has its assignment so much later."""
        self.late.joins("g", "m")
        self.now += waited
        self.late.seated("g", "m")
        return self.found

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


def test_a_member_is_assigned_partitions_in_time(run: Run) -> None:
    run.now += 1
    assert run.sits(SEATED_S - 0.01) == []
    assert run.late.longest == {"an assignment": pytest.approx(SEATED_S - 0.01)}
    assert run.sits(SEATED_S + 0.01) == ["L6"]


def test_it_waits_from_its_first_attempt(run: Run) -> None:
    run.now += 1
    run.late.joins("g", "m")
    run.now += SEATED_S
    assert run.sits(0.01) == ["L6"], "it was told to join again"
    assert run.sits(SEATED_S - 0.01) == ["L6"], "and its next wait begins anew"


def test_a_member_that_nobody_assigns_anything_is_seen_waiting(run: Run) -> None:
    run.now += 1
    run.late.joins("g", "m")
    for waited, rules in ((SEATED_S - 0.01, []), (0.02, ["L6"])):
        run.now += waited
        run.late.look_at_groups()
        assert run.found == rules


@pytest.mark.parametrize("which", ["fault", "silent", "moved"])
def test_a_member_waits_for_what_its_group_waits_for(run: Run, which: str) -> None:
    def excused() -> float:
        """Something begins that its group may wait for; until when."""
        if which == "fault":
            run.late.disturb()
            return GRACE_S
        if which == "silent":
            run.late.silent("g", 2.0)
            run.late.silent("g", 1.0)
            run.late.silent("another", 9.0)
            return 2.0
        truth = run.book.begin(OF_GROUPS)
        truth.assigned, truth.state, truth.changed = (1, 2, 3), run.truth.state, run.now
        return OF_PARTITION_S

    run.now += 1
    assert run.sits(excused() + SEATED_S - 0.01) == []
    assert run.sits(excused() + SEATED_S + 0.01) == ["L6"]


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
