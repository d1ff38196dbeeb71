"""Suspicion: its causes, its effects, and its end."""

from __future__ import annotations

from highwater.controller.rules.effects import AddBroker, RemoveBroker, SendLeaderAndIsr
from highwater.controller.rules.events import Recovered, Suspected
from highwater.controller.rules.state import PartitionPhase
from highwater.controller.rules.suspicion import (
    Connected,
    Lost,
    ProbeFailed,
    Registered,
    Suspicion,
    TakeOver,
    Verdict,
)
from highwater.kafka.types import BrokerEpoch, BrokerId, BrokerInfo
from tests.unit.controller.lab import Lab, ids, leader_and_isr, live_sent, metadata, tp

B1, B2, B3 = ids(1, 2, 3)
SUSPECT_2, CLEAR_2 = Verdict(B2, suspect=True), Verdict(B2, suspect=False)


def info(broker: int, epoch: int = 1) -> BrokerInfo:
    return BrokerInfo(BrokerId(broker), BrokerEpoch(epoch), ())


def watching(*brokers: int) -> Suspicion:
    machine = Suspicion()
    machine.step(Registered(tuple(info(b) for b in brokers)), 0)
    for b in brokers:
        machine.step(Connected(BrokerId(b)), 0)
    return machine


# ---- causes


def test_a_lost_connection_and_a_failed_probe() -> None:
    machine = watching(2, 3)
    assert machine.step(ProbeFailed(B2, refused=True), 0) == []  # connected all the same
    assert machine.step(Lost(B2), 1) == []
    assert machine.step(ProbeFailed(B2, refused=True), 2) == [SUSPECT_2]
    assert machine.step(ProbeFailed(B2, refused=True), 3) == []


def test_a_lost_connection_that_is_made_again() -> None:
    machine = watching(2, 3)
    machine.step(Lost(B2), 1)
    assert machine.step(Connected(B2), 2) == []
    assert machine.step(ProbeFailed(B2, refused=True), 3) == []


def test_a_broker_that_never_answered_may_be_starting() -> None:
    machine = Suspicion()
    machine.step(Registered((info(2), info(3))), 0)
    assert machine.step(ProbeFailed(B2, refused=True), 0) == []


def test_an_unreachable_majority_is_this_brokers_own_link() -> None:
    machine = watching(2, 3)
    machine.step(Lost(B2), 1)
    machine.step(Lost(B3), 1)
    assert machine.step(ProbeFailed(B2, refused=False), 2) == [SUSPECT_2]
    assert machine.step(ProbeFailed(B3, refused=False), 2) == []
    assert machine.step(ProbeFailed(B3, refused=True), 3) == [Verdict(B3, suspect=True)]


def test_of_two_brokers_none_is_suspected_for_silence() -> None:
    machine = watching(2)
    machine.step(Lost(B2), 1)
    assert machine.step(ProbeFailed(B2, refused=False), 2) == []
    assert machine.step(ProbeFailed(B2, refused=True), 2) == [SUSPECT_2]


def test_each_wrong_suspicion_makes_the_next_wait_longer() -> None:
    machine = watching(2, 3)
    now = 0
    for wait in (10_000, 20_000, 40_000):
        machine.step(Lost(B2), now)
        assert machine.step(ProbeFailed(B2, refused=True), now) == [SUSPECT_2]
        assert machine.step(Connected(B2), now) == [CLEAR_2]
        machine.step(Lost(B2), now)
        assert machine.step(ProbeFailed(B2, refused=True), now + wait - 1) == []
        machine.step(Connected(B2), now)
        now += wait


def test_a_new_registration_begins_anew() -> None:
    machine = watching(2, 3)
    machine.step(Lost(B2), 1)
    machine.step(ProbeFailed(B2, refused=True), 1)
    machine.step(Registered((info(2, epoch=9), info(3))), 2)
    assert machine.step(Connected(B2), 3) == []
    machine.step(Lost(B2), 4)
    assert machine.step(ProbeFailed(B2, refused=True), 4) == [SUSPECT_2]
    machine.step(Registered((info(3),)), 5)
    assert machine.step(Connected(B2), 6) == []


def test_at_a_controllers_start() -> None:
    machine = Suspicion()
    machine.step(Registered((info(2), info(3))), 0)
    assert machine.at_start({B2: False, B3: False}) == {B2: False}
    assert machine.step(Connected(B2), 1) == [CLEAR_2]
    assert machine.step(Connected(B3), 1) == []
    fresh = Suspicion()
    fresh.step(Registered((info(2), info(3))), 0)
    assert fresh.at_start({B2: False, B3: True}) == {B3: True}


def test_taking_over() -> None:
    rule = TakeOver()
    assert not rule.may(0, was_connected=False, refused=False)
    assert rule.may(0, was_connected=False, refused=True)
    assert rule.may(0, was_connected=True, refused=False)
    rule.took(0)
    assert not rule.may(9_999, was_connected=True, refused=True)
    assert rule.may(10_000, was_connected=True, refused=True)
    rule.took(10_000)
    assert not rule.may(29_999, was_connected=True, refused=True)


# ---- effects


def lab_with_topic(*replicas: tuple[int, ...]) -> Lab:
    lab = Lab(1, 2, 3)
    lab.create_topic("t", *(replicas or ((2, 1, 3), (1, 2, 3))))
    lab.elect()
    return lab


