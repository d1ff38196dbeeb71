"""OffsetFetch, API 9, v0-10: the committed offsets of a group.

v0 and v1 have the error at each partition, v2 at the top (and null for all partitions).  v7 can ask
for stable offsets, v8 for several groups, each with its error.  v9 names the member of the consumer
protocol that asks, which must have the epoch that it names.  v10 names topics by their ids, and
leaves out those of a group that have none.  v0 meant offsets in ZooKeeper; here
it means the same as v1.

A stable offset is one that will be changed by no open transaction, and by no commit whose client
still waits.  If a transaction is open the client is told, and asks again (KIP-447).  Commits are
waited for, but only those on their way when the request came.  Kafka's older coordinator tells the
client of these as well; the client then asks again and again if a member commits all the time.

A commit whose client was told REQUEST_TIMED_OUT is no longer waited for, though it counts once the
HW has passed it: its client knows no outcome, and commits again.  Until then the answer is the
offset before it, stable or not.  Neither of Kafka's coordinators waits for it: the newer one
(OffsetMetadataManager) waits for open transactions alone, and the older one (GroupMetadata) forgets
the commit at the time-out, and shows it when another broker has loaded the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar
from uuid import UUID

from highwater.broker.context import Access, Api, Context, Delayed, Reply
from highwater.broker.coordinator.group.records import CommittedOffset
from highwater.broker.coordinator.group.shard import CommitsOnTheirWay
from highwater.broker.request.purgatory import DelayedOperation
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.topic_ids import NO_ID, is_unknown, unknown_name
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import OffsetFetchResponse

API = Api(
    key=9,
    name="OffsetFetch",
    versions=(0, 10),
    access=Access(inside="Describe of each group and topic; of all topics, others are hidden"),
)

FIRST_WITH_TOP_ERROR = 2
FIRST_WITH_GROUPS = 8
FIRST_WITH_MEMBER = 9
FIRST_WITH_IDS = 10
_Topic = OffsetFetchResponse.OffsetFetchResponseTopic
_Partition = _Topic.OffsetFetchResponsePartition
_Group = OffsetFetchResponse.OffsetFetchResponseGroup
_GroupTopic = _Group.OffsetFetchResponseTopics
_GroupPartition = _GroupTopic.OffsetFetchResponsePartitions
Found = dict[TopicPartition, "CommittedOffset | ErrorCode | None"]


class StableFetch(DelayedOperation):
    """Waits for the commits that were on their way at the request, as they wait for the HW."""

    kind: ClassVar[str] = "Produce"

    def __init__(
        self,
        awaited: Sequence[CommitsOnTheirWay],
        timeout_ms: int,
        answer: Callable[[bool], Response],
    ) -> None:
        self.keys = tuple({each.shard.partition.tp: None for each in awaited})
        self.timeout_ms = timeout_ms
        self._awaited = awaited
        self._answer = answer

    def try_complete(self) -> Response | None:
        return self._answer(False) if all(each.decided for each in self._awaited) else None

    def on_expire(self) -> Response:
        return self._answer(True)


def handle(ctx: Context, request: Any) -> Reply:
    if ctx.version >= FIRST_WITH_IDS:
        _give_names(ctx, request)
    awaited = list(_awaited(ctx, request)) if request.require_stable else []
    if not awaited:
        return _answer(ctx, request, timed_out=False)
    timeout_ms = ctx.services.config.offsets_commit_timeout_ms
    return Delayed(
        StableFetch(
            awaited, timeout_ms, lambda timed_out: _answer(ctx, request, timed_out=timed_out)
        )
    )


def _give_names(ctx: Context, request: Any) -> None:
    """Gives topics the names of their ids, or one that no topic can have."""
    for group in request.groups:
        for topic in group.topics or ():
            topic_id = NO_ID if topic.topic_id is None else topic.topic_id.bytes
            name = ctx.services.metadata.topic_of(topic_id)
            topic.name = unknown_name(topic_id) if name is None else name


def _awaited(ctx: Context, request: Any) -> Iterator[CommitsOnTheirWay]:
    for group in request.groups if ctx.version >= FIRST_WITH_GROUPS else [request]:
        try:
            found = ctx.services.groups.commits_on_their_way(group.group_id, _asked(group.topics))
        except ApiError:
            continue  # which its answer says
        if found is not None:
            yield found


def _answer(ctx: Context, request: Any, *, timed_out: bool) -> Response:
    stable = bool(request.require_stable)
    if ctx.version >= FIRST_WITH_GROUPS:
        groups = [_group(ctx, group, stable, timed_out) for group in request.groups]
        of_groups = tuple(ErrorCode(g.error_code).name for g in groups if g.error_code)
        names = of_groups + tuple(name for group in groups for name in _errors(group.topics))
        return Response(OffsetFetchResponse(groups=groups), error_names=names)
    found = _fetch(ctx, request, stable, timed_out)
    topics = _topics(found, _Topic, _Partition)
    answer = OffsetFetchResponse(topics=topics, error_code=0)
    return Response(answer, error_names=tuple(_errors(topics)))


def _errors(topics: list[Any]) -> Iterator[str]:
    partitions = (partition for topic in topics for partition in topic.partitions)
    return (ErrorCode(p.error_code).name for p in partitions if p.error_code)


def _group(ctx: Context, group: Any, stable: bool, timed_out: bool) -> Any:
    try:
        found = _fetch(ctx, group, stable, timed_out)
    except ApiError as e:
        return _Group(group_id=group.group_id, topics=[], error_code=int(e.code))
    topics = _topics(found, _GroupTopic, _GroupPartition)
    if ctx.version >= FIRST_WITH_IDS:
        topics = list(_with_ids(ctx, group, topics))
    return _Group(group_id=group.group_id, topics=topics, error_code=0)


def _with_ids(ctx: Context, group: Any, topics: list[Any]) -> Iterator[Any]:
    """The topics with the ids by which they were asked for, or that they have."""
    asked = {topic.name: topic.topic_id for topic in group.topics or ()}
    for topic in topics:
        known = ctx.services.metadata.topic_id(topic.name)
        topic.topic_id = asked.get(topic.name) or (UUID(bytes=known) if any(known) else None)
        if group.topics is not None or topic.topic_id is not None:
            yield topic


def _fetch(ctx: Context, group: Any, stable: bool, timed_out: bool) -> Found:
    """Raises ApiError; a request for all topics does not hear of those that it may not describe."""

    def unknown(topic: str) -> bool:
        return ctx.version >= FIRST_WITH_IDS and is_unknown(topic)

    def shown(topic: str) -> bool:
        return unknown(topic) or ctx.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic)

    if not ctx.allows(Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
        raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    asked = _asked(group.topics)
    mine = None if asked is None else [tp for tp in asked if shown(tp.topic)]
    member = (None, -1)
    if ctx.version >= FIRST_WITH_MEMBER:
        member = group.member_id, -1 if group.member_epoch is None else group.member_epoch
    found = ctx.services.groups.fetch(
        group.group_id, mine, stable, timed_out=timed_out, member=member
    )
    if asked is None:
        return {tp: what for tp, what in found.items() if shown(tp.topic)}
    refused = (tp for tp in asked if not shown(tp.topic))
    nameless = (tp for tp in asked if unknown(tp.topic))
    return {
        **found,
        **dict.fromkeys(refused, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        **dict.fromkeys(nameless, ErrorCode.UNKNOWN_TOPIC_ID),
    }


def _asked(topics: Any) -> list[TopicPartition] | None:
    """None means all partitions of the group."""
    if topics is None:
        return None
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
