"""AlterShareGroupOffsets, API 91, v0: sets start offsets of a share group without members.

A group that does not exist is made.  The answer goes out when the share coordinators have the new
state.

Source: KafkaApis.handleAlterShareGroupOffsetsRequest, GroupCoordinatorService of Apache Kafka 4.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any
from uuid import UUID

from highwater.broker.context import Access, Api, Context, Reply, of
from highwater.broker.coordinator.group.share_offsets import Result
from highwater.broker.handlers.share_acknowledge import in_background
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.wire.messages import AlterShareGroupOffsetsResponse

API = Api(
    key=91,
    name="AlterShareGroupOffsets",
    versions=(0, 0),
    access=Access(
        whole=(of(ResourceType.GROUP, Operation.READ, "group_id"),),
        each=of(ResourceType.TOPIC, Operation.READ, "topic_name"),
        items=("topics",),
        answers="responses",
    ),
)

_Topic = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic
_Partition = _Topic.AlterShareGroupOffsetsResponsePartition


def handle(ctx: Context, request: Any) -> Reply:
    return in_background(ctx, partial(_carry_out, ctx, request))


async def _carry_out(ctx: Context, request: Any) -> Reply:
    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        starts = wanted.setdefault(topic.topic_name, {})
        starts.update((p.partition_index, p.start_offset) for p in topic.partitions)
    try:
        results = await ctx.services.groups.alter_share_offsets(request.group_id, wanted)
    except ApiError as e:
        answer = AlterShareGroupOffsetsResponse(
            error_code=int(e.code), error_message=e.detail or e.code.name, responses=[]
        )
        return Response(answer, error_names=(e.code.name,))
    return _response(ctx, results)


def _response(ctx: Context, results: Mapping[tuple[str, int], Result]) -> Response:
    topics: dict[str, list[Any]] = {}
    for (name, number), result in results.items():
        part = _Partition(
            partition_index=number, error_code=int(result.error), error_message=result.message
        )
        topics.setdefault(name, []).append(part)
    topic_id = ctx.services.metadata.topic_id
    responses = [
        _Topic(topic_name=name, topic_id=UUID(bytes=topic_id(name)), partitions=parts)
        for name, parts in topics.items()
    ]
    names = dict.fromkeys(result.error.name for result in results.values() if result.error)
    answer = AlterShareGroupOffsetsResponse(error_code=0, responses=responses)
    return Response(answer, error_names=tuple(names))


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    answer = AlterShareGroupOffsetsResponse(error_code=int(code), responses=[])
    return Response(answer, error_names=(code.name,))


def refused(ctx: Context, request: Any, code: ErrorCode) -> Response:
    result = Result(code, code.name)
    return _response(
        ctx,
        {(t.topic_name, p.partition_index): result for t in request.topics for p in t.partitions},
    )
