"""The rebalance protocol, step by step, without a broker."""

from __future__ import annotations

from typing import Any

from highwater.broker.coordinator.group.group import REBALANCE, SESSION, SYNC, Group, State
from highwater.kafka.errors import ErrorCode


def test_the_first_rebalance_waits_for_its_delay_and_the_leader_hears_all(make_table: Any) -> None:
    table = make_table(initial_delay_ms=3000)
    assert table.join("a") is None
    assert table.timers[REBALANCE, ""] == 3000
    assert table.join("b") is None
    table.fire(REBALANCE)  # a newcomer came in: once more
    assert table.timers[REBALANCE, ""] == 3000
    table.fire(REBALANCE)
    first, second = table.answers["a"], table.answers["b"]
    assert (first.error, first.generation, first.protocol) == (ErrorCode.NONE, 1, "range")
    assert first.leader == second.leader == first.member_id
    assert [m[0] for m in first.members] == [first.member_id, second.member_id]
    assert second.members == ()
    assert table.group.state is State.COMPLETING_REBALANCE


def test_the_delays_end_with_the_rebalance_timeout(make_table: Any) -> None:
    table = make_table(initial_delay_ms=3000)
    table.join("a", rebalance_timeout_ms=4000)
    table.join("b", rebalance_timeout_ms=4000)
    table.fire(REBALANCE)
    assert table.timers[REBALANCE, ""] == 1000
    table.join("c", rebalance_timeout_ms=4000)
    table.fire(REBALANCE)
    assert table.answers["c"].generation == 1


def test_an_assignment_is_given_out_when_it_is_committed(table: Any) -> None:
    table.join("a")
    table.fire(REBALANCE)
    leader = table.answers["a"].member_id
    assert table.sync("s", leader, 1, **{leader: b"all"}) is None
    assert table.heartbeat(leader, 1) is ErrorCode.NONE
    table.committed()
    assert table.answers["s"].assignment == b"all"
    assert table.group.state is State.STABLE


def test_an_assignment_of_an_earlier_generation_is_history(table: Any) -> None:
    table.join("a")
    table.fire(REBALANCE)
    leader = table.answers["a"].member_id
    table.sync("s", leader, 1, **{leader: b"all"})
    table.join("b")
    assert table.answers["s"].error is ErrorCode.REBALANCE_IN_PROGRESS
    table.join("again", leader)
    assert table.answers["b"].generation == 2
    table.committed()  # generation 1, while the members wait for the assignment of generation 2
    assert (table.group.state, table.group.generation) == (State.COMPLETING_REBALANCE, 2)
    assert table.group.members[leader].assignment == b""


def test_an_assignment_that_is_not_stored_begins_the_rebalance_again(table: Any) -> None:
    table.join("a")
    table.fire(REBALANCE)
    leader = table.answers["a"].member_id
    table.sync("s", leader, 1, **{leader: b"all"})
    late = table.failed(ErrorCode.REQUEST_TIMED_OUT)
    assert table.answers["s"].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert table.group.state is State.PREPARING_REBALANCE
    for record in late.records:  # committed after all: too late for this rebalance
        table.group.replay(record)
    assert table.group.state is State.PREPARING_REBALANCE
    assert table.group.members[leader].assignment == b""


def test_what_is_stored_makes_the_same_group(table: Any) -> None:
    ids = table.stable(3)
    loaded = Group("g")
    for record in table.log:
        loaded.replay(record)
    assert loaded.state is State.STABLE
    assert (loaded.generation, loaded.leader, loaded.protocol) == (1, ids[0], "range")
    assert [(m.member_id, m.assignment) for m in loaded.members.values()] == [
        (i, i.encode()) for i in ids
    ]


def test_a_group_whose_protocol_has_changed_is_loaded_with_the_new_one(table: Any) -> None:
    both = (("range", b"by range"), ("sticky", b"by sticky"))
    table.join("a", protocols=both)
    table.begin()
    first = table.answers["a"].member_id
    table.sync("s", first, 1, **{first: b"all"})
    table.committed()
    table.join("b", protocols=(("sticky", b"new"),))
    table.join("again", first, protocols=both, session_timeout_ms=7)
    second = table.answers["b"].member_id
    table.sync("s2", second, 2)
    table.sync("s1", first, 2, **{first: b"1", second: b"2"})
    table.committed()
    assert table.group.protocol == "sticky"
    assert table.group.members[first].protocols == both, "it still speaks the other one, too"
    loaded = Group("g")
    for at, record in enumerate(table.log):
        loaded.replay(record, at)
    assert loaded.candidates() == ["sticky"]
    assert loaded.supports("consumer", both), "its members may join again"
    assert loaded.members[first].metadata("sticky") == b"by sticky"
    assert loaded.members[first].session_timeout_ms == 7


