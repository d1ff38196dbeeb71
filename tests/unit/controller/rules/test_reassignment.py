"""Moves of partitions: new replicas, fewer, other order, cancelled, interrupted."""

from __future__ import annotations

from typing import Any

import pytest

from highwater.controller.rules.effects import Question, Reply, SendLeaderAndIsr
from highwater.controller.rules.events import (
    AlterReassignments,
    ElectLeaders,
    ListReassignments,
    Outcome,
    ReassignmentIsrChange,
)
from highwater.kafka import znodes
from highwater.kafka.errors import ErrorCode
from highwater.kafka.replica_assignment import ReplicaAssignment
from highwater.kafka.topic_ids import from_text
from highwater.kafka.types import TopicPartition
from highwater.world.api import Create
from tests.unit.controller.lab import Lab, ids, leader_and_isr, metadata, stopped, tp

OK: Outcome = (ErrorCode.NONE, None)


def lab_with_topic() -> Lab:
    lab = Lab(1, 2, 3, 4, 5)
    lab.create_topic("t", (1, 2, 3))
    lab.elect()
    return lab


def alter(lab: Lab, *target: int, cancel: bool = False) -> Outcome:
    event = AlterReassignments(9, {tp(): None if cancel else ids(*target)})
    orders = lab.do(event) + lab.settle()
    (reply,) = [o for o in orders if isinstance(o, Reply)]
    outcome: Outcome = reply.value[tp()]
    return outcome


def listed(lab: Lab, *wanted: TopicPartition) -> dict[TopicPartition, ReplicaAssignment]:
    (reply,) = lab.do(ListReassignments(1, tuple(wanted) or None))
    assert isinstance(reply, Reply)
    found: dict[TopicPartition, ReplicaAssignment] = reply.value
    return found


def test_a_forced_leader_swap() -> None:
    """The same replicas in another order, then a preferred election: no data moves."""
    lab = lab_with_topic()
    assert alter(lab, 3, 1, 2) == OK
    assert lab.topic("t").partitions[0] == ReplicaAssignment(ids(3, 1, 2))
    assert lab.state(tp())[1:4] == (1, 1, ids(1, 2, 3))
    for broker in (1, 2, 3):
        sent = leader_and_isr(lab.orders, broker)[tp()]
        assert sent.assignment.replicas == ids(3, 1, 2)
        assert sent.state.leader_epoch == 1
    assert metadata(lab.orders, 5)[tp()].replicas == ids(3, 1, 2)
    assert listed(lab) == {}
    lab.do(ElectLeaders(2, (tp(),), unclean=False))
    assert lab.state(tp())[1:4] == (3, 2, ids(1, 2, 3))
    assert not stopped(lab.orders, 1, delete=True)


def test_new_replicas_and_fewer() -> None:
    lab = lab_with_topic()
    assert alter(lab, 4, 5) == OK
    moving = ReplicaAssignment(ids(4, 5, 1, 2, 3), ids(4, 5), ids(1, 2, 3))
    assert lab.topic("t").partitions[0] == moving
    assert listed(lab) == listed(lab, tp()) == {tp(): moving}
    assert lab.state(tp())[1:4] == (1, 1, ids(1, 2, 3))
    assert leader_and_isr(lab.orders, 4)[tp()].is_new
    assert not leader_and_isr(lab.orders, 2)[tp()].is_new
    assert leader_and_isr(lab.orders, 1)[tp()].assignment == moving

    lab.leader_writes_isr(tp(), 1, 2, 3, 4, notify=False).settle()
    assert lab.topic("t").partitions[0] == moving  # one is missing yet
    lab.orders.clear()
    lab.leader_writes_isr(tp(), 1, 2, 3, 4, 5, notify=False).settle()
    assert lab.topic("t").partitions[0] == ReplicaAssignment(ids(4, 5))
    assert lab.state(tp()).leader == 4
    assert set(lab.state(tp()).isr) == {4, 5}
    for broker in (1, 2, 3):
        assert stopped(lab.orders, broker, delete=True) == [tp()]
    assert leader_and_isr(lab.orders, 5)[tp()].state.leader == 4
    assert metadata(lab.orders, 1)[tp()].replicas == ids(4, 5)
    assert listed(lab) == {}
    assert {r.broker for r in lab.machine.state.replica_phases} == {4, 5}


