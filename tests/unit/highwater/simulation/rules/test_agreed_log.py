"""What excuses a high watermark of a compacted topic that falls."""

from __future__ import annotations

from highwater.kafka.types import BrokerId, ControllerEpoch, LeaderEpoch, TopicPartition, ZkVersion
from highwater.kafka.znodes import PartitionState
from highwater.simulation.rules.agreed_log import PartitionTruth, Replica
from highwater.simulation.rules.mirror import ReplicaMirror
from highwater.world.sim.disk import SimDisk
from highwater.world.sim.kernel import Kernel

TP = TopicPartition("t", 0)


def test_only_outside_of_the_isr_may_a_replica_be_cut_where_it_has_no_batch() -> None:
    mirror = ReplicaMirror(SimDisk(Kernel(1), "broker-1"), "/data/t-0")
    replica = Replica(1, mirror)
    state = PartitionState(
        ControllerEpoch(1), BrokerId(2), LeaderEpoch(0), (BrokerId(2),), ZkVersion(0)
    )
    truth = PartitionTruth(TP, compacted=True, state=state)
    assert truth.cut_a_hole(replica)
    replica.epoch_cut = 0
    assert not truth.cut_a_hole(replica), "a batch of epoch 0 went with it"
    replica.epoch_cut = -1
    truth.state = state._replace(isr=(BrokerId(2), BrokerId(1)))
    assert not truth.cut_a_hole(replica)
    assert not PartitionTruth(TP, state=state).cut_a_hole(replica)
