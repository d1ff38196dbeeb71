"""ShareGroupDescribe, API 77, v1: members and epochs of share groups (KIP-932).

A group that does not exist, or is of another kind, is GROUP_ID_NOT_FOUND.  Only what is committed
is shown.

Source: KafkaApis.handleShareGroupDescribe, ShareGroup.asDescribedGroup of Apache Kafka 4.2.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from highwater.broker.context import Access, Api, Context, Reply, of
from highwater.broker.coordinator.group.consumer.members import Member
from highwater.broker.coordinator.group.consumer.subscribed_topics import Topics
from highwater.broker.coordinator.group.share import simple_assignor
from highwater.broker.coordinator.group.share.share_group import ShareGroup
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.wire.messages import ShareGroupDescribeResponse

API = Api(
    key=77,
    name="ShareGroupDescribe",
    versions=(1, 1),
    access=Access(
        each=of(ResourceType.GROUP, Operation.DESCRIBE, ""), items=("group_ids",), answers="groups"
    ),
)

_Group = ShareGroupDescribeResponse.DescribedGroup
_Member = _Group.Member
_Assignment = _Member.Assignment


def handle(ctx: Context, request: Any) -> Reply:
    groups = []
    for group_id in request.group_ids:
        try:
            described = _described(ctx, group_id)
        except ApiError as e:
            described = _failed(group_id, e.code, e.detail)
        else:
            if request.include_authorized_operations:
                described.authorized_operations = ctx.operations(ResourceType.GROUP, group_id)
        groups.append(described)
    names = {ErrorCode(g.error_code).name: None for g in groups if g.error_code}
    return Response(ShareGroupDescribeResponse(groups=groups), error_names=tuple(names))


def _described(ctx: Context, group_id: str) -> Any:
    """Raises ApiError."""
    groups = ctx.services.groups
    groups.check_share_groups()
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
    group = groups.describe(group_id)
    if group is None:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
    if not isinstance(group, ShareGroup):
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"{group_id} is not a share group")
    return _Group(
        error_code=0,
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=simple_assignor.NAME,
        members=[_member(member, groups.topics) for member in group.members.values()],
    )


def _member(member: Member, topics: Topics) -> Any:
    """The member, with the partitions of topics that still exist."""
    told, assigned = member.subscription, member.current.assigned
    named = ((topic_id, topics.name_of(topic_id)) for topic_id in assigned)
    parts = [
        _Assignment.TopicPartitions(
            topic_id=UUID(bytes=topic_id), topic_name=name, partitions=sorted(assigned[topic_id])
        )
        for topic_id, name in named
        if name is not None
    ]
    return _Member(
        member_id=member.member_id,
        rack_id=told.rack_id,
        member_epoch=member.current.epoch,
        client_id=told.client_id,
        client_host=told.client_host,
        subscribed_topic_names=list(told.topics),
        assignment=_Assignment(topic_partitions=parts),
    )


def _failed(group_id: str, code: ErrorCode, message: str | None = None) -> Any:
    return _Group(
        error_code=int(code),
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    groups = [_failed(group_id, code) for group_id in request.group_ids]
    return Response(ShareGroupDescribeResponse(groups=groups), error_names=(code.name,))
