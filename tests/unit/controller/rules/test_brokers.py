"""Brokers that fail, start, bounce, change, lose log directories, or fall behind."""

from __future__ import annotations

import pytest

from highwater.controller.rules import request_batch as requests
from highwater.controller.rules.effects import (
    AT_ONCE,
    AddBroker,
    RemoveBroker,
    Resign,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
    Watched,
)
from highwater.controller.rules.events import (
    ChannelOverflowed,
    LeaderAndIsrAnswered,
    UncleanElectionEnabled,
    UpdateMetadataAnswered,
)
from highwater.controller.rules.state import PartitionPhase, Replica, ReplicaPhase, Settings
from highwater.kafka import znodes
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import BrokerEpoch, BrokerId
from highwater.world.api import Create, SetData
from tests.unit.controller.lab import Lab, ids, leader_and_isr, live_sent, metadata, sent_count, tp

B1, B2, B3 = ids(1, 2, 3)


def lab_with_topic(*replicas: tuple[int, ...]) -> Lab:
    lab = Lab(1, 2, 3)
    lab.create_topic("t", *replicas)
    lab.elect()
    return lab


def test_a_dead_leader_is_replaced_from_the_isr() -> None:
    lab = lab_with_topic((1, 2, 3))
    orders = lab.kill(1).settle()
    # once by the election, once more as the dead replica is taken out: no longer in the ISR then
    assert lab.state(tp()) == (1, 2, 1, ids(2, 3), 1)
    assert leader_and_isr(orders, 2)[tp()].state.leader == 2
    assert leader_and_isr(orders, 3)[tp()].state.leader_epoch == 1
    assert leader_and_isr(orders, 1) == {}
    assert metadata(orders, 3)[tp()].offline == ids(1)
    assert RemoveBroker(B1) in orders


def test_the_election_sees_an_isr_that_the_leader_changed_unnoticed() -> None:
    lab = lab_with_topic((1, 2, 3))
    lab.leader_writes_isr(tp(), 1, 3, notify=False)
    lab.kill(1).settle()
    assert lab.state(tp()).leader == 3
    assert lab.state(tp()).isr == ids(3)


def test_the_election_gives_way_to_a_write_of_the_leader_in_between() -> None:
    lab = lab_with_topic((1, 2, 3))
    lab.kill(1)
    lab.before_write = lambda: lab.leader_writes_isr(tp(), 1, 3, notify=False)
    lab.settle()
    assert lab.state(tp()) == (1, 3, 1, ids(3), 2)


def test_a_dead_follower_leaves_the_isr() -> None:
    lab = lab_with_topic((1, 2, 3))
    orders = lab.kill(3).settle()
    assert lab.state(tp()) == (1, 1, 1, ids(1, 2), 1)
    assert leader_and_isr(orders, 1)[tp()].state.isr == ids(1, 2)
    assert leader_and_isr(orders, 2)[tp()].state.leader_epoch == 1


def test_a_follower_that_is_out_of_the_isr_costs_no_write() -> None:
    lab = lab_with_topic((1, 2, 3))
    lab.leader_writes_isr(tp(), 1, 2).settle()
    lab.kill(3).settle()
    assert lab.state(tp()) == (1, 1, 0, ids(1, 2), 1)


def test_the_removal_of_a_follower_sees_a_write_of_the_leader_in_between() -> None:
    lab = lab_with_topic((1, 2, 3))
    lab.kill(3)
    lab.before_write = lambda: lab.leader_writes_isr(tp(), 1, 3, notify=False)
    lab.settle()
    assert lab.state(tp()) == (1, 1, 1, ids(1), 2)


def test_the_last_member_stays_in_the_isr_without_leading() -> None:
    lab = lab_with_topic((1, 2))
    lab.leader_writes_isr(tp(), 1).settle()
    orders = lab.kill(1).settle()
    assert lab.state(tp()).leader == -1
    assert lab.state(tp()).isr == ids(1)
    assert lab.machine.state.partition_phases[tp()] is PartitionPhase.OFFLINE
    assert metadata(orders, 2)[tp()].state.leader == -1
    lab.start(1).settle()
    assert lab.state(tp()).leader == 1
    assert lab.machine.state.partition_phases[tp()] is PartitionPhase.ONLINE