def test_leaders_move_within_the_isr() -> None:
    lab = lab_with_topic()
    orders = lab.do(Suspected(B2))
    assert lab.state(tp())[1:4] == (1, 1, ids(1, 3))
    assert lab.state(tp(partition=1))[1:4] == (1, 1, ids(1, 3))
    assert leader_and_isr(orders, 3)[tp()].state.leader_epoch == 1
    assert leader_and_isr(orders, 2) == {}
    assert orders[0] == RemoveBroker(B2)
    assert metadata(orders, 1)[tp()].offline == ids(2)
    assert live_sent(orders, 1)[-1] == [1, 3]


def test_nothing_is_taken_that_nobody_else_can_have() -> None:
    lab = lab_with_topic((2, 1), (2,))
    lab.leader_writes_isr(tp(), 2)
    lab.configure("topics", "t", unclean_leader_election_enable="true").settle()
    lab.do(Suspected(B2))
    assert lab.state(tp())[1:4] == (2, 0, ids(2))
    assert lab.state(tp(partition=1))[1:4] == (2, 0, ids(2))
    assert lab.machine.state.partition_phases[tp()] is PartitionPhase.ONLINE


def test_a_suspected_leaders_address_is_told() -> None:
    """A suspected leader may answer again, and a follower that did not know its address would wait
    for ever (simulation, seed 541 of --transactions)."""
    lab = lab_with_topic((2, 1))
    lab.leader_writes_isr(tp(), 2).settle()
    lab.do(Suspected(B2))
    lab.bounce(1)
    sent = [o for o in lab.settle() if isinstance(o, SendLeaderAndIsr) and o.broker_id == B1]
    assert [o.partitions[0].state.leader for o in sent] == [B2]
    assert [[leader.id for leader in o.leaders] for o in sent] == [[B2]]


def test_an_isr_that_grew_unnoticed_is_seen() -> None:
    lab = lab_with_topic((2, 1))
    lab.leader_writes_isr(tp(), 2).settle()
    lab.leader_writes_isr(tp(), 2, 1, notify=False)
    lab.do(Suspected(B2))
    assert lab.state(tp())[1:4] == (1, 1, ids(1))


def test_a_suspect_that_answers_is_sent_everything() -> None:
    lab = lab_with_topic()
    known = lab.machine.state.brokers[B2]
    lab.do(Suspected(B2))
    orders = lab.do(Recovered(B2))
    assert AddBroker(known) in orders
    assert set(leader_and_isr(orders, 2)) == {tp(), tp(partition=1)}
    assert leader_and_isr(orders, 2)[tp()].state.leader == 1
    assert set(metadata(orders, 2)) == {tp(), tp(partition=1)}
    assert live_sent(orders, 1)[-1] == [1, 2, 3]
    assert lab.do(Recovered(B2)) == []


def test_its_registration_goes() -> None:
    lab = lab_with_topic((2, 1, 3), (2,))
    lab.do(Suspected(B2))
    lab.kill(2).settle()
    assert lab.state(tp())[1:4] == (1, 1, ids(1, 3))
    assert lab.state(tp(partition=1)).leader == -1
    assert lab.machine.state.partition_phases[tp(partition=1)] is PartitionPhase.OFFLINE
    assert not lab.machine.state.suspected
    assert lab.do(Recovered(B2)) == []


def test_its_registration_is_replaced() -> None:
    lab = lab_with_topic((2, 1, 3), (2,))
    lab.do(Suspected(B2))
    orders = lab.bounce(2).settle()
    assert set(leader_and_isr(orders, 2)) == {tp(), tp(partition=1)}
    assert lab.state(tp(partition=1)).leader == 2
    assert lab.state(tp()).leader == 1


def test_another_broker_dies_meanwhile() -> None:
    lab = lab_with_topic((2,), (3, 2), (3, 1))
    lab.configure("topics", "t", unclean_leader_election_enable="true")
    lab.do(Suspected(B2))
    lab.kill(3).settle()
    assert lab.state(tp())[1:4] == (2, 0, ids(2))  # still its own
    assert lab.machine.state.partition_phases[tp()] is PartitionPhase.ONLINE
    assert lab.state(tp(partition=2)).leader == 1
    lab.do(Recovered(B2))
    assert lab.state(tp()).leader == 2


def test_no_unclean_election_while_a_member_of_the_isr_may_be_alive() -> None:
    lab = lab_with_topic((3, 2, 1))
    lab.configure("topics", "t", unclean_leader_election_enable="true")
    lab.leader_writes_isr(tp(), 3, 2).settle()
    lab.machine.state.suspected[B2] = lab.machine.state.brokers.pop(B2)
    lab.kill(3).settle()
    assert lab.state(tp()).leader == -1
    lab.do(Recovered(B2))
    assert lab.state(tp()).leader == 2


def test_what_waited_moves_when_another_member_returns() -> None:
    lab = lab_with_topic((2, 1))
    lab.kill(1).settle()
    lab.do(Suspected(B2))
    assert lab.state(tp()).leader == 2
    lab.leader_writes_isr(tp(), 2, 1, notify=False)
    lab.start(1).settle()
    assert lab.state(tp())[1] == 1


def test_a_broker_that_is_not_there_is_not_suspected() -> None:
    lab = lab_with_topic()
    assert lab.do(Suspected(BrokerId(9))) == []


def test_few_requests_for_many_partitions() -> None:
    lab = lab_with_topic(*[(2, 1, 3)] * 500)
    orders = lab.do(Suspected(B2))
    assert sum(isinstance(o, SendLeaderAndIsr) for o in orders) <= 4
