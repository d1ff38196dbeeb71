"""The consumer protocol on one group: joining, moving partitions, leaving, fencing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from highwater.broker.coordinator.group.consumer.consumer_group import ConsumerGroup, State
from highwater.broker.coordinator.group.consumer.consumer_steps import (
    MEMBER_SESSION,
    REVOCATION,
)
from highwater.broker.coordinator.group.consumer.heartbeats import (
    Heartbeat,
    check,
)
from highwater.broker.coordinator.group.consumer.members import (
    Current,
    MemberState,
    Partitions,
    Resolved,
)
from highwater.broker.coordinator.group.consumer.records import (
    CurrentRecord,
    EpochRecord,
    MemberRecord,
    RegexRecord,
    TargetEpochRecord,
    TargetRecord,
)
from highwater.kafka.errors import ApiError
from tests.unit.broker.coordinator.group.consumer.consumer_place import LIMITS, Place

NAMES = ("uniform", "range")


def part(*numbers: int, topic: str = "t") -> Partitions:
    return {topic.encode().ljust(16, b"\0"): frozenset(numbers)} if numbers else {}


def test_the_first_member_gets_all_and_its_records_are_kafkas() -> None:
    place = Place(t=3)
    assert place.state() == "Empty"
    answer = place.join("a", "t")
    assert (answer.epoch, answer.assignment, answer.heartbeat_interval_ms) == (
        1,
        part(0, 1, 2),
        5000,
    )
    kinds = [type(record) for record in place.written]
    assert kinds == [MemberRecord, EpochRecord, TargetRecord, TargetEpochRecord, CurrentRecord]
    assert place.state() == "Stable"
    assert place.timers[MEMBER_SESSION, "a"] == 45_000
    again = place.beat("a", 1)
    assert (again.epoch, again.assignment) == (1, None)
    assert not place.step.records


def test_a_second_member_waits_for_what_the_first_gives_up() -> None:
    place = Place(t=4)
    place.join("a", "t")
    second = place.join("b", "t")
    assert (second.epoch, second.assignment) == (2, {})
    assert place.state() == "Reconciling"
    assert place.group.members["b"].current.state is MemberState.UNRELEASED_PARTITIONS
    first = place.beat("a", 1)
    assert (first.epoch, first.assignment) == (1, part(0, 1))
    assert place.timers[REVOCATION, "a"] == 60_000
    assert place.beat("b", 2).assignment is None
    waits = place.beat("a", 1, owned=part(0, 1, 2))
    assert waits.epoch == 1
    assert place.group.members["a"].current.state is MemberState.UNREVOKED_PARTITIONS
    done = place.beat("a", 1, owned=part(0, 1))
    assert done.epoch == 2
    assert place.timers[REVOCATION, "a"] is None
    assert place.beat("b", 2).assignment == part(2, 3)
    assert place.state() == "Stable"


def test_a_member_that_leaves_leaves_its_partitions_to_the_others() -> None:
    place = Place(t=4)
    place.join("a", "t")
    place.join("b", "t")
    place.settle()
    left = place.beat("a", -1)
    assert (left.epoch, left.member_id, left.heartbeat_interval_ms) == (-1, "a", 0)
    assert place.state() == "Assigning"
    assert place.timers[MEMBER_SESSION, "a"] is None
    epoch = place.group.members["b"].current.epoch
    assert place.beat("b", epoch).assignment == part(0, 1, 2, 3)
    place.beat("b", -1)
    assert place.state() == "Empty"
    assert place.refusal("b", 5) == "UNKNOWN_MEMBER_ID"


@pytest.mark.parametrize("kind", [MEMBER_SESSION, REVOCATION])
def test_a_member_is_out_when_its_time_is_over(kind: str) -> None:
    place = Place(t=4)
    place.join("a", "t")
    place.join("b", "t")
    place.beat("a", 1)
    place.take(place.steps.timed_out(kind, "a"))
    assert list(place.group.members) == ["b"]
    place.settle()
    assert place.assigned("b") == part(0, 1, 2, 3)
    assert not place.steps.timed_out(kind, "a").records


def test_no_time_for_revocation_ends_a_member_that_has_given_up() -> None:
    place = Place(t=4)
    place.join("a", "t")
    assert not place.steps.timed_out(REVOCATION, "a").records


def test_a_member_is_fenced_unless_it_repeats_its_last_request() -> None:
    place = Place(t=4)
    place.join("a", "t")
    place.join("b", "t")
    place.beat("a", 1, owned=part(0, 1))
    assert place.group.members["a"].current.epoch == 2
    assert place.refusal("a", 1, owned=part(0, 1)) == "NONE"
    assert place.refusal("a", 1, owned=part(0, 3)) == "FENCED_MEMBER_EPOCH"
    assert place.refusal("a", 1) == "FENCED_MEMBER_EPOCH"
    assert place.refusal("a", 3) == "FENCED_MEMBER_EPOCH"
    assert place.refusal("x", 1) == "UNKNOWN_MEMBER_ID"
    assert place.refusal("x", -1) == "UNKNOWN_MEMBER_ID"
    rejoined = place.join("a", "t")
    assert (rejoined.epoch, rejoined.assignment) == (2, part(0, 1))


def test_a_changed_subscription_raises_the_epoch_and_takes_topics_at_once() -> None:
    place = Place(t=2, u=2)
    place.join("a", "t", "u")
    assert place.group.epoch == 1
    answer = place.beat("a", 1, topics=("u",), owned={**part(0, 1), **part(0, 1, topic="u")})
    assert (answer.epoch, answer.assignment) == (1, part(0, 1, topic="u"))
    assert place.group.epoch == 2
    assert place.beat("a", 1, owned=part(0, 1, topic="u")).epoch == 2
    assert place.beat("a", 2, topics=("u",)).epoch == 2, "it is the same one"


def test_topics_that_grow_come_or_go() -> None:
    place = Place(t=1)
    place.join("a", "t", "later")
    place.topics.add("t", 3)
    assert place.beat("a", 1, owned=part(0)).assignment == part(0, 1, 2)
    later = place.topics.add("later", 1)
    assert place.beat("a", 2).assignment == {**part(0, 1, 2), later: frozenset((0,))}
    del place.topics.known["t"]
    answer = place.beat("a", 3, owned={later: frozenset((0,))})
    assert answer.assignment == {later: frozenset((0,))}


def test_the_group_has_room_for_so_many() -> None:
    place = Place(replace(LIMITS, max_size=1), t=1)
    place.join("a", "t")
    assert place.refusal("b", 0, topics=("t",)) == "GROUP_MAX_SIZE_REACHED"
    assert place.refusal("a", 1) == "NONE"


def test_a_static_member_comes_back_to_its_partitions() -> None:
    place = Place(t=4)
    place.join("a", "t", instance_id="i")
    place.join("b", "t", instance_id="j")
    place.settle()
    had = place.assigned("a")
    assert place.refusal("new", 0, topics=("t",), instance_id="i") == "UNRELEASED_INSTANCE_ID"
    away = place.beat("a", -2, instance_id="i")
    assert away.epoch == -2
    epoch = place.group.epoch
    back = place.join("new", "t", instance_id="i")
    assert (back.epoch, back.assignment) == (epoch, had)
    assert place.group.epoch == epoch, "nothing else moves"
    assert "a" not in place.group.members
    assert place.refusal("a", 2, instance_id="i") == "FENCED_INSTANCE_ID"
    assert place.refusal("a", -1, instance_id="i") == "FENCED_INSTANCE_ID"
    assert place.refusal("a", 2, instance_id="nobody") == "UNKNOWN_MEMBER_ID"
    place.beat("new", -1, instance_id="i")
    place.settle()
    assert place.assigned("b") == part(0, 1, 2, 3)


def test_a_static_member_that_is_away_gives_nothing_up() -> None:
    place = Place(t=4)
    place.join("a", "t", instance_id="i")
    place.join("b", "t")
    place.beat("a", 1)
    place.beat("a", -2, instance_id="i")
    assert not place.steps.timed_out(REVOCATION, "a").records
    assert place.steps.timed_out(MEMBER_SESSION, "a").records


def test_the_assignor_that_most_members_ask_for() -> None:
    place = Place(t=3, u=3)
    place.join("a", "t", "u", assignor="range")
    assert place.steps.assignor() == "range"
    place.join("b", "t", "u")
    place.settle()
    assert place.assigned("a") == {**part(0, 1), **part(0, 1, topic="u")}
    place.beat("a", -1)
    assert place.steps.assignor() == "uniform"


def test_a_group_is_the_same_from_its_records() -> None:
    place = Place(t=4)
    place.join("a", "t", instance_id="i")
    place.join("b", "t")
    place.settle()
    loaded = ConsumerGroup("g")
    for record in place.written:
        loaded.apply(record)
    assert loaded.members == place.group.members
    assert (loaded.epoch, loaded.target_epoch, loaded.owners) == (2, 2, place.group.owners)
    assert loaded.state is State.STABLE
    goes_on = [loaded.apply(record) for record in loaded.tombstones()]
    assert goes_on.count(False) == 1
    assert not goes_on[-1]


def test_after_loading_all_times_begin_again() -> None:
    place = Place(t=4)
    place.join("a", "t")
    place.join("b", "t")
    place.beat("a", 1)
    assert place.steps.loaded().timers == {
        (MEMBER_SESSION, "a"): 45_000, (MEMBER_SESSION, "b"): 45_000, (REVOCATION, "a"): 60_000,
    }  # fmt: skip


def test_a_regular_expression_is_looked_up_and_then_assigned() -> None:
    place = Place(t=1, tt=1, other=1)
    answer = place.beat("a", 0, regex="t+", rebalance_timeout_ms=1, owned={})
    assert (answer.epoch, answer.assignment) == (1, {})
    assert place.to_resolve() == ["t+"]
    place.take(place.steps.resolved({"t+": Resolved(("t", "tt"), 3, 0)}))
    assert place.group.epoch == 2
    assert place.beat("a", 1).assignment == {**part(0), **part(0, topic="tt")}
    place.group.refreshed_ms, place.now_ms = 0, 20_000
    assert place.beat("a", 2).epoch == 2
    assert place.to_resolve() == []
    place.topics.add("ttt", 1)
    place.beat("a", 2)
    assert place.to_resolve() == ["t+"], "as there is a new topic"
    place.beat("a", 2, regex="", topics=("other",))
    assert RegexRecord("g", "t+", None) in place.step.records
    assert place.take(place.steps.resolved({"t+": Resolved((), 4, 0)})).records == []


def test_a_member_whose_state_is_of_a_newer_version_joins_again() -> None:
    place = Place(t=1)
    place.join("a", "t")
    unknown = Current(1, 0, MemberState.UNKNOWN, part(0))
    place.group.apply(CurrentRecord("g", "a", unknown))
    assert place.refusal("a", 1) == "FENCED_MEMBER_EPOCH"
    assert place.join("a", "t").assignment == part(0)


@pytest.mark.parametrize(
    ("version", "request_", "code"),
    [
        (1, Heartbeat("", 0), "INVALID_REQUEST"),
        (0, Heartbeat("", 1), "INVALID_REQUEST"),
        (0, Heartbeat("", -1), "INVALID_REQUEST"),
        (0, Heartbeat("", 0, topics=(), rebalance_timeout_ms=5, owned={}), "NONE"),
        (0, Heartbeat("a", 0, topics=(), owned={}), "INVALID_REQUEST"),
        (0, Heartbeat("a", 0, topics=(), rebalance_timeout_ms=5), "INVALID_REQUEST"),
        (0, Heartbeat("a", 0, rebalance_timeout_ms=5, owned={}), "INVALID_REQUEST"),
        (0, Heartbeat("a", 1, instance_id=""), "INVALID_REQUEST"),
        (0, Heartbeat("a", 1, rack_id=" "), "INVALID_REQUEST"),
        (0, Heartbeat("a", -2), "INVALID_REQUEST"),
        (0, Heartbeat("a", -3), "INVALID_REQUEST"),
        (0, Heartbeat("a", 1, assignor="sticky"), "UNSUPPORTED_ASSIGNOR"),
        (1, Heartbeat("a", 1, assignor="range"), "NONE"),
    ],
)
def test_a_request_that_is_none(version: int, request_: Heartbeat, code: str) -> None:
    if code == "NONE":
        check(request_, version, NAMES)
        return
    with pytest.raises(ApiError) as refused:
        check(request_, version, NAMES)
    assert refused.value.code.name == code
    assert refused.value.detail
