"""DeleteShareGroupOffsets, API 92, v0: deletes the state of topics in a share group without
members.

The answer goes out when the share coordinators have deleted it.

Source: KafkaApis.handleDeleteShareGroupOffsetsRequest, GroupCoordinatorService of Apache Kafka 4.2.
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
from highwater.kafka.wire.messages import DeleteShareGroupOffsetsResponse

API = Api(
    key=92,
    name="DeleteShareGroupOffsets",
    versions=(0, 0),
    access=Access(
        whole=(of(ResourceType.GROUP, Operation.DELETE, "group_id"),),
        each=of(ResourceType.TOPIC, Operation.READ, "topic_name"),
        items=("topics",),
        answers="responses",
    ),
)

_Topic = DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic


def handle(ctx: Context, request: Any) -> Reply:
    return in_background(ctx, partial(_carry_out, ctx, request))


async def _carry_out(ctx: Context, request: Any) -> Reply:
    topics = dict.fromkeys(topic.topic_name for topic in request.topics)
    try:
        results = await ctx.services.groups.delete_share_offsets(request.group_id, topics)
    except ApiError as e:
        answer = DeleteShareGroupOffsetsResponse(
            error_code=int(e.code), error_message=e.detail or e.code.name, responses=[]
        )
        return Response(answer, error_names=(e.code.name,))
    return _response(results)


def _response(results: Mapping[str, Result]) -> Response:
    responses = [
        _Topic(
            topic_name=name,
            topic_id=UUID(bytes=result.topic_id),
            error_code=int(result.error),
            error_message=result.message,
        )
        for name, result in results.items()
    ]
    names = dict.fromkeys(result.error.name for result in results.values() if result.error)
    answer = DeleteShareGroupOffsetsResponse(error_code=0, responses=responses)
    return Response(answer, error_names=tuple(names))


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    answer = DeleteShareGroupOffsetsResponse(error_code=int(code), responses=[])
    return Response(answer, error_names=(code.name,))


def refused(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return _response({topic.topic_name: Result(code, code.name) for topic in request.topics})
