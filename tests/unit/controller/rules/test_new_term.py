"""A new controller: its reads, messages, elections and unfinished work; and an old one, which is
fenced."""

from __future__ import annotations

import pytest

from highwater.controller.rules.effects import AddBroker, SendLeaderAndIsr, SendUpdateMetadata
from highwater.controller.rules.machine import gauges
from highwater.kafka import znodes
from highwater.kafka.types import BrokerId, ControllerEpoch
from highwater.world.api import Create, SetData
from tests.unit.controller.lab import Lab, Moved, ids, leader_and_isr, live_sent, metadata, tp


def test_everything_is_told_to_all_brokers() -> None:
    lab = Lab(1, 2, 3)
    lab.create_topic("t", (1, 2, 3), (2, 3, 1))
    lab.elect()
    orders = lab.elect()
    added = [o.broker.id for o in orders if isinstance(o, AddBroker)]
    assert added == [1, 2, 3]
    for broker in (1, 2, 3):
        assert set(leader_and_isr(orders, broker)) == {tp(), tp(partition=1)}
        assert set(metadata(orders, broker)) == {tp(), tp(partition=1)}
        assert live_sent(orders, broker)[0] == [1, 2, 3]
    sends = [type(o) for o in orders if isinstance(o, SendLeaderAndIsr | SendUpdateMetadata)]
    assert sends[0] is SendUpdateMetadata  # the addresses first
    assert lab.state(tp()).leader_epoch == 0


def test_a_leader_that_died_without_a_controller_is_replaced() -> None:
    lab = Lab(1, 2, 3)
    lab.create_topic("t", (1, 2, 3), (2, 1, 3))
    lab.elect()
    lab.kill(1)
    lab.elect()
    # once as the dead replica is taken out (which leaves no leader), once by the election
    assert lab.state(tp())[:4] == (2, 2, 2, ids(2, 3))
    assert lab.state(tp(partition=1)).isr == ids(2, 3)


def test_partitions_that_never_had_a_leader_get_one() -> None:
    lab = Lab(1, 2)
    lab.elect()
    lab.create_topic("t", (1, 2))
    lab.elect()
    assert lab.state(tp())[:4] == (2, 1, 0, ids(1, 2))


def test_notifications_of_before_are_dropped() -> None:
    lab = Lab(1, 2)
    lab.create_topic("t", (1, 2))
    lab.elect()
    lab.leader_writes_isr(tp(), 1)
    lab.write(Create(znodes.LOG_DIR_EVENT_PREFIX, b"{}", sequential=True))
    lab.elect()
    assert lab.children(znodes.ISR_CHANGES) == lab.children(znodes.LOG_DIR_EVENTS) == []
    assert lab.machine.state.leadership[tp()].isr == ids(1)


def test_a_pending_preferred_election_is_held() -> None:
    lab = Lab(1, 2)
    lab.create_topic("t", (1, 2))
    lab.elect()
    lab.kill(1).settle()
    lab.start(1).settle()
    lab.leader_writes_isr(tp(), 2, 1).settle()
    path = znodes.PREFERRED_REPLICA_ELECTION
    lab.write(Create(path, znodes.encode_preferred_replica_election([tp()])))
    lab.elect()
    assert lab.state(tp()).leader == 1
    assert not lab.exists(path)


def test_a_pending_reassignment_of_older_tools_starts() -> None:
    lab = Lab(1, 2, 3)
    lab.create_topic("t", (1, 2))
    wanted = znodes.encode_reassign_partitions({tp(): ids(3, 1)})
    lab.write(Create(znodes.REASSIGN_PARTITIONS, wanted))
    lab.elect()
    assert lab.topic("t").partitions[0].adding == ids(3)


def test_a_zombie_writes_nothing() -> None:
    lab = Lab(1, 2, 3)
    lab.create_topic("t", (1, 2, 3))
    lab.elect()
    zombie, version = lab.machine, lab.epoch_version
    lab.elect()
    lab.machine, lab.epoch_version = zombie, version
    lab.kill(1)
    with pytest.raises(Moved):
        lab.settle()
    assert lab.state(tp())[1:4] == (1, 0, ids(1, 2, 3))


def test_a_state_of_a_later_controller_is_not_touched() -> None:
    lab = Lab(1, 2)
    lab.create_topic("t", (1, 2))
    lab.elect()
    later = lab.state(tp())._replace(controller_epoch=ControllerEpoch(9))
    lab.write(SetData(znodes.state_path(tp()), znodes.encode_partition_state(later)))
    lab.kill(1).settle()
    assert lab.state(tp()).leader == 1


def test_a_silent_broker_is_suspected_before_the_first_election() -> None:
    lab = Lab(1, 2, 3)
    lab.create_topic("t", (2, 1, 3), (1, 2, 3), (2,))
    lab.elect()
    lab.silent = {BrokerId(2): True}
    orders = lab.elect()
    assert [o.broker.id for o in orders if isinstance(o, AddBroker)] == [1, 3]
    assert lab.state(tp())[1:4] == (1, 1, ids(1, 3))
    assert lab.state(tp(partition=1)).isr == ids(1, 3)
    assert lab.state(tp(partition=2))[1:4] == (2, 0, ids(2))  # no other replica can lead it
    assert metadata(orders, 1)[tp()].offline == ids(2)
    assert live_sent(orders, 3)[0] == [1, 3]


def test_gauges() -> None:
    lab = Lab(1, 2, 3)
    lab.create_topic("t", (1, 2), (2, 1), (3,))
    lab.elect()
    lab.kill(3)
    lab.kill(1).settle()
    found = gauges(lab.machine.state)
    assert found["OfflinePartitionsCount"] == 1
    assert found["PreferredReplicaImbalanceCount"] == 2
    assert found["GlobalTopicCount"] == 1
    assert found["GlobalPartitionCount"] == 3
    assert found["ActiveBrokerCount"] == 1
    lab.delete_topic("t").settle()
    found = gauges(lab.machine.state)
    assert found["TopicsToDeleteCount"] == 1
    assert found["ReplicasToDeleteCount"] == 5
    assert found["TopicsIneligibleToDeleteCount"] == 1
    assert found["OfflinePartitionsCount"] == 0
