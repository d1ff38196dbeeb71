"""ControlledShutdown, API 7, v0-3, control plane: the controller moves a stopping broker's leaders.

The answer names the partitions that the broker still leads; the broker asks again until
there are none.  Only the active controller can answer; v0 and v1 carry no broker epoch.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.context import Access, Api, Context, Plane, Reply, cluster
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError
from highwater.kafka.security.acls import Operation
from highwater.kafka.wire.controller_messages import ControlledShutdownResponse, RemainingPartition

API = Api(
    key=7,
    name="ControlledShutdown",
    versions=(0, 3),
    plane=Plane.CONTROL,
    access=Access(whole=(cluster(Operation.CLUSTER_ACTION),)),
)


async def handle(ctx: Context, request: Any) -> Reply:
    try:
        remaining = await ctx.services.controller.controlled_shutdown(
            request.broker_id, request.broker_epoch
        )
    except ApiError as e:
        answer = ControlledShutdownResponse(error_code=int(e.code), remaining_partitions=[])
        return Response(answer, error_names=(e.code.name,))
    partitions = [
        RemainingPartition(topic_name=tp.topic, partition_index=tp.partition)
        for tp in sorted(remaining)
    ]
    return Response(ControlledShutdownResponse(error_code=0, remaining_partitions=partitions))
