"""Who tells whether all replicas are in the ISR: a leader by its own ISR, else the controller."""

from __future__ import annotations

from pathlib import Path

import pytest

from highwater.broker.metadata.partition_metadata import PartitionMetadata
from highwater.broker.replica.all_in_sync import all_in_sync
from highwater.broker.replica.partition import LeaderAndIsr
from highwater.kafka.types import BrokerId, ControllerEpoch, LeaderEpoch, ZkVersion
from tests.unit.broker.replica.test_dir_moves import Rig

HERE, OTHER = BrokerId(1), BrokerId(2)
BOTH = (HERE, OTHER)


def told(isr: tuple[BrokerId, ...]) -> PartitionMetadata:
    return PartitionMetadata(HERE, LeaderEpoch(0), isr, BOTH)


@pytest.mark.parametrize(
    ("leads", "isr", "heard", "expected"),
    [
        (True, BOTH, None, True),
        (True, (HERE,), told(BOTH), False),  # the controller has yet to hear of it
        (True, BOTH, told((HERE,)), True),
        (False, BOTH, told(BOTH), True),
        (False, BOTH, told((HERE,)), False),  # a follower was told of the ISR when its epoch began
        (False, BOTH, None, False),
    ],
)
async def test_who_is_believed(
    tmp_path: Path,
    leads: bool,
    isr: tuple[BrokerId, ...],
    heard: PartitionMetadata | None,
    expected: bool,
) -> None:
    rig = Rig(tmp_path)
    await rig.logs.load("c", HERE)
    partition = rig.host()
    leader = HERE if leads else OTHER
    state = LeaderAndIsr(leader, LeaderEpoch(1), ControllerEpoch(1), isr, ZkVersion(1), BOTH)
    if leads:
        partition.make_leader(state, 0)
    else:
        partition.make_follower(state)
    assert all_in_sync(partition, heard) is expected
    rig.kill()


def test_without_a_replica_the_controller_alone_is_believed() -> None:
    assert all_in_sync(None, told(BOTH))
    assert not all_in_sync(None, told((HERE,)))
    assert not all_in_sync(None, None)


async def test_who_joins_counts_only_once_it_has_joined(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    await rig.logs.load("c", HERE)
    partition = rig.host()
    state = LeaderAndIsr(HERE, LeaderEpoch(1), ControllerEpoch(1), (HERE,), ZkVersion(1), BOTH)
    partition.make_leader(state, 0)
    partition.isr.propose(BOTH)
    assert not all_in_sync(partition, None)
    partition.isr.settle(ZkVersion(2))
    assert all_in_sync(partition, None)
    rig.kill()
