"""DescribeShareGroupOffsets, API 90, v0-1: where share groups are in partitions.

Start offset and leader epoch come from the share coordinators; a partition without state has -1.
v1 has the lag: how many records at or above the start offset are not done, below the HW.  Without
topics, all are shown that the group has state of and the requester may describe.  A group that does
not exist has none.

Source: KafkaApis.handleDescribeShareGroupOffsetsRequest, GroupCoordinatorService of Apache Kafka
4.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any
from uuid import UUID

from highwater.broker.admin.latest_offsets import latest_offsets
from highwater.broker.context import Access, Api, Context, Reply, of
from highwater.broker.handlers.share_acknowledge import in_background
from highwater.broker.request.response import Response
from highwater.broker.share.persister import NO_COUNT, NO_OFFSET, StateAnswer
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.topic_ids import NO_ID
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import DescribeShareGroupOffsetsResponse

API = Api(
    key=90,
    name="DescribeShareGroupOffsets",
    versions=(0, 1),
    access=Access(
        each=of(ResourceType.GROUP, Operation.DESCRIBE, "group_id"),
        items=("groups",),
        answers="groups",
        inside="Describe of each topic; others are refused, or hidden where none is named",
    ),
)

NO_LAG = -1
_Group = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
_Topic = _Group.DescribeShareGroupOffsetsResponseTopic
_Partition = _Topic.DescribeShareGroupOffsetsResponsePartition


def handle(ctx: Context, request: Any) -> Reply:
    return in_background(ctx, partial(_carry_out, ctx, request))


async def _carry_out(ctx: Context, request: Any) -> Reply:
    groups = []
    for asked in request.groups:
        try:
            topics = await _topics(ctx, asked)
        except ApiError as e:
            groups.append(_failed(asked.group_id, e.code, e.detail))
        else:
            groups.append(_Group(group_id=asked.group_id, topics=topics))
    names = [ErrorCode(g.error_code).name for g in groups if g.error_code]
    names += (
        ErrorCode(p.error_code).name
        for g in groups
        for t in g.topics
        for p in t.partitions
        if p.error_code
    )
    answer = DescribeShareGroupOffsetsResponse(groups=groups)
    return Response(answer, error_names=tuple(dict.fromkeys(names)))


async def _topics(ctx: Context, asked: Any) -> list[Any]:
    """Raises ApiError."""
    groups, metadata = ctx.services.groups, ctx.services.metadata
    groups.check_share_groups()
    parts: dict[bytes, frozenset[int]] = {}
    others: list[Any] = []
    if asked.topics is None:
        for topic_id, numbers in groups.initialized_share_partitions(asked.group_id).items():
            name = metadata.topic_of(topic_id)
            if name is not None and _may_describe(ctx, name):
                parts[topic_id] = numbers
    for topic in asked.topics or ():
        topic_id = metadata.topic_id(topic.topic_name)
        if not _may_describe(ctx, topic.topic_name):
            others.append(_refused(topic))
        elif topic_id == NO_ID:
            others.append(_unknown(topic))
        else:
            parts[topic_id] = parts.get(topic_id, frozenset()) | frozenset(topic.partitions)
    found = await groups.summaries(asked.group_id, parts)
    with_lag = {
        place: TopicPartition(metadata.topic_of(place[0]) or "", place[1])
        for place, answer in found.items()
        if not answer.error
        and answer.start_offset != NO_OFFSET
        and answer.delivery_complete_count != NO_COUNT
    }
    latest = await latest_offsets(ctx.services, with_lag.values())
    return [
        *(
            _Topic(
                topic_name=metadata.topic_of(topic_id) or "",
                topic_id=UUID(bytes=topic_id),
                partitions=[
                    _partition(
                        number, found[topic_id, number], with_lag.get((topic_id, number)), latest
                    )
                    for number in sorted(numbers)
                ],
            )
            for topic_id, numbers in parts.items()
        ),
        *others,
    ]


def _may_describe(ctx: Context, topic: str) -> bool:
    return ctx.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic)


def _partition(
    number: int,
    answer: StateAnswer,
    tp: TopicPartition | None,
    latest: Mapping[TopicPartition, int | ErrorCode],
) -> Any:
    end = None if tp is None else latest[tp]
    if isinstance(end, ErrorCode):
        return _Partition(partition_index=number, error_code=int(end), error_message=end.name)
    lag = NO_LAG
    if end is not None:
        lag = end - answer.start_offset - answer.delivery_complete_count
    return _Partition(
        partition_index=number,
        start_offset=NO_OFFSET if answer.error else answer.start_offset,
        leader_epoch=0 if answer.error else answer.leader_epoch,
        lag=lag,
    )


def _refused(topic: Any) -> Any:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    parts = [
        _Partition(partition_index=number, error_code=int(code), error_message=code.name)
        for number in topic.partitions
    ]
    return _Topic(topic_name=topic.topic_name, partitions=parts)


def _unknown(topic: Any) -> Any:
    parts = [_Partition(partition_index=n, start_offset=NO_OFFSET) for n in topic.partitions]
    return _Topic(topic_name=topic.topic_name, partitions=parts)


def _failed(group_id: str, code: ErrorCode, message: str | None = None) -> Any:
    return _Group(group_id=group_id, topics=[], error_code=int(code), error_message=message)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    groups = [_failed(group.group_id, code) for group in request.groups]
    answer = DescribeShareGroupOffsetsResponse(groups=groups)
    return Response(answer, error_names=(code.name,))
