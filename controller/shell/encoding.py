"""The machine's requests as Kafka's messages, in the versions of inter.broker.protocol.version 2.6.

Requests that may name thousands of partitions are made in steps: whenever a generator yields, the
caller lets other tasks run.  Encoding is one step, as is decoding at the broker, so a request with
more than `AT_MOST` partitions is sent as several.  A topic's metadata is never divided: clients
must not see a topic with only some of its partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from struct import pack_into
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from highwater.controller.rules.effects import AT_ONCE, PAUSE, Pause, in_turns
from highwater.kafka.config.listeners import SECURITY_PROTOCOL_IDS
from highwater.kafka.wire import controller_messages as control

if TYPE_CHECKING:
    from highwater.controller.rules.effects import (
        LeaderAndIsrPartition,
        MetadataPartition,
        SendLeaderAndIsr,
        SendStopReplica,
        SendUpdateMetadata,
        StopReplicaPartition,
    )
    from highwater.kafka.types import BrokerEpoch, BrokerId, BrokerInfo, ControllerEpoch

Steps = Generator[Pause, None, bytes | bytearray]
_BROKER_EPOCH_POSITION = 8
"""Where UpdateMetadata has it from v5 on: after the controller's id and epoch."""
AT_MOST = 1000
"""The most partitions of one request."""

_ManyReplicas = TypeVar("_ManyReplicas", "SendLeaderAndIsr", "SendStopReplica")


def divided(effect: _ManyReplicas) -> Iterator[_ManyReplicas]:
    """The same content in requests of at most `AT_MOST` partitions."""
    for first in range(0, max(len(effect.partitions), 1), AT_MOST):
        yield replace(effect, partitions=effect.partitions[first : first + AT_MOST])


def divided_by_topics(effect: SendUpdateMetadata) -> Iterator[SendUpdateMetadata]:
    """The same content in requests of at most `AT_MOST` partitions, or of one topic."""
    if len(effect.partitions) <= AT_MOST:
        yield effect
        return
    topics: dict[str, list[MetadataPartition]] = {}
    for p in effect.partitions:
        topics.setdefault(p.tp.topic, []).append(p)
    some: list[MetadataPartition] = []
    for partitions in topics.values():
        if some and len(some) + len(partitions) > AT_MOST:
            yield replace(effect, partitions=tuple(some), all_topics=None)
            some = []
        some += partitions
    yield replace(effect, partitions=tuple(some))


def leader_and_isr(
    effect: SendLeaderAndIsr,
    controller_id: BrokerId,
    controller_epoch: ControllerEpoch,
    inter_broker_listener: str,
) -> Steps:
    topics = yield from _by_topic(_leader_and_isr_partition, effect.partitions)
    ids = _ids(effect.partitions)
    leaders = []
    for broker in effect.leaders:
        endpoint = broker.endpoint(inter_broker_listener)
        if endpoint is not None:
            leaders.append(
                control.LeaderAndIsrLiveLeader(
                    broker_id=broker.id, host_name=endpoint.host, port=endpoint.port
                )
            )
    request = control.LeaderAndIsrRequest(
        controller_id=controller_id,
        controller_epoch=controller_epoch,
        broker_epoch=effect.broker_epoch,
        topic_states=[
            control.LeaderAndIsrTopicState(
                topic_name=topic, partition_states=partitions, topic_id=ids[topic]
            )
            for topic, partitions in topics.items()
        ],
        live_leaders=leaders,
    )
    return bytes(request.encode(version=control.LEADER_AND_ISR_VERSION))


def _leader_and_isr_partition(p: LeaderAndIsrPartition) -> object:
    return control.LeaderAndIsrPartitionState(
        partition_index=p.tp.partition,
        controller_epoch=p.state.controller_epoch,
        leader=p.state.leader,
        leader_epoch=p.state.leader_epoch,
        isr=p.state.isr,
        partition_epoch=p.state.zk_version,
        replicas=p.assignment.replicas,
        adding_replicas=p.assignment.adding,
        removing_replicas=p.assignment.removing,
        is_new=p.is_new,
    )


