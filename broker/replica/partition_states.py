"""LeaderAndIsr and StopReplica as the replica manager takes them: one form for all versions."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from highwater.broker.replica.partition import LeaderAndIsr
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.controller_messages import given, states_of, topic_ids_of

STEP = 500
"""Partitions that are decoded before other tasks run: 1 to 2 ms."""
UNKNOWN_LEADER_EPOCH = -1
_GIVES_EACH_ITS_OWN = 3
_GROUPS_BY_TOPIC = 1


@dataclass(frozen=True, slots=True)
class LeaderAndIsrUpdate:
    """One LeaderAndIsr request: the partitions in its order, and the addresses of live leaders."""

    states: Sequence[tuple[TopicPartition, LeaderAndIsr]]
    leaders: Mapping[int, tuple[str, int]]
    """(host, port) by broker id."""
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    """The topic ids that the controller knows."""

    @property
    def new_topics(self) -> list[str]:
        """The topics that have new partitions."""
        return list(dict.fromkeys(tp.topic for tp, state in self.states if state.is_new))


@dataclass(frozen=True, slots=True)
class StopReplica:
    """One partition of a StopReplica request."""

    tp: TopicPartition
    leader_epoch: int
    """-2: the topic is being deleted; -1: the sender does not know the epoch."""
    delete: bool


def decode_leader_and_isr(request: Any) -> Generator[None, None, LeaderAndIsrUpdate]:
    """Decodes any version; pauses after each STEP partitions, and returns the whole."""
    states: list[tuple[TopicPartition, LeaderAndIsr]] = []
    for topic, p in states_of(request):
        state = LeaderAndIsr(
            p.leader,
            p.leader_epoch,
            p.controller_epoch,
            tuple(given(p.isr)),
            p.partition_epoch,
            tuple(given(p.replicas)),
            p.is_new,
            tuple(p.adding_replicas or ()),
            tuple(p.removing_replicas or ()),
        )
        states.append((TopicPartition(topic, p.partition_index), state))
        if len(states) % STEP == 0:
            yield
    leaders = {b.broker_id: (given(b.host_name), b.port) for b in given(request.live_leaders)}
    return LeaderAndIsrUpdate(states, leaders, topic_ids_of(request))


def decode_stop_replica(request: Any, version: int) -> list[StopReplica]:
    """v0 lists partitions, v1-2 group them by topic, v3 adds a leader epoch and a flag to each."""
    if version >= _GIVES_EACH_ITS_OWN:
        return [
            StopReplica(
                TopicPartition(topic, p.partition_index), p.leader_epoch, p.delete_partition
            )
            for topic, p in states_of(request)
        ]
    if version >= _GROUPS_BY_TOPIC:
        found = [
            TopicPartition(given(t.name), p)
            for t in given(request.topics)
            for p in given(t.partition_indexes)
        ]
    else:
        found = [
            TopicPartition(given(p.topic_name), p.partition_index)
            for p in given(request.ungrouped_partitions)
        ]
    return [StopReplica(tp, UNKNOWN_LEADER_EPOCH, request.delete_partitions) for tp in found]
