"""UpdateMetadata, API 6, v0-6, control plane: the controller tells this broker of brokers and
partitions.

Incremental: partitions that are not named stay as they are; a leader of -2 removes one.  Refused
with STALE_CONTROLLER_EPOCH from an older controller, and with STALE_BROKER_EPOCH where it was meant
for an earlier life of this broker; not answered where its controller has sent something newer over
another connection.  What waits for leaders or for a topic's end looks again.
"""

from __future__ import annotations

from typing import Any

import trio

from highwater.broker.context import Api, Context, Plane, Reply
from highwater.broker.controller_requests import Overtaken, admission
from highwater.broker.metadata.metadata_cache import FIRST_NEWS
from highwater.broker.request.response import NoResponse, Response
from highwater.kafka.errors import ApiError
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.controller_messages import UpdateMetadataResponse

API = Api(key=6, name="UpdateMetadata", versions=(0, 6), plane=Plane.CONTROL)


async def handle(ctx: Context, request: Any) -> Reply:
    async with ctx.services.metadata_lock:
        return await _apply(ctx, request)


async def _apply(ctx: Context, request: Any) -> Reply:
    services = ctx.services
    try:
        admission(ctx, request)()
    except Overtaken:
        return NoResponse(close=True)
    except ApiError as e:
        answer = UpdateMetadataResponse(error_code=int(e.code))
        return Response(answer, error_names=(e.code.name,))
    deleted: dict[TopicPartition, None] = {}
    for _ in services.metadata.steps(request, deleted, ctx.now_ms):
        await trio.lowlevel.checkpoint()
    services.groups.topics_deleted(list(deleted))
    partitions = _partitions(request)
    services.purgatories.check(
        "topic", dict.fromkeys((FIRST_NEWS, *(tp.topic for tp in partitions)))
    )
    services.purgatories.check("ElectLeader", partitions)
    return Response(UpdateMetadataResponse(error_code=0))


def _partitions(request: Any) -> list[TopicPartition]:
    if request.topic_states:
        return [
            TopicPartition(topic.topic_name, p.partition_index)
            for topic in request.topic_states
            for p in topic.partition_states
        ]
    return [
        TopicPartition(p.topic_name, p.partition_index)
        for p in request.ungrouped_partition_states or ()
    ]
