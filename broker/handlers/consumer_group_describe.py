"""ConsumerGroupDescribe, API 69, v0-1: members and epochs of consumer groups (KIP-848).

A group that does not exist, or is of the classic protocol, is GROUP_ID_NOT_FOUND.  A group whose
members have subscribed to a topic that the requester may not describe is
TOPIC_AUTHORIZATION_FAILED, without its members.  Only what is committed is shown.  v1 tells the
protocol of each member: 0 for the classic one, 1 for that of consumers.

Source: KafkaApis.handleConsumerGroupDescribe, ConsumerGroup.asDescribedGroup of Apache Kafka 4.2.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.admin.group_answers import (
    all_refused,
    assigned,
    described_group,
    description,
    to_describe,
)
from highwater.broker.context import Access, Api, Context, Reply, of
from highwater.broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from highwater.broker.coordinator.group.consumer.members import Member
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
_Answer = ConsumerGroupDescribeResponse


def handle(ctx: Context, request: Any) -> Reply:
    return to_describe(ctx, request, _Answer, _described)


def _described(ctx: Context, group_id: str) -> Any:
    """Raises ApiError."""
    groups = ctx.services.groups
    if not groups.has_consumer_protocol:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    group = described_group(ctx, group_id, ConsumerGroup, "consumer")
    members = [_member(group, member, groups.topics) for member in group.members.values()]
    for topic in _topics_of(members):
        if not ctx.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic):
            raise ApiError(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                "the group has topics that the requester may not describe",
            )
    return description(_Answer, group, groups.consumer_steps(group).assignor(), members)


def _member(group: ConsumerGroup, member: Member, topics: Topics) -> Any:
    told = member.subscription
    return _Answer.DescribedGroup.Member(
        member_id=member.member_id,
        instance_id=told.instance_id,
        rack_id=told.rack_id,
        member_epoch=member.current.epoch,
        client_id=told.client_id,
        client_host=told.client_host,
        subscribed_topic_names=list(told.topics),
        subscribed_topic_regex=told.regex,
        assignment=assigned(_Answer, member.current.assigned, topics),
        target_assignment=assigned(_Answer, group.target_of(member.member_id), topics),
        member_type=BY_CLASSIC_PROTOCOL if told.classic is not None else BY_CONSUMER_PROTOCOL,
    )


def _topics_of(members: list[Any]) -> dict[str, None]:
    """The topics that the answer names."""
    names: dict[str, None] = {}
    for member in members:
        names.update(dict.fromkeys(member.subscribed_topic_names))
        for assignment in (member.assignment, member.target_assignment):
            names.update((topic.topic_name, None) for topic in assignment.topic_partitions)
    return names


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return all_refused(request, _Answer, code)