def test_the_leader_stays_where_it_is_in_the_target() -> None:
    lab = lab_with_topic()
    alter(lab, 1, 4)
    lab.leader_writes_isr(tp(), 1, 2, 3, 4).settle()
    assert lab.state(tp()).leader == 1
    assert set(lab.state(tp()).isr) == {1, 4}
    assert lab.topic("t").partitions[0] == ReplicaAssignment(ids(1, 4))


def test_cancel() -> None:
    lab = lab_with_topic()
    alter(lab, 4, 5)
    lab.orders.clear()
    assert alter(lab, cancel=True) == OK
    assert lab.topic("t").partitions[0] == ReplicaAssignment(ids(1, 2, 3))
    assert lab.state(tp()).leader == 1
    assert stopped(lab.orders, 4, delete=True) == [tp()]
    assert stopped(lab.orders, 5, delete=True) == [tp()]
    assert not stopped(lab.orders, 1, delete=True)
    assert listed(lab) == {}
    assert alter(lab, cancel=True)[0] is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


@pytest.mark.parametrize("target", [None, (5, 1, 2)])
def test_no_assignment_forgets_a_member_of_the_isr(target: tuple[int, ...] | None) -> None:
    """`sim --admin --pace 0.15`, seed 4 of November 2026, R2: a controller that failed between the
    two writes of a cancellation left the replica in the ISR for good."""
    lab = lab_with_topic()
    alter(lab, 4, 1, 2)
    lab.leader_writes_isr(tp(), 1, 2, 3, 4)
    epoch = lab.state(tp()).leader_epoch
    answer, seen = lab._answer, []

    def watched(question: Question) -> Any:
        answered = answer(question)
        seen.append((lab.state(tp()), lab.topic("t").partitions[0].replicas))
        return answered

    lab._answer = watched  # type: ignore[method-assign]
    assert alter(lab, *target or (), cancel=target is None) == OK
    assert seen[-1][0].isr == ids(1, 2, 3)
    for state, replicas in seen:
        assert set(state.isr) <= set(replicas)
        # replica 4, still assigned, cannot join again: its leader would write another epoch
        assert 4 in state.isr or state.leader_epoch > epoch


def test_another_target_takes_the_place_of_the_first() -> None:
    lab = lab_with_topic()
    alter(lab, 4, 1, 2)
    lab.orders.clear()
    assert alter(lab, 5, 1, 2) == OK
    assert lab.topic("t").partitions[0] == ReplicaAssignment(ids(5, 1, 2, 3), ids(5), ids(3))
    assert stopped(lab.orders, 4, delete=True) == [tp()]
    assert leader_and_isr(lab.orders, 5)[tp()].is_new


def test_a_replica_is_told_of_its_partition_only_when_it_is_assigned() -> None:
    """`sim --admin --log-dirs --pace 0.3`, seed 100012: told before, it was in the ISR so soon that
    the controller never noted it, and left it there when the partition moved on."""
    lab = lab_with_topic()
    alter(lab, 4, 1, 2)
    lab.orders.clear()
    assert alter(lab, 5, 1, 2) == OK
    told = [p for o in lab.orders if isinstance(o, SendLeaderAndIsr) for p in o.partitions
            if o.broker_id == 5]  # fmt: skip
    assert {p.state.leader_epoch for p in told} == {lab.state(tp()).leader_epoch}
    assert {p.assignment for p in told} == {lab.topic("t").partitions[0]}