def test_unclean_election_by_topic_configuration() -> None:
    lab = lab_with_topic((1, 2))
    lab.configure("topics", "t", unclean_leader_election_enable="true")
    lab.leader_writes_isr(tp(), 1).settle()
    lab.kill(1).settle()
    assert lab.state(tp())[1:4] == (2, 1, ids(2))
    assert lab.machine.state.unclean_elections == 1


def test_unclean_election_by_the_clusters_default() -> None:
    lab = lab_with_topic((1, 2))
    lab.configure("brokers", "<default>", unclean_leader_election_enable="true")
    lab.leader_writes_isr(tp(), 1).settle()
    lab.kill(1).settle()
    assert lab.state(tp()).leader == 2


def test_a_topics_own_setting_goes_before_the_brokers() -> None:
    lab = Lab(
        1,
        2,
        settings=Settings(
            broker_id=B1, unclean_leader_election_enable=True, auto_leader_rebalance_enable=False
        ),
    )
    lab.create_topic("t", (2, 1))
    lab.elect()
    lab.configure("topics", "t", unclean_leader_election_enable="false")
    lab.leader_writes_isr(tp(), 2).settle()
    lab.kill(2).settle()
    assert lab.state(tp()).leader == -1


def test_unclean_election_that_is_enabled_later() -> None:
    lab = lab_with_topic((1, 2), (2, 1))
    lab.leader_writes_isr(tp(), 1).settle()
    lab.kill(1).settle()
    lab.configure("topics", "t", unclean_leader_election_enable="true")
    lab.do(UncleanElectionEnabled("other"))
    assert lab.state(tp()).leader == -1
    lab.do(UncleanElectionEnabled("t"))
    assert lab.state(tp()).leader == 2


def test_unclean_election_that_is_enabled_for_the_cluster_later() -> None:
    lab = lab_with_topic((1, 2), (2, 1))
    lab.leader_writes_isr(tp(), 1).settle()
    lab.kill(1).settle()
    lab.do(UncleanElectionEnabled(None))
    assert lab.state(tp()).leader == -1, "nothing is set"
    lab.configure("brokers", "<default>", unclean_leader_election_enable="true")
    lab.do(UncleanElectionEnabled(None))
    assert lab.state(tp()).leader == 2


def test_a_started_broker_is_told_everything() -> None:
    lab = lab_with_topic((1, 2), (2, 3))
    orders = lab.start(4).settle()
    assert AddBroker(lab.machine.state.brokers[BrokerId(4)]) in orders
    assert set(metadata(orders, 4)) == {tp(), tp(partition=1)}
    assert live_sent(orders, 1) == [[1, 2, 3, 4]]
    assert metadata(orders, 1) == {}


def test_a_returned_broker_follows_before_it_is_in_the_isr() -> None:
    lab = lab_with_topic((1, 2, 3))
    lab.kill(1).settle()
    orders = lab.start(1).settle()
    sent = leader_and_isr(orders, 1)[tp()]
    assert (sent.state.leader, sent.state.isr, sent.is_new) == (2, ids(2, 3), False)
    assert lab.state(tp()).leader == 2


def test_a_bounce_is_a_failure_and_a_start() -> None:
    lab = lab_with_topic((1, 2, 3))
    old = lab.machine.state.brokers[B1].epoch
    orders = lab.bounce(1).settle()
    new = lab.machine.state.brokers[B1].epoch
    assert new > old
    assert lab.state(tp())[1:4] == (2, 1, ids(2, 3))
    to_first = [o for o in orders if isinstance(o, SendLeaderAndIsr) and o.broker_id == 1]
    assert {o.broker_epoch for o in to_first} == {new}
    assert leader_and_isr(orders, 1)[tp()].state.leader == 2
    kinds = [type(o) for o in orders if isinstance(o, AddBroker | RemoveBroker)]
    assert kinds == [RemoveBroker, AddBroker]


