"""UpdateMetadata as the metadata cache takes it: one form for all versions."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from highwater.broker.metadata.partition_metadata import PartitionMetadata
from highwater.kafka.config.listeners import SECURITY_PROTOCOLS
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.features import NO_EPOCH, Levels
from highwater.kafka.topic_names import check_name
from highwater.kafka.types import (
    LEADER_DURING_DELETE,
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    BrokerInfo,
    Endpoint,
    TopicPartition,
)
from highwater.kafka.wire.controller_messages import given, states_of, topic_ids_of

STEP = 200
"""The number of partitions decoded, or applied, before other tasks run: less than 1 ms."""


@dataclass(frozen=True, slots=True)
class MetadataUpdate:
    """The content of one UpdateMetadata; partitions that it does not name stay as they are."""

    controller_id: BrokerId
    """NO_BROKER if there is none."""
    brokers: Mapping[BrokerId, BrokerInfo]
    """All live brokers; their `epoch` is unknown here."""
    topics: Mapping[str, Mapping[int, PartitionMetadata | None]]
    """By topic and partition; None for a partition that is being deleted."""
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    """The ids of the topics that have one."""
    features: Levels = ()
    """The features in use."""
    features_epoch: int = NO_EPOCH
    all_topics: frozenset[str] | None = None
    """The names of all topics, if the update has them."""

    def partitions(self) -> Iterator[TopicPartition]:
        for topic, states in self.topics.items():
            for index in states:
                yield TopicPartition(topic, index)


def decode_update(request: Any) -> Generator[None, None, MetadataUpdate]:
    """Decodes any version; pauses after each STEP partitions, and returns the whole.

    Raises ApiError for a security protocol that does not exist, a broker id below 0, a name that no
    topic can have, or a null.
    """
    topics: dict[str, dict[int, PartitionMetadata | None]] = {}
    for decoded, (topic, state) in enumerate(states_of(request), 1):
        if topic not in topics:
            check_name(given(topic))  # it becomes part of a znode's path
            topics[topic] = {}
        topics[topic][state.partition_index] = _partition(state)
        if decoded % STEP == 0:
            yield
    brokers = {BrokerId(b.id): _broker(b) for b in given(request.live_brokers)}
    controller_id = BrokerId(max(request.controller_id, NO_BROKER))
    features = tuple((f.name, f.level) for f in getattr(request, "features_in_use", None) or ())
    features_epoch = getattr(request, "features_epoch", NO_EPOCH)
    named = getattr(request, "all_topics", None)
    all_topics = None if named is None else frozenset(named)
    return MetadataUpdate(
        controller_id, brokers, topics, topic_ids_of(request), features, features_epoch, all_topics
    )


def _partition(state: Any) -> PartitionMetadata | None:
    if state.leader == LEADER_DURING_DELETE:
        return None
    return PartitionMetadata(
        state.leader,
        state.leader_epoch,
        tuple(given(state.isr)),
        tuple(given(state.replicas)),
        tuple(state.offline_replicas or ()),
        state.zk_version,
        state.controller_epoch,
    )


def _broker(broker: Any) -> BrokerInfo:
    if broker.id < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    if broker.endpoints:
        endpoints = []
        for e in broker.endpoints:
            if not 0 <= e.security_protocol < len(SECURITY_PROTOCOLS):
                raise ApiError(ErrorCode.INVALID_REQUEST)
            protocol = SECURITY_PROTOCOLS[e.security_protocol]
            # before v3 a listener has no name of its own, but its protocol's
            endpoints.append(Endpoint(e.listener or protocol, protocol, given(e.host), e.port))
    else:
        endpoints = [Endpoint("PLAINTEXT", "PLAINTEXT", given(broker.v0_host), broker.v0_port)]
    return BrokerInfo(BrokerId(broker.id), BrokerEpoch(-1), tuple(endpoints), broker.rack)
