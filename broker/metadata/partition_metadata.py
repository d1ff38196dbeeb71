"""One partition as UpdateMetadata describes it, for the metadata cache and its answers."""

from __future__ import annotations

from typing import NamedTuple

from highwater.kafka.types import BrokerId, ControllerEpoch, LeaderEpoch, ZkVersion


class PartitionMetadata(NamedTuple):
    """One partition as the controller last described it."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    replicas: tuple[BrokerId, ...]
    offline: tuple[BrokerId, ...] = ()
    zk_version: ZkVersion = ZkVersion(0)
    controller_epoch: ControllerEpoch = ControllerEpoch(0)
