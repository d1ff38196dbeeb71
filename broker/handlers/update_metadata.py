"""UpdateMetadata, API 6, v0-6, control plane: the controller's news of brokers and partitions.

It is incremental: partitions that are not named stay as they are; a leader of -2 removes one.  An
older controller's request is refused with STALE_CONTROLLER_EPOCH, and one meant for an earlier life
of this broker with STALE_BROKER_EPOCH.  It is not answered if its controller has sent something
newer over another connection.  Replicas that are no longer this broker's are deleted
(`replica/strays.py`).  Answers that wait for leaders or for a topic's end are tried again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from highwater.base.event_loop import in_steps
from highwater.broker.context import Access, Api, Context, Plane, Reply, cluster
from highwater.broker.controller_requests import admission
from highwater.broker.membership.controller_fence import Overtaken
from highwater.broker.metadata.metadata_cache import FIRST_NEWS
from highwater.broker.metadata.metadata_update import MetadataUpdate, decode_update
from highwater.broker.replica.strays import strays
from highwater.broker.request.response import NoResponse, Response
from highwater.kafka.errors import ApiError
from highwater.kafka.security.acls import Operation
from highwater.kafka.wire.controller_messages import UpdateMetadataResponse

API = Api(
    key=6,
    name="UpdateMetadata",
    versions=(0, 6),
    plane=Plane.CONTROL,
    access=Access(whole=(cluster(Operation.CLUSTER_ACTION),)),
)


async def handle(ctx: Context, request: Any) -> Reply:
    admit = admission(ctx, request)
    try:
        admit()
        async with ctx.services.metadata_lock:
            update = await _apply(ctx, request, admit)
        if stops := await in_steps(strays(ctx.services.replicas, update)):
            await ctx.services.replicas.stop_replica(stops, admit)
    except Overtaken:
        return NoResponse(close=True)
    except ApiError as e:
        answer = UpdateMetadataResponse(error_code=int(e.code))
        return Response(answer, error_names=(e.code.name,))
    return Response(UpdateMetadataResponse(error_code=0))


async def _apply(ctx: Context, request: Any, admit: Callable[[], None]) -> MetadataUpdate:
    """Raises as `admit` does, and then has changed nothing."""
    services = ctx.services
    update = await in_steps(decode_update(request))
    admit()
    deleted = await in_steps(services.metadata.apply(update, ctx.now_ms))
    services.groups.topics_deleted(deleted)
    gone = services.metadata.take_gone_ids()
    services.share_states.topics_deleted(gone)
    services.groups.share_topics_deleted(gone)
    services.purgatories.check("topic", (FIRST_NEWS, *update.topics))
    services.purgatories.check("ElectLeader", update.partitions())
    return update
