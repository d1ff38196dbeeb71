"""LeaderAndIsr, API 4, v0-4, control plane: the controller says who leads which partition, and in
which epoch.

Refused with STALE_CONTROLLER_EPOCH from an older controller, and with STALE_BROKER_EPOCH where it
was meant for an earlier life of this broker (KIP-380); a partition whose leader epoch is not newer
is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from highwater.broker.context import Api, Context, Plane, Reply
from highwater.broker.controller_requests import Overtaken, admission
from highwater.broker.request.response import NoResponse, Response
from highwater.broker.settings.config_changes import load_new_topics
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.controller_messages import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrResponse,
)

API = Api(key=4, name="LeaderAndIsr", versions=(0, 4), plane=Plane.CONTROL)
AT_ONCE = 500
"""Partitions; between so many others get their turn."""


def _new_topics(request: Any) -> list[str]:
    """The topics that have new partitions: their configuration is read before they are hosted."""
    if request.topic_states:
        return [
            topic.topic_name
            for topic in request.topic_states
            if any(p.is_new for p in topic.partition_states)
        ]
    states = request.ungrouped_partition_states or ()
    return list(dict.fromkeys(p.topic_name for p in states if p.is_new))


async def handle(ctx: Context, request: Any) -> Reply:
    admit = admission(ctx, request)
    try:
        admit()
        await load_new_topics(ctx.services, _new_topics(request))
        errors = await ctx.services.replicas.leader_and_isr(request, admit)
    except Overtaken:
        return NoResponse(close=True)
    except ApiError as e:
        answer = LeaderAndIsrResponse(error_code=int(e.code), partition_errors=[])
        return Response(answer, error_names=(e.code.name,))
    await _expect(ctx, request, errors)
    answered = []
    for tp, code in errors.items():
        answered.append(
            LeaderAndIsrPartitionError(
                topic_name=tp.topic, partition_index=tp.partition, error_code=int(code)
            )
        )
        if len(answered) % AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
    return Response(
        LeaderAndIsrResponse(error_code=0, partition_errors=answered),
        error_names=tuple(c.name for c in errors.values() if c is not ErrorCode.NONE),
    )


async def _expect(ctx: Context, request: Any, errors: Mapping[TopicPartition, ErrorCode]) -> None:
    """Clients that ask for the metadata now are better told of what this has just changed."""
    looked_at = 0
    for topic in request.topic_states or ():
        for p in topic.partition_states:
            tp = TopicPartition(topic.topic_name, p.partition_index)
            if errors.get(tp) is ErrorCode.NONE:
                ctx.services.metadata.expect(tp, p.leader_epoch, ctx.now_ms)
            looked_at += 1
            if looked_at % AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
