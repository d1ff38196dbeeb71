"""Topics that appear, grow and vanish."""

from __future__ import annotations

from highwater.controller.rules.effects import SendLeaderAndIsr, SendUpdateMetadata, WriteZk
from highwater.controller.rules.state import PartitionPhase
from highwater.kafka import znodes
from highwater.kafka.types import BrokerId, LeaderEpoch
from highwater.world.api import Create, Delete, SetData
from tests.unit.controller.lab import Lab, ids, leader_and_isr, metadata, sent_count, tp


def test_a_new_topic_gets_its_first_leaders() -> None:
    lab = Lab(1, 2, 3)
    lab.elect()
    orders = lab.create_topic("t", (1, 2, 3), (2, 3, 1)).settle()
    assert lab.state(tp()) == (1, 1, 0, ids(1, 2, 3), 0)
    assert lab.state(tp(partition=1)) == (1, 2, 0, ids(2, 3, 1), 0)
    for broker in (1, 2, 3):
        sent = leader_and_isr(orders, broker)
        assert set(sent) == {tp(), tp(partition=1)}
        assert all(p.is_new for p in sent.values())
        assert metadata(orders, broker)[tp()].state.leader == 1


def test_a_thousand_partitions_are_few_requests() -> None:
    lab = Lab(1, 2, 3)
    lab.elect()
    before = len(lab.questions)
    orders = lab.create_topic("t", *[(1, 2, 3)] * 1000).settle()
    assert sent_count(orders, SendLeaderAndIsr) == 3
    assert sent_count(orders, SendUpdateMetadata) == 1
    writes = [q for q in lab.questions[before:] if isinstance(q, WriteZk)]
    assert len(writes) == 3, "the id, the znodes above the states, the states"
    assert len(lab.machine.state.partitions_in(PartitionPhase.ONLINE)) == 1000


def test_only_live_replicas_are_in_the_first_isr() -> None:
    lab = Lab(1, 2, 3)
    lab.elect()
    lab.kill(2).settle()
    lab.create_topic("t", (2, 1, 3)).settle()
    assert lab.state(tp())[:4] == (1, 1, 0, ids(1, 3))


def test_without_a_live_replica_it_waits_for_one() -> None:
    lab = Lab(1, 2, 3)
    lab.elect()
    lab.create_topic("t", (4,)).settle()
    assert lab.machine.state.partition_phases[tp()] is PartitionPhase.NEW
    orders = lab.start(4).settle()
    assert lab.state(tp())[:4] == (1, 4, 0, ids(4))
    assert tp() in leader_and_isr(orders, 4)


def test_a_state_that_an_earlier_try_left_is_taken_over() -> None:
    lab = Lab(1, 2, 3)
    lab.elect()

    def lost_answer() -> None:
        lab.make("/brokers/topics/t/partitions/0")
        state = lab.machine.state
        first = znodes.PartitionState(state.epoch, BrokerId(1), LeaderEpoch(0), ids(1, 2))
        lab.write(Create(znodes.state_path(tp()), znodes.encode_partition_state(first)))

    lab.create_topic("t", (1, 2))
    lab.before_write = lost_answer
    orders = lab.settle()
    assert lab.state(tp()) == (1, 1, 0, ids(1, 2), 0)
    assert leader_and_isr(orders, 2)[tp()].is_new


def test_a_partition_znode_without_state_is_completed() -> None:
    lab = Lab(1, 2)
    lab.elect()
    lab.create_topic("t", (1, 2))
    lab.make("/brokers/topics/t/partitions/0")
    orders = lab.settle()
    assert lab.state(tp()) == (1, 1, 0, ids(1, 2), 0)
    assert leader_and_isr(orders, 2)[tp()].is_new


def test_partitions_are_added() -> None:
    lab = Lab(1, 2, 3)
    lab.elect()
    lab.create_topic("t", (1, 2)).settle()
    orders = lab.add_partitions("t", (2, 3), (3, 1)).settle()
    assert lab.state(tp(partition=2))[:4] == (1, 3, 0, ids(3, 1))
    assert set(leader_and_isr(orders, 3)) == {tp(partition=1), tp(partition=2)}
    lab.add_partitions("t", (1,)).settle()
    assert lab.state(tp(partition=3)).leader == 1


def test_partitions_added_to_a_topic_that_goes_are_taken_back() -> None:
    lab = Lab(1, 2)
    lab.elect()
    lab.create_topic("t", (1, 2)).settle()
    lab.delete_topic("t").settle()
    lab.add_partitions("t", (2, 1)).settle()
    assert list(lab.topic("t").partitions) == [0]


def test_a_topic_whose_znode_does_not_parse_is_left_alone() -> None:
    lab = Lab(1)
    lab.elect()
    lab.write(Create(znodes.topic_path("bad"), b"{"))
    lab.create_topic("good", (1,)).settle()
    assert lab.state(tp("good")).leader == 1
    assert "bad" not in lab.machine.state.topics


def test_a_topic_is_taken_when_its_znode_is_mended() -> None:
    lab = Lab(1)
    lab.elect()
    lab.write(Create(znodes.topic_path("bad"), b"{"))
    lab.settle()
    lab.write(SetData(znodes.topic_path("bad"), b'{"version":1,"partitions":{"0":[1]}}'))
    lab.settle()
    assert lab.state(tp("bad")).leader == 1


def test_a_name_that_is_none_for_a_directory_is_passed_over() -> None:
    lab = Lab(1)
    lab.elect()
    for name in ("x" * 250, "a b"):
        lab.create_topic(name, (1,))
    lab.create_topic("good", (1,)).settle()
    assert lab.machine.state.topics == {"good"}


def test_a_topic_that_is_removed_by_hand_is_forgotten() -> None:
    lab = Lab(1)
    lab.elect()
    lab.create_topic("t", (1,)).settle()
    for path in (
        znodes.state_path(tp()),
        znodes.partition_path(tp()),
        znodes.partitions_path("t"),
        znodes.topic_path("t"),
    ):
        lab.write(Delete(path))
    lab.settle()
    state = lab.machine.state
    assert state.topics == set()
    assert [state.leadership, state.replica_phases, state.assignments] == [{}, {}, {}]
    lab.create_topic("t", (1,)).settle()
    assert lab.state(tp()).leader == 1
