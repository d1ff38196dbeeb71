"""StopReplica, API 5, v0-3, control plane: stops a replica's fetching, and deletes it on demand."""

from __future__ import annotations

from typing import Any

from highwater.broker.context import Access, Api, Context, Plane, Reply, cluster
from highwater.broker.controller_requests import admission
from highwater.broker.membership.controller_fence import Overtaken
from highwater.broker.replica.partition_states import decode_stop_replica
from highwater.broker.request.response import NoResponse, Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation
from highwater.kafka.wire.controller_messages import StopReplicaPartitionError, StopReplicaResponse

API = Api(
    key=5,
    name="StopReplica",
    versions=(0, 3),
    plane=Plane.CONTROL,
    access=Access(whole=(cluster(Operation.CLUSTER_ACTION),)),
)


async def handle(ctx: Context, request: Any) -> Reply:
    admit = admission(ctx, request)
    try:
        admit()
        stops = decode_stop_replica(request, ctx.version)
        errors = await ctx.services.replicas.stop_replica(stops, admit)
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
