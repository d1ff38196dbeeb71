"""OffsetFetch, API 9, v0-9: how far a group has come.

v0 and v1 have the error at each partition, v2 at the top (and null for all partitions), v7 asks
for offsets that no open commit may change, v8 for several groups, each with its error.  v0 meant
offsets in ZooKeeper; here it means the same as v1.
"""

from __future__ import annotations

from typing import Any

from broker.context import Api, Context, Reply
from broker.coordinator.group.records import CommittedOffset
from broker.response import Response
from highwater.common.errors import ApiError, ErrorCode
from highwater.common.types import TopicPartition
from highwater.common.wire.messages import OffsetFetchResponse

API = Api(key=9, name="OffsetFetch", versions=(0, 9))

FIRST_WITH_TOP_ERROR = 2
FIRST_WITH_GROUPS = 8
_Topic = OffsetFetchResponse.OffsetFetchResponseTopic
_Partition = _Topic.OffsetFetchResponsePartition
_Group = OffsetFetchResponse.OffsetFetchResponseGroup
_GroupTopic = _Group.OffsetFetchResponseTopics
_GroupPartition = _GroupTopic.OffsetFetchResponsePartitions
Found = dict[TopicPartition, "CommittedOffset | ErrorCode | None"]


def handle(ctx: Context, request: Any) -> Reply:
    stable = bool(request.require_stable)
    if ctx.version >= FIRST_WITH_GROUPS:
        groups = [_group(ctx, group, stable) for group in request.groups]
        names = tuple(ErrorCode(g.error_code).name for g in groups if g.error_code)
        return Response(OffsetFetchResponse(groups=groups), error_names=names)
    everything = request.topics is None
    found = ctx.services.groups.fetch(
        request.group_id, None if everything else _asked(request.topics), stable
    )
    topics = _topics(found, _Topic, _Partition)
    return Response(OffsetFetchResponse(topics=topics, error_code=0))


def _group(ctx: Context, group: Any, stable: bool) -> Any:
    asked = None if group.topics is None else _asked(group.topics)
    try:
        found = ctx.services.groups.fetch(group.group_id, asked, stable)
    except ApiError as e:
        return _Group(group_id=group.group_id, topics=[], error_code=int(e.code))
    topics = _topics(found, _GroupTopic, _GroupPartition)
    return _Group(group_id=group.group_id, topics=topics, error_code=0)


def _asked(topics: Any) -> list[TopicPartition]:
    return [TopicPartition(t.name, p) for t in topics for p in t.partition_indexes]


def _topics(found: Found, topic_class: Any, partition_class: Any) -> list[Any]:
    by_topic: dict[str, list[Any]] = {}
    for tp, what in found.items():
        code = what if isinstance(what, ErrorCode) else ErrorCode.NONE
        committed = what if isinstance(what, CommittedOffset) else CommittedOffset(-1)
        by_topic.setdefault(tp.topic, []).append(
            partition_class(
                partition_index=tp.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
                error_code=int(code),
            )
        )
    return [topic_class(name=name, partitions=parts) for name, parts in by_topic.items()]


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    if ctx.version >= FIRST_WITH_GROUPS:
        groups = [
            _Group(group_id=group.group_id, topics=[], error_code=int(code))
            for group in request.groups
        ]
        return Response(OffsetFetchResponse(groups=groups), error_names=(code.name,))
    topics = []
    if ctx.version < FIRST_WITH_TOP_ERROR:
        topics = [
            _Topic(name=t.name, partitions=[_partition(p, code) for p in t.partition_indexes])
            for t in request.topics
        ]
    answer = OffsetFetchResponse(topics=topics, error_code=int(code))
    return Response(answer, error_names=(code.name,))


def _partition(index: int, code: ErrorCode) -> Any:
    return _Partition(partition_index=index, committed_offset=-1, metadata="", error_code=int(code))