def test_a_failure_without_any_replica_is_told_all_the_same() -> None:
    lab = lab_with_topic((1, 2))
    orders = lab.kill(3).settle()
    assert live_sent(orders, 1) == [[1, 2]]
    assert [o for o in orders if isinstance(o, Watched)][-1].brokers[0].id == 1


def test_new_endpoints_are_told() -> None:
    lab = lab_with_topic((1, 2))
    session = lab.sessions[2]
    data = lab.zk.get(lab.tool, znodes.broker_path(2), False)[0]
    lab.zk.write(session, SetData(znodes.broker_path(2), data.replace(b"9092", b"9999")))
    orders = lab.settle()
    (update,) = [o for o in orders if isinstance(o, SendUpdateMetadata)]
    assert [b.endpoints[0].port for b in update.live] == [9092, 9999, 9092]


def test_a_broker_stays_while_only_its_registrations_data_is_damaged() -> None:
    lab = lab_with_topic((2, 1))
    session = lab.sessions[2]
    path = znodes.broker_path(2)
    data = lab.zk.get(lab.tool, path, False)[0]
    lab.zk.write(session, SetData(path, b"{"))
    lab.kill(3).settle()
    assert sorted(lab.machine.state.brokers) == [1, 2]
    assert lab.state(tp()).leader == 2
    lab.zk.write(session, SetData(path, data.replace(b"9092", b"9999")))
    (update,) = [o for o in lab.settle() if isinstance(o, SendUpdateMetadata)]
    assert [b.endpoints[0].port for b in update.live] == [9092, 9999]


def test_a_broker_is_taken_when_its_registration_is_mended() -> None:
    lab = lab_with_topic((1, 2))
    path = znodes.broker_path(2)
    data = lab.zk.get(lab.tool, path, False)[0]
    lab.zk.write(lab.sessions[2], SetData(path, b"{"))
    lab.elect()
    assert sorted(lab.machine.state.brokers) == [1, 3]
    lab.zk.write(lab.sessions[2], SetData(path, data))
    lab.settle()
    assert sorted(lab.machine.state.brokers) == [1, 2, 3]


def test_names_that_are_no_broker_ids_are_passed_over() -> None:
    lab = lab_with_topic((1, 2))
    data = lab.zk.get(lab.tool, znodes.broker_path(2), False)[0]
    for name in ("²", "-1", "99999999999", "x"):
        lab.write(Create(f"{znodes.BROKER_IDS}/{name}", data))
    lab.settle()
    assert sorted(lab.machine.state.brokers) == [1, 2, 3]


def test_lost_log_directories() -> None:
    lab = lab_with_topic((1, 2, 3), (2, 1, 3))
    lab.write(Create(znodes.LOG_DIR_EVENT_PREFIX, b'{"version":1,"broker":1}', sequential=True))
    orders = lab.settle()
    # the controller asks it for the state of all its replicas
    assert set(leader_and_isr(orders, 1)) == {tp(), tp(partition=1)}
    assert leader_and_isr(orders, 2) == {}
    assert lab.children(znodes.LOG_DIR_EVENTS) == []
    epoch = lab.machine.state.brokers[B1].epoch
    errors = {tp(): ErrorCode.KAFKA_STORAGE_ERROR, tp(partition=1): ErrorCode.NONE}
    orders = lab.do(LeaderAndIsrAnswered(B1, epoch, 0, errors))
    assert lab.state(tp())[1:4] == (2, 1, ids(2, 3))
    assert lab.state(tp(partition=1)).leader_epoch == 0
    assert metadata(orders, 3)[tp()].offline == ids(1)
    # and it can come back
    lab.do(LeaderAndIsrAnswered(B1, epoch, 0, {tp(): ErrorCode.NONE}))
    assert lab.machine.state.is_online(B1, tp())


def test_answers_of_an_earlier_life_say_nothing() -> None:
    lab = lab_with_topic((1, 2))
    old = lab.machine.state.brokers[B1].epoch
    lab.bounce(1).settle()
    orders = lab.do(LeaderAndIsrAnswered(B1, old, 0, {tp(): ErrorCode.KAFKA_STORAGE_ERROR}))
    assert orders == []
    assert lab.machine.state.is_online(B1, tp())


