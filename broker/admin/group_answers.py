"""Answers about groups whose assignment the coordinator computes.

The messages of consumer groups (KIP-848) and of share groups (KIP-932) have one shape: each
function takes the class of the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar
from uuid import UUID

from highwater.broker.context import Context
from highwater.broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from highwater.broker.coordinator.group.consumer.heartbeats import Beat
from highwater.broker.coordinator.group.consumer.members import Partitions
from highwater.broker.coordinator.group.consumer.subscribed_topics import Topics
from highwater.broker.coordinator.group.share.share_group import ShareGroup
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import ResourceType

Kind = TypeVar("Kind", ConsumerGroup, ShareGroup)

# ---------------------------------------------------------------------------------- heartbeats


def to_heartbeat(answer: Any, beat: Beat) -> Response:
    assignment = None
    if beat.assignment is not None:
        topics = [
            answer.Assignment.TopicPartitions(
                topic_id=UUID(bytes=topic), partitions=sorted(numbers)
            )
            for topic, numbers in beat.assignment.items()
        ]
        assignment = answer.Assignment(topic_partitions=topics)
    message = answer(
        error_code=int(beat.error),
        error_message=beat.message,
        member_id=beat.member_id,
        member_epoch=beat.epoch,
        heartbeat_interval_ms=beat.heartbeat_interval_ms,
        assignment=assignment,
    )
    return Response(message, error_names=(beat.error.name,) if beat.error else ())


# ---------------------------------------------------------------------------------- descriptions


def to_describe(
    ctx: Context, request: Any, answer: Any, described: Callable[[Context, str], Any]
) -> Response:
    """The answer with a description of each group; `described` raises ApiError."""
    groups = []
    for group_id in request.group_ids:
        try:
            group = described(ctx, group_id)
        except ApiError as e:
            group = _refused(answer, group_id, e.code, e.detail)
        else:
            if request.include_authorized_operations:
                group.authorized_operations = ctx.operations(ResourceType.GROUP, group_id)
        groups.append(group)
    names = {ErrorCode(g.error_code).name: None for g in groups if g.error_code}
    return Response(answer(groups=groups), error_names=tuple(names))


def all_refused(request: Any, answer: Any, code: ErrorCode) -> Response:
    groups = [_refused(answer, group_id, code) for group_id in request.group_ids]
    return Response(answer(groups=groups), error_names=(code.name,))


def described_group(ctx: Context, group_id: str, kind: type[Kind], name: str) -> Kind:
    """The group as it is committed; raises ApiError if there is none of this kind."""
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
    group = ctx.services.groups.describe(group_id)
    if group is None:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
    if not isinstance(group, kind):
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"{group_id} is not a {name} group")
    return group


def description(
    answer: Any, group: ConsumerGroup | ShareGroup, assignor: str, members: Iterable[Any]
) -> Any:
    return answer.DescribedGroup(
        error_code=0,
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=assignor,
        members=list(members),
    )


def assigned(answer: Any, partitions: Partitions, topics: Topics) -> Any:
    """A member's assignment: the partitions of topics that still exist."""
    kind = answer.DescribedGroup.Member.Assignment
    named = ((topic_id, topics.name_of(topic_id)) for topic_id in partitions)
    return kind(
        topic_partitions=[
            kind.TopicPartitions(
                topic_id=UUID(bytes=topic_id),
                topic_name=name,
                partitions=sorted(partitions[topic_id]),
            )
            for topic_id, name in named
            if name is not None
        ]
    )


def _refused(answer: Any, group_id: str, code: ErrorCode, message: str | None = None) -> Any:
    return answer.DescribedGroup(error_code=int(code), error_message=message, group_id=group_id)