def test_targets_that_are_refused() -> None:
    lab = lab_with_topic()
    bad = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert alter(lab)[0] is bad
    assert alter(lab, 1, 1)[0] is bad
    assert alter(lab, -1, 1)[0] is bad
    assert alter(lab, 1, 9)[0] is bad
    lab.kill(3).settle()
    assert alter(lab, 3, 2, 1) == OK  # it is not added, so it may be away
    (reply,) = lab.do(AlterReassignments(1, {tp("x"): ids(1)}))
    assert isinstance(reply, Reply)
    assert reply.value[tp("x")][0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_controller_that_takes_over_goes_on() -> None:
    lab = lab_with_topic()
    alter(lab, 4, 5)
    orders = lab.elect()
    assert list(lab.machine.state.reassigning) == [tp()]
    assert leader_and_isr(orders, 4)[tp()].is_new
    lab.leader_writes_isr(tp(), 1, 2, 3, 4, 5, notify=False).settle()
    assert lab.topic("t").partitions[0] == ReplicaAssignment(ids(4, 5))


def test_a_controller_that_takes_over_finishes_what_is_complete() -> None:
    lab = lab_with_topic()
    alter(lab, 4, 5)
    lab.leader_writes_isr(tp(), 1, 2, 3, 4, 5, notify=False)
    lab.elect()
    assert lab.topic("t").partitions[0] == ReplicaAssignment(ids(4, 5))
    assert lab.state(tp()).leader == 4


def test_goes_on_when_a_new_replica_returns() -> None:
    lab = lab_with_topic()
    alter(lab, 1, 4)
    orders = lab.bounce(4).settle()
    assert tp() in leader_and_isr(orders, 4)
    lab.leader_writes_isr(tp(), 1, 2, 3, 4, notify=False).settle()
    assert lab.topic("t").partitions[0] == ReplicaAssignment(ids(1, 4))


def test_topic_id_and_the_other_partitions_are_kept() -> None:
    lab = Lab(1, 2)
    lab.write(
        Create(
            znodes.topic_path("t"),
            b'{"version":3,"topic_id":"oEVGzPvtQ_GLwkSUbUNGYg","partitions":{"0":[1,2],"1":[2,1]}}',
        )
    )
    lab.elect()
    alter(lab, 2, 1)
    topic = lab.topic("t")
    assert topic.topic_id == from_text("oEVGzPvtQ_GLwkSUbUNGYg")
    assert topic.partitions == {
        0: ReplicaAssignment(ids(2, 1)),
        1: ReplicaAssignment(ids(2, 1)),
    }


def test_through_the_znode_of_older_tools() -> None:
    lab = lab_with_topic()
    wanted = {tp(): ids(4, 1, 2), tp("x"): ids(1)}
    lab.write(Create(znodes.REASSIGN_PARTITIONS, znodes.encode_reassign_partitions(wanted)))
    lab.settle()
    data = lab.zk.get(lab.tool, znodes.REASSIGN_PARTITIONS, False)[0]
    assert znodes.decode_reassign_partitions(data) == {tp(): ids(4, 1, 2)}
    lab.leader_writes_isr(tp(), 1, 2, 3, 4, notify=False).settle()
    assert not lab.exists(znodes.REASSIGN_PARTITIONS)
    assert lab.topic("t").partitions[0] == ReplicaAssignment(ids(4, 1, 2))
    again = znodes.encode_reassign_partitions({tp(): ids(1, 2, 4)})
    lab.write(Create(znodes.REASSIGN_PARTITIONS, again))
    lab.settle()
    assert lab.topic("t").partitions[0] == ReplicaAssignment(ids(1, 2, 4))


def test_an_isr_change_of_a_partition_that_does_not_move() -> None:
    lab = lab_with_topic()
    assert lab.do(ReassignmentIsrChange(tp())) == []


def test_the_leader_epoch_grows_over_a_concurrent_write_of_the_leader() -> None:
    lab = lab_with_topic()
    writes = 0

    def leader_writes() -> None:
        nonlocal writes
        writes += 1
        if writes == 1:
            lab.before_write = leader_writes  # not the write of the assignment, but the next
        else:
            lab.leader_writes_isr(tp(), 1, 2, notify=False)

    lab.before_write = leader_writes
    assert alter(lab, 2, 1, 3) == OK
    assert lab.state(tp())[1:4] == (1, 1, ids(1, 2))
    assert lab.state(tp()).zk_version == 2


def test_a_partition_that_is_added_meanwhile_is_kept() -> None:
    lab = lab_with_topic()
    lab.before_write = lambda: lab.add_partitions("t", (4, 5))
    assert alter(lab, 1, 2, 4) == OK
    assert lab.topic("t").partitions[1] == ReplicaAssignment(ids(4, 5))
    assert lab.state(tp("t", 1)).leader == 4
    lab.leader_writes_isr(tp(), 1, 2, 3, 4).settle()
    assert lab.topic("t").partitions == {
        0: ReplicaAssignment(ids(1, 2, 4)),
        1: ReplicaAssignment(ids(4, 5)),
    }


def test_a_partition_that_was_added_and_is_not_known_yet_is_kept() -> None:
    lab = lab_with_topic()
    lab.add_partitions("t", (4, 5))  # its event waits behind the request
    assert alter(lab, 2, 1, 3) == OK
    assert sorted(lab.topic("t").partitions) == [0, 1]
    assert lab.state(tp("t", 1)).leader == 4