def test_a_newcomer_is_asked_to_come_again(table: Any) -> None:
    first = table.join("a", needs_known_id=True)
    assert first.error is ErrorCode.MEMBER_ID_REQUIRED
    assert table.group.members == {}
    assert table.join("b", first.member_id, needs_known_id=True) is None
    table.fire(REBALANCE)
    assert table.answers["b"].member_id == first.member_id


def test_a_rebalance_waits_for_who_was_given_an_id_until_its_session_ends(table: Any) -> None:
    ids = table.stable(1)
    pending = table.join("p", needs_known_id=True).member_id
    table.join("again", ids[0])
    assert "again" not in table.answers
    table.fire(SESSION, pending)
    assert table.answers["again"].generation == 2


def test_a_new_member_makes_the_others_join_again(table: Any) -> None:
    one, other = table.stable(2)
    table.join("new")
    assert table.heartbeat(one, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert table.sync("s", one, 1).error is ErrorCode.REBALANCE_IN_PROGRESS
    table.join("one", one)
    assert "one" not in table.answers
    table.join("other", other)
    assert {table.answers[t].generation for t in ("new", "one", "other")} == {2}
    assert table.heartbeat(one, 1) is ErrorCode.ILLEGAL_GENERATION


def test_who_does_not_join_in_time_is_out_and_another_leads(table: Any) -> None:
    leader, other = table.stable(2)
    table.join("other", other, protocols=(("range", b"changed"),))
    assert table.timers[REBALANCE, ""] == 60_000
    table.fire(REBALANCE)
    answer = table.answers["other"]
    assert (answer.leader, [m[0] for m in answer.members]) == (other, [other])
    assert table.heartbeat(leader, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert (SESSION, leader) not in table.timers


def test_a_silent_member_is_out_and_one_that_waits_for_us_is_not(table: Any) -> None:
    one, other = table.stable(2)
    table.join("one", one)  # the leader
    table.fire(SESSION, one)
    assert one in table.group.members
    table.fire(SESSION, other)
    assert table.answers["one"].generation == 2
    assert list(table.group.members) == [one]


def test_leaving_hands_over_at_once_and_the_last_leaves_an_empty_group(table: Any) -> None:
    one, other = table.stable(2)
    assert table.leave(other) is ErrorCode.NONE
    table.join("one", one)
    assert table.answers["one"].generation == 2
    assert table.leave(one) is ErrorCode.NONE
    table.committed()
    assert (table.group.state, table.group.generation) == (State.EMPTY, 3)
    assert table.leave(one) is ErrorCode.UNKNOWN_MEMBER_ID
    loaded = Group("g")
    for record in table.log:
        loaded.replay(record)
    assert (loaded.state, loaded.generation, loaded.members) == (State.EMPTY, 3, {})


def test_a_member_that_never_asks_for_its_assignment_is_out(table: Any) -> None:
    table.join("a")
    table.join("b")
    table.begin()
    leader, silent = table.answers["a"].member_id, table.answers["b"].member_id
    table.sync("s", leader, 1, **{leader: b"x", silent: b"y"})
    table.committed()
    assert table.heartbeat(silent, 1) is ErrorCode.NONE
    table.fire(SYNC)
    assert list(table.group.members) == [leader]
    assert table.group.state is State.PREPARING_REBALANCE


def test_a_member_that_leaves_while_it_waits_for_its_assignment_is_answered(table: Any) -> None:
    table.join("a")
    table.join("b")
    table.begin()
    leaving = table.answers["b"].member_id
    assert table.sync("s", leaving, 1) is None
    assert table.leave(leaving) is ErrorCode.NONE
    assert table.answers["s"].error is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_protocol_is_one_that_all_speak_by_most_votes(table: Any) -> None:
    table.join("a", protocols=(("x", b""), ("y", b""), ("z", b"")))
    table.join("b", protocols=(("z", b""), ("y", b"")))
    table.join("c", protocols=(("z", b""), ("y", b"")))
    assert table.join("d", protocols=(("x", b""),)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert table.join("e", protocol_type="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    table.begin()
    assert table.answers["a"].protocol == "z"


def test_a_group_has_room_for_so_many(make_table: Any) -> None:
    table = make_table(max_size=2)
    one, _ = table.stable(2)
    assert table.join("late").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    table.join("one", one)
    assert table.group.state is State.PREPARING_REBALANCE


def static(table: Any) -> tuple[str, str]:
    table.join("a", instance_id="i")
    table.join("b", instance_id="j")
    table.begin()
    one, other = table.answers["a"].member_id, table.answers["b"].member_id
    table.sync("sb", other, 1)
    table.sync("sa", one, 1, **{one: b"1", other: b"2"})
    table.committed()
    return one, other


def test_a_static_member_takes_its_place_without_a_rebalance(table: Any) -> None:
    one, other = static(table)
    assert table.join("back", instance_id="j") is None
    table.committed()
    back = table.answers["back"]
    assert (back.error, back.generation, back.leader) == (ErrorCode.NONE, 1, one)
    assert table.sync("s", back.member_id, 1).assignment == b"2"
    code, _ = table.steps.heartbeat(other, "j", 1)
    assert code is ErrorCode.FENCED_INSTANCE_ID
    loaded = Group("g")
    for record in table.log:
        loaded.replay(record)
    assert loaded.static_members == {"i": one, "j": back.member_id}


def test_static_members_that_come_back_at_once_all_have_their_places(table: Any) -> None:
    """Each record is written while those before it are not yet committed."""
    table.join("a", instance_id="i")
    table.join("b", instance_id="j")
    table.join("c", instance_id="k")
    table.begin()
    first = table.answers["a"].member_id
    for ticket in ("b", "c", "a"):
        table.sync(f"s{ticket}", table.answers[ticket].member_id, 1, **{first: b"1"})
    table.committed()
    table.join("i again", instance_id="i")
    table.join("j again", instance_id="j")
    table.committed(1)
    table.join("k again", instance_id="k")
    table.committed()
    for instance in ("i", "j", "k"):
        back = table.answers[f"{instance} again"].member_id
        code, _ = table.steps.heartbeat(back, instance, 1)
        assert code is ErrorCode.NONE, f"{instance} has lost its place"
    loaded = Group("g")
    for at, record in enumerate(table.log):
        loaded.replay(record, at)
    assert loaded.static_members == table.group.static_members


def test_a_static_place_that_could_not_be_stored_stays_with_the_former_process(table: Any) -> None:
    one, other = static(table)
    offered = table.group.members[one].protocols
    table.join("back", instance_id="i", protocols=(("range", b"new"),), session_timeout_ms=7)
    table.failed(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert table.answers["back"].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    code, outcome = table.steps.heartbeat(one, "i", 1)
    assert code is ErrorCode.NONE
    assert outcome.timers == {(SESSION, one): 10_000}
    group = table.group
    assert (list(group.members), group.leader) == ([one, other], one)
    assert group.members[one].protocols == offered
    assert {member for kind, member in table.timers if kind == SESSION} == {one, other}


def test_a_static_place_that_may_be_stored_is_the_new_process_s(table: Any) -> None:
    """The write timed out: it is in the log, and may yet be committed."""
    one, _ = static(table)
    table.join("back", instance_id="i")
    table.failed(ErrorCode.REQUEST_TIMED_OUT)
    assert table.answers["back"].error is ErrorCode.REBALANCE_IN_PROGRESS
    code, _ = table.steps.heartbeat(one, "i", 1)
    assert code is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_leader_that_returns_does_not_assign_anew(table: Any) -> None:
    one, _ = static(table)
    table.join("old", instance_id="i")
    table.committed()
    old = table.answers["old"]
    assert old.leader == one != old.member_id
    assert old.members == ()
    table.join("new", instance_id="i", may_skip_assignment=True)
    table.committed()
    new = table.answers["new"]
    assert new.skip_assignment
    assert new.leader == new.member_id
    assert len(new.members) == 2


def test_static_members_are_not_put_out_by_a_rebalance_but_by_their_session(table: Any) -> None:
    one, other = static(table)
    table.join("one", one, instance_id="i")
    table.fire(REBALANCE)
    assert table.answers["one"].generation == 2
    assert other in table.group.members
    table.fire(SESSION, other)
    assert list(table.group.members) == [one]


def test_who_waits_hears_at_once_that_the_group_has_moved(table: Any) -> None:
    one, other = table.stable(2)
    table.join("waits", one)
    table.do(table.steps.unloaded())
    assert table.answers["waits"].error is ErrorCode.NOT_COORDINATOR
    assert table.timers == {}
    assert table.join("late", other).error is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_sessions_begin_anew_at_a_new_coordinator(table: Any) -> None:
    ids = table.stable(2)
    table.timers.clear()
    table.do(table.steps.loaded())
    assert table.timers == {(SESSION, i): 10_000 for i in ids}
