"""The four APIs between controller and brokers: LeaderAndIsr, StopReplica, UpdateMetadata,
ControlledShutdown.

kafka-python does not include the APIs that only brokers use, but it makes classes from any schema
in Kafka's own form: ours are in `schemas/`.  A message class holds one class for each structure
within it, such as `UpdateMetadataRequest.UpdateMetadataBroker`; the structures needed for building
messages have names of their own here.

Versions stop at inter.broker.protocol.version 2.6, which is what the controller sends:
`LEADER_AND_ISR_VERSION` and so on.  Brokers answer all older versions as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from kafka.protocol.api_message import ApiMessage

from highwater.kafka.errors import ApiError, ErrorCode

T = TypeVar("T")

_SCHEMAS = "highwater.kafka.wire.schemas"

LEADER_AND_ISR_VERSION = 4
STOP_REPLICA_VERSION = 3
UPDATE_METADATA_VERSION = 6
CONTROLLED_SHUTDOWN_VERSION = 3


class LeaderAndIsrRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class LeaderAndIsrResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class StopReplicaRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class StopReplicaResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class UpdateMetadataRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class UpdateMetadataResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class ControlledShutdownRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class ControlledShutdownResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


LeaderAndIsrTopicState = LeaderAndIsrRequest.LeaderAndIsrTopicState
LeaderAndIsrPartitionState = LeaderAndIsrTopicState.LeaderAndIsrPartitionState
LeaderAndIsrLiveLeader = LeaderAndIsrRequest.LeaderAndIsrLiveLeader
LeaderAndIsrPartitionError = LeaderAndIsrResponse.LeaderAndIsrPartitionError
StopReplicaTopicState = StopReplicaRequest.StopReplicaTopicState
StopReplicaPartitionState = StopReplicaTopicState.StopReplicaPartitionState
StopReplicaPartitionError = StopReplicaResponse.StopReplicaPartitionError
UpdateMetadataTopicState = UpdateMetadataRequest.UpdateMetadataTopicState
UpdateMetadataPartitionState = UpdateMetadataTopicState.UpdateMetadataPartitionState
UpdateMetadataBroker = UpdateMetadataRequest.UpdateMetadataBroker
UpdateMetadataEndpoint = UpdateMetadataBroker.UpdateMetadataEndpoint
FeatureInUse = UpdateMetadataRequest.FeatureInUse
KnownTopicId = LeaderAndIsrResponse.KnownTopicId
RemainingPartition = ControlledShutdownResponse.RemainingPartition


def states_of(request: Any) -> Iterator[tuple[str, Any]]:
    """The partition states of a LeaderAndIsr, UpdateMetadata, or StopReplica from v3 on, each with
    its topic.  Later versions group states by topic; in earlier ones each state names its topic.

    Raises ApiError for a null in place of a name or a list of states.
    """
    if request.topic_states:
        for topic in request.topic_states:
            name = given(topic.topic_name)
            for state in given(topic.partition_states):
                yield name, state
        return
    for state in getattr(request, "ungrouped_partition_states", None) or ():
        yield given(state.topic_name), state


def topic_ids_of(request: Any) -> dict[str, bytes]:
    """The topic ids in a LeaderAndIsr or UpdateMetadata: a tagged field of our own, which the
    latest version alone can have."""
    ids = ((t.topic_name, getattr(t, "topic_id", None)) for t in request.topic_states or ())
    return {name: topic_id.bytes for name, topic_id in ids if topic_id is not None}


def given(value: T | None) -> T:
    """The value; raises ApiError where it is null, as no controller sends it.

    These requests are too large for the codec's own look, which is a single step of the loop.
    """
    if value is None:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    return value
