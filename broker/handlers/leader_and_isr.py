"""LeaderAndIsr, API 4, v0-4, control plane: the controller names each partition's leader and epoch.

An older controller's request is refused with STALE_CONTROLLER_EPOCH, and one meant for an earlier
life of this broker with STALE_BROKER_EPOCH (KIP-380).  A partition whose leader epoch is not newer
stays as it is.  Topics' ids come in a tagged field, and ids that a log has and the request does not
name go back in one (`replica/log_topic_ids.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from highwater.base.event_loop import in_steps, in_turns
from highwater.broker.context import Access, Api, Context, Plane, Reply, cluster
from highwater.broker.controller_requests import admission
from highwater.broker.membership.controller_fence import Overtaken
from highwater.broker.replica import log_topic_ids
from highwater.broker.replica.partition_states import LeaderAndIsrUpdate, decode_leader_and_isr
from highwater.broker.request.response import NoResponse, Response
from highwater.broker.settings.config_changes import load_new_topics
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.controller_messages import (
    KnownTopicId,
    LeaderAndIsrPartitionError,
    LeaderAndIsrResponse,
)

API = Api(
    key=4,
    name="LeaderAndIsr",
    versions=(0, 4),
    plane=Plane.CONTROL,
    access=Access(whole=(cluster(Operation.CLUSTER_ACTION),)),
)
AT_ONCE = 500
"""Partitions between two pauses that let other tasks run."""


async def handle(ctx: Context, request: Any) -> Reply:
    admit = admission(ctx, request)
    try:
        admit()
        update = await in_steps(decode_leader_and_isr(request))
        hosted = ctx.services.replicas.partitions
        others = [tp.topic for tp, _ in update.states if tp not in hosted]
        await load_new_topics(ctx.services, update.new_topics, others)
        errors = await ctx.services.replicas.leader_and_isr(update, admit)
    except Overtaken:
        return NoResponse(close=True)
    except ApiError as e:
        answer = LeaderAndIsrResponse(error_code=int(e.code), partition_errors=[])
        return Response(answer, error_names=(e.code.name,))
    await _expect(ctx, update, errors)
    answered = [
        LeaderAndIsrPartitionError(
            topic_name=tp.topic, partition_index=tp.partition, error_code=int(code)
        )
        async for tp, code in in_turns(errors.items(), AT_ONCE)
    ]
    return Response(
        LeaderAndIsrResponse(
            error_code=0, partition_errors=answered, known_topic_ids=_unnamed_ids(ctx, update)
        ),
        error_names=tuple(c.name for c in errors.values() if c is not ErrorCode.NONE),
    )


def _unnamed_ids(ctx: Context, update: LeaderAndIsrUpdate) -> list[object]:
    ids = log_topic_ids.unnamed(ctx.services.replicas.logs, update)
    return [KnownTopicId(topic_name=name, topic_id=UUID(bytes=i)) for name, i in ids.items()]


async def _expect(
    ctx: Context, update: LeaderAndIsrUpdate, errors: Mapping[TopicPartition, ErrorCode]
) -> None:
    """Tells the metadata cache which leaders changed: clients that ask now wait for the news."""
    async for tp, state in in_turns(update.states, AT_ONCE):
        if errors[tp] is ErrorCode.NONE:
            ctx.services.metadata.expect(tp, state.leader_epoch, ctx.now_ms)
