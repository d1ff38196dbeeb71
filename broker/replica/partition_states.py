"""LeaderAndIsr's partition states, as partitions take them: one shape for all of its versions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from highwater.broker.replica.partition import LeaderAndIsr
from highwater.kafka.types import BrokerId, ControllerEpoch, LeaderEpoch, TopicPartition, ZkVersion

States = list[tuple[TopicPartition, LeaderAndIsr]]


def partition_states(request: Any) -> States:
    """Grouped by topic from v2 on, each naming its topic before."""
    return list(_states(request))


def _states(request: Any) -> Iterator[tuple[TopicPartition, LeaderAndIsr]]:
    grouped = [(t.topic_name, p) for t in request.topic_states or () for p in t.partition_states]
    plain = [(p.topic_name, p) for p in request.ungrouped_partition_states or ()]
    for topic, p in grouped or plain:
        yield (
            TopicPartition(topic, p.partition_index),
            LeaderAndIsr(
                BrokerId(p.leader),
                LeaderEpoch(p.leader_epoch),
                ControllerEpoch(p.controller_epoch),
                tuple(p.isr),
                ZkVersion(p.partition_epoch),
                tuple(p.replicas),
                p.is_new,
                tuple(p.adding_replicas or ()),
                tuple(p.removing_replicas or ()),
            ),
        )