def stop_replica(
    effect: SendStopReplica, controller_id: BrokerId, controller_epoch: ControllerEpoch
) -> Steps:
    topics = yield from _by_topic(_stop_replica_partition, effect.partitions)
    request = control.StopReplicaRequest(
        controller_id=controller_id,
        controller_epoch=controller_epoch,
        broker_epoch=effect.broker_epoch,
        topic_states=[
            control.StopReplicaTopicState(topic_name=topic, partition_states=partitions)
            for topic, partitions in topics.items()
        ],
    )
    return bytes(request.encode(version=control.STOP_REPLICA_VERSION))


def _stop_replica_partition(p: StopReplicaPartition) -> object:
    return control.StopReplicaPartitionState(
        partition_index=p.tp.partition, leader_epoch=p.leader_epoch, delete_partition=p.delete
    )


class UpdateMetadataBody:
    """One UpdateMetadata for many brokers: encoded once, when it is sent to the first of them."""

    def __init__(
        self,
        effect: SendUpdateMetadata,
        controller_id: BrokerId,
        controller_epoch: ControllerEpoch,
    ) -> None:
        self._effect = effect
        self._controller = (controller_id, controller_epoch)
        self._body: bytes | bytearray | None = None

    def for_broker(self, broker_epoch: BrokerEpoch) -> Steps:
        if self._body is None:
            self._body = yield from _update_metadata(self._effect, *self._controller)
        body = bytearray(self._body)
        pack_into(">q", body, _BROKER_EPOCH_POSITION, broker_epoch)
        return body


def _update_metadata(
    effect: SendUpdateMetadata, controller_id: BrokerId, controller_epoch: ControllerEpoch
) -> Steps:
    topics = yield from _by_topic(_metadata_partition, effect.partitions)
    ids = _ids(effect.partitions)
    request = control.UpdateMetadataRequest(
        controller_id=controller_id,
        controller_epoch=controller_epoch,
        broker_epoch=-1,
        topic_states=[
            control.UpdateMetadataTopicState(
                topic_name=topic, partition_states=states, topic_id=ids[topic]
            )
            for topic, states in topics.items()
        ],
        live_brokers=_live(effect.live),
        features_in_use=[
            control.FeatureInUse(name=name, level=level) for name, level in effect.features
        ],
        features_epoch=effect.features_epoch,
        all_topics=effect.all_topics,
    )
    return bytes(request.encode(version=control.UPDATE_METADATA_VERSION))


def _metadata_partition(p: MetadataPartition) -> object:
    return control.UpdateMetadataPartitionState(
        partition_index=p.tp.partition,
        controller_epoch=p.state.controller_epoch,
        leader=p.state.leader,
        leader_epoch=p.state.leader_epoch,
        isr=p.state.isr,
        zk_version=p.state.zk_version,
        replicas=p.replicas,
        offline_replicas=p.offline,
    )


def _by_topic(
    made_of: Callable[[Any], object], partitions: Sequence[Any]
) -> Generator[Pause, Any, dict[str, list[object]]]:
    topics: dict[str, list[object]] = {}
    made = yield from in_turns(made_of, partitions)
    for p, entry in zip(partitions, made, strict=True):
        topics.setdefault(p.tp.topic, []).append(entry)
    if len(partitions) > AT_ONCE:
        yield PAUSE  # encoding them is one step
    return topics


def _ids(
    partitions: Iterable[LeaderAndIsrPartition | MetadataPartition],
) -> dict[str, UUID | None]:
    """The ids by topic; None leaves the tagged field out."""
    return {p.tp.topic: UUID(bytes=p.topic_id) if any(p.topic_id) else None for p in partitions}


def _live(brokers: Iterable[BrokerInfo]) -> list[object]:
    return [
        control.UpdateMetadataBroker(
            id=broker.id,
            rack=broker.rack,
            endpoints=[
                control.UpdateMetadataEndpoint(
                    port=e.port,
                    host=e.host,
                    listener=e.listener,
                    security_protocol=SECURITY_PROTOCOL_IDS.get(e.security_protocol, 0),
                )
                for e in broker.endpoints
            ],
        )
        for broker in brokers
    ]
