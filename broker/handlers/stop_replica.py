"""StopReplica, API 5, v0-3, control plane: stops a replica's fetching, and deletes it where asked
to.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.context import Api, Context, Plane, Reply
from highwater.broker.controller_requests import Overtaken, admission
from highwater.broker.request.response import NoResponse, Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.controller_messages import StopReplicaPartitionError, StopReplicaResponse

API = Api(key=5, name="StopReplica", versions=(0, 3), plane=Plane.CONTROL)

UNKNOWN_LEADER_EPOCH = -1


def _stops(request: Any, version: int) -> list[tuple[TopicPartition, int, bool]]:
    """v0 lists partitions, v1-2 group them by topic, v3 gives each a leader epoch and a flag of its
    own.
    """
    if version >= 3:
        return [
            (TopicPartition(t.topic_name, p.partition_index), p.leader_epoch, p.delete_partition)
            for t in request.topic_states
            for p in t.partition_states
        ]
    delete = request.delete_partitions
    if version >= 1:
        found = [TopicPartition(t.name, p) for t in request.topics for p in t.partition_indexes]
    else:
        found = [
            TopicPartition(p.topic_name, p.partition_index) for p in request.ungrouped_partitions
        ]
    return [(tp, UNKNOWN_LEADER_EPOCH, delete) for tp in found]


async def handle(ctx: Context, request: Any) -> Reply:
    admit = admission(ctx, request)
    try:
        admit()
        errors = await ctx.services.replicas.stop_replica(_stops(request, ctx.version), admit)
    except Overtaken:
        return NoResponse(close=True)
    except ApiError as e:
        answer = StopReplicaResponse(error_code=int(e.code), partition_errors=[])
        return Response(answer, error_names=(e.code.name,))
    return Response(
        StopReplicaResponse(
            error_code=0,
            partition_errors=[
                StopReplicaPartitionError(
                    topic_name=tp.topic, partition_index=tp.partition, error_code=int(code)
                )
                for tp, code in errors.items()
            ],
        ),
        error_names=tuple(c.name for c in errors.values() if c is not ErrorCode.NONE),
    )
