"""DescribeTopicPartitions, API 75, v0: topics with their partitions, a part at a time (KIP-966).

Topics come in the order of their names, and the answer ends after as many partitions as the client
or this broker allows; its cursor says where the next request begins.  No topics named means all of
them; where some are, the cursor's is among them.  There are no eligible leader replicas here.

Source: kafka.server.handlers.DescribeTopicPartitionsRequestHandler.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from highwater.broker.context import Access, Api, Context, Reply
from highwater.broker.metadata.metadata_encoding import NOT_ASKED
from highwater.broker.metadata.partition_metadata import PartitionMetadata
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.topic_names import INTERNAL_TOPICS, is_valid_name
from highwater.kafka.wire.messages import DescribeTopicPartitionsResponse

API = Api(
    key=75,
    name="DescribeTopicPartitions",
    versions=(0, 0),
    access=Access(inside="Describe of each topic; of all topics, others are hidden"),
)

MOST = 2000
"""Partitions of one answer: the default of Kafka's max.request.partition.size.limit."""
_Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_Partition = _Topic.DescribeTopicPartitionsResponsePartition
_Cursor = DescribeTopicPartitionsResponse.Cursor


def handle(ctx: Context, request: Any) -> Reply:
    cache, cursor = ctx.services.metadata, request.cursor
    if cursor is not None and cursor.partition_index < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the cursor's partition is below 0")
    names = dict.fromkeys([topic.name for topic in request.topics] or cache.topics())
    wanted = sorted(n for n in names if cursor is None or n >= cursor.topic_name)
    if cursor is not None and request.topics and cursor.topic_name not in names:
        detail = f"the cursor's topic {cursor.topic_name!r} is not one of those asked for"
        raise ApiError(ErrorCode.INVALID_REQUEST, detail)
    allowed = [name for name in wanted if ctx.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)]
    left = max(min(MOST, request.response_partition_limit), 1)
    topics, next_cursor = [], None
    for name in allowed:
        first = cursor.partition_index if cursor and name == cursor.topic_name else 0
        partitions = sorted(p for p in cache.partitions_of(name) if p >= first)
        if left or not partitions:
            topics.append(_described(ctx, name, partitions[:left]))
        if len(partitions) > left:
            next_cursor = _Cursor(topic_name=name, partition_index=partitions[left])
            break
        left -= len(partitions)
    if request.topics:
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topics += [_topic(name, denied) for name in wanted if name not in allowed]
        topics.sort(key=lambda topic: str(topic.name))
    answer = DescribeTopicPartitionsResponse(topics=topics, next_cursor=next_cursor)
    found = [each.error_code for t in topics for each in (t, *t.partitions)]
    return Response(answer, error_names=tuple(ErrorCode(c).name for c in found if c))


def _described(ctx: Context, name: str, partitions: Iterable[int]) -> Any:
    cache = ctx.services.metadata
    operations = sum(1 << o for o in ctx.operations(ResourceType.TOPIC, name))
    if not cache.has_topic(name):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not is_valid_name(name):
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
        return _topic(name, code, operations)
    known = cache.partitions_of(name)
    return _Topic(
        error_code=0,
        name=name,
        topic_id=UUID(bytes=cache.topic_id(name)),
        is_internal=name in INTERNAL_TOPICS,
        partitions=[_partition(ctx, p, known[p]) for p in partitions],
        topic_authorized_operations=operations,
    )


def _partition(ctx: Context, index: int, state: PartitionMetadata) -> Any:
    cache = ctx.services.metadata
    code, leader = ErrorCode.NONE, int(state.leader)
    if cache.endpoint_of(leader, ctx.listener) is None:
        alive = cache.is_alive(leader)
        code = ErrorCode.LISTENER_NOT_FOUND if alive else ErrorCode.LEADER_NOT_AVAILABLE
        leader = -1
    return _Partition(
        error_code=int(code),
        partition_index=index,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=state.replicas,
        isr_nodes=state.isr,
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=state.offline,
    )


def _topic(name: str, code: ErrorCode, operations: int = NOT_ASKED) -> Any:
    return _Topic(
        error_code=int(code), name=name, partitions=[], topic_authorized_operations=operations
    )


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    topics = [_topic(topic.name, code) for topic in request.topics]
    answer = DescribeTopicPartitionsResponse(topics=topics, next_cursor=None)
    return Response(answer, error_names=(code.name,))