def test_a_newer_controller_makes_this_one_resign() -> None:
    lab = lab_with_topic((1, 2))
    stale = ErrorCode.STALE_CONTROLLER_EPOCH
    (order,) = lab.do(UpdateMetadataAnswered(B2, BrokerEpoch(0), stale))
    assert isinstance(order, Resign)
    assert any(
        isinstance(o, Resign) for o in lab.do(LeaderAndIsrAnswered(B2, BrokerEpoch(0), stale, {}))
    )


def test_a_broker_that_fell_behind_gets_everything_anew() -> None:
    lab = lab_with_topic((1, 2), (2, 3))
    orders = lab.do(ChannelOverflowed(B2))
    assert orders[:2] == [RemoveBroker(B2), AddBroker(lab.machine.state.brokers[B2])]
    assert set(metadata(orders, 2)) == {tp(), tp(partition=1)}
    assert set(leader_and_isr(orders, 2)) == {tp(), tp(partition=1)}
    assert leader_and_isr(orders, 1) == leader_and_isr(orders, 3) == {}


def test_a_broker_that_fell_behind_is_told_to_delete_again() -> None:
    lab = lab_with_topic((1, 2))
    lab.delete_topic("t").settle()
    orders = lab.do(ChannelOverflowed(B2))
    (stop,) = [o for o in orders if isinstance(o, SendStopReplica)]
    assert [(p.tp, p.delete) for p in stop.partitions] == [(tp(), True)]
    state = lab.machine.state
    assert state.replica_phases[Replica(tp(), B2)] is ReplicaPhase.DELETION_STARTED


def test_within_one_batch_new_and_delete_are_not_forgotten() -> None:
    lab = lab_with_topic((1, 2))
    state = lab.machine.state
    for flag in (True, False):
        requests.add_leader_and_isr(state, (B1,), tp(), is_new=flag)
        requests.add_stop_replica(state, (B2,), tp(), delete=flag)
    assert not list(requests.flush(state)), "it paused for a single partition"
    lead, _, stop = state.effects
    assert isinstance(lead, SendLeaderAndIsr)
    assert lead.partitions[0].is_new
    assert isinstance(stop, SendStopReplica)
    assert stop.partitions[0].delete


@pytest.mark.thorough
def test_a_thousand_leaderships_move_with_few_requests() -> None:
    lab = lab_with_topic(*[(1, 2, 3)] * 1000)
    asked = len(lab.questions)
    orders = lab.kill(1).settle()
    assert all(lab.state(tp(partition=p)).leader == 2 for p in range(1000))
    assert sent_count(orders, SendLeaderAndIsr) <= 4
    assert sent_count(orders, SendUpdateMetadata) <= 3
    assert len(lab.questions) - asked <= 6


def test_others_have_their_turn_while_thousands_of_leaderships_move() -> None:
    """No step touches more than AT_ONCE partitions."""
    lab = lab_with_topic(*[(1, 2, 3)] * 4 * AT_ONCE)
    before = lab.pauses
    lab.kill(1).settle()
    killed = lab.pauses - before
    assert killed >= 6 * 4, "elections: chosen, encoded, answered; replicas: read, taken out, told"
    lab.elect()
    assert lab.pauses - before - killed >= 6 * 4


def test_who_comes_back_is_told_of_all_topics() -> None:
    """One that had no session meanwhile knows topics that are gone."""
    lab = Lab(1, 2)
    first = [o for o in lab.elect() if isinstance(o, SendUpdateMetadata)]
    assert first[0].all_topics == ()
    lab.create_topic("t", (1, 2))
    assert all(o.all_topics is None for o in lab.settle() if isinstance(o, SendUpdateMetadata))
    orders = [o for o in lab.bounce(2).settle() if isinstance(o, SendUpdateMetadata)]
    told = [o for o in orders if o.all_topics is not None]
    assert [(o.all_topics, [b for b, _ in o.brokers]) for o in told] == [(("t",), [2])]
