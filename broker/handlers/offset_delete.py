"""OffsetDelete, API 47, v0: forgets committed offsets of a group.

Partitions of topics that the group reads are refused (GROUP_SUBSCRIBED_TO_TOPIC).
"""

from __future__ import annotations

from typing import Any

from highwater.broker.context import Access, Api, Context, Delayed, Reply, of
from highwater.broker.coordinator.pending import Waiting
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import OffsetDeleteResponse

API = Api(
    key=47,
    name="OffsetDelete",
    versions=(0, 0),
    access=Access(
        whole=(of(ResourceType.GROUP, Operation.DELETE, "group_id"),),
        each=of(ResourceType.TOPIC, Operation.READ, "name"),
        items=("topics",),
        answers="topics",
    ),
)

_Topic = OffsetDeleteResponse.OffsetDeleteResponseTopic
_Partition = _Topic.OffsetDeleteResponsePartition


def handle(ctx: Context, request: Any) -> Reply:
    services = ctx.services
    tps = [TopicPartition(t.name, p.partition_index) for t in request.topics for p in t.partitions]
    errors = {
        tp: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for tp in tps
        if services.metadata.partition(tp) is None
    }
    ticket = Waiting(lambda code: _response(errors, code))
    known = [tp for tp in tps if tp not in errors]
    deleted = services.groups.delete_offsets(request.group_id, known, ticket)
    errors.update(deleted)
    return Delayed(ticket)


def _response(errors: dict[TopicPartition, ErrorCode], code: ErrorCode) -> Response:
    """`code` is the result of the deletion."""
    by_topic: dict[str, list[Any]] = {}
    for tp, error in errors.items():
        by_topic.setdefault(tp.topic, []).append(
            _Partition(partition_index=tp.partition, error_code=int(error or code))
        )
    topics = [_Topic(name=name, partitions=parts) for name, parts in by_topic.items()]
    names = {error.name: None for error in (*errors.values(), code) if error}
    return Response(OffsetDeleteResponse(error_code=0, topics=topics), error_names=tuple(names))


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return Response(OffsetDeleteResponse(error_code=int(code), topics=[]), error_names=(code.name,))


def refused(ctx: Context, request: Any, code: ErrorCode) -> Response:
    tps = [TopicPartition(t.name, p.partition_index) for t in request.topics for p in t.partitions]
    return _response(dict.fromkeys(tps, code), code)
