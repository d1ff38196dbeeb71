"""ConsumerGroupDescribe, API 69, v0-1: members and epochs of consumer groups (KIP-848).

A group that does not exist, or is of the classic protocol, is GROUP_ID_NOT_FOUND.  A group whose
members have subscribed to a topic that the requester may not describe is
TOPIC_AUTHORIZATION_FAILED, without its members.  Only what is committed is shown.  v1 tells the
protocol of each member: 0 for the classic one, 1 for that of consumers.

Source: KafkaApis.handleConsumerGroupDescribe, ConsumerGroup.asDescribedGroup of Apache Kafka 4.2.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from highwater.broker.context import Access, Api, Context, Reply, of
from highwater.broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from highwater.broker.coordinator.group.consumer.members import Member, Partitions
from highwater.broker.coordinator.group.consumer.subscribed_topics import Topics
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.wire.messages import ConsumerGroupDescribeResponse

API = Api(
    key=69,
    name="ConsumerGroupDescribe",
    versions=(0, 1),
    access=Access(
        each=of(ResourceType.GROUP, Operation.DESCRIBE, ""),
        items=("group_ids",),
        answers="groups",
        inside="Describe of each topic of the group; without it, the group is refused",
    ),
)

BY_CLASSIC_PROTOCOL, BY_CONSUMER_PROTOCOL = 0, 1
_Group = ConsumerGroupDescribeResponse.DescribedGroup
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
    return Response(ConsumerGroupDescribeResponse(groups=groups), error_names=tuple(names))


def _described(ctx: Context, group_id: str) -> Any:
    """Raises ApiError."""
    groups = ctx.services.groups
    if not groups.has_consumer_protocol:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
    group = groups.describe(group_id)
    if group is None:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
    if not isinstance(group, ConsumerGroup):
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"{group_id} is not a consumer group")
    members = [_member(group, member, groups.topics) for member in group.members.values()]
    for topic in _topics_of(members):
        if not ctx.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic):
            raise ApiError(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                "the group has topics that the requester may not describe",
            )
    return _Group(
        error_code=0,
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=groups.consumer_steps(group).assignor(),
        members=members,
    )


def _member(group: ConsumerGroup, member: Member, topics: Topics) -> Any:
    told = member.subscription
    return _Member(
        member_id=member.member_id,
        instance_id=told.instance_id,
        rack_id=told.rack_id,
        member_epoch=member.current.epoch,
        client_id=told.client_id,
        client_host=told.client_host,
        subscribed_topic_names=list(told.topics),
        subscribed_topic_regex=told.regex,
        assignment=_assignment(member.current.assigned, topics),
        target_assignment=_assignment(group.target_of(member.member_id), topics),
        member_type=BY_CLASSIC_PROTOCOL if told.classic is not None else BY_CONSUMER_PROTOCOL,
    )


def _assignment(partitions: Partitions, topics: Topics) -> Any:
    """The partitions of topics that still exist."""
    named = ((topic_id, topics.name_of(topic_id)) for topic_id in partitions)
    return _Assignment(
        topic_partitions=[
            _Assignment.TopicPartitions(
                topic_id=UUID(bytes=topic_id),
                topic_name=name,
                partitions=sorted(partitions[topic_id]),
            )
            for topic_id, name in named
            if name is not None
        ]
    )


def _topics_of(members: list[Any]) -> dict[str, None]:
    """The topics that the answer names."""
    names: dict[str, None] = {}
    for member in members:
        names.update(dict.fromkeys(member.subscribed_topic_names))
        for assignment in (member.assignment, member.target_assignment):
            names.update((topic.topic_name, None) for topic in assignment.topic_partitions)
    return names


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
    return Response(ConsumerGroupDescribeResponse(groups=groups), error_names=(code.name,))
