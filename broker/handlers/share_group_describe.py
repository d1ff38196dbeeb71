"""ShareGroupDescribe, API 77, v1: members and epochs of share groups (KIP-932).

A group that does not exist, or is of another kind, is GROUP_ID_NOT_FOUND.  Only what is committed
is shown.

Source: KafkaApis.handleShareGroupDescribe, ShareGroup.asDescribedGroup of Apache Kafka 4.2.
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
from highwater.broker.coordinator.group.consumer.members import Member
from highwater.broker.coordinator.group.consumer.subscribed_topics import Topics
from highwater.broker.coordinator.group.share import simple_assignor
from highwater.broker.coordinator.group.share.share_group import ShareGroup
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode
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

_Answer = ShareGroupDescribeResponse


def handle(ctx: Context, request: Any) -> Reply:
    return to_describe(ctx, request, _Answer, _described)


def _described(ctx: Context, group_id: str) -> Any:
    """Raises ApiError."""
    groups = ctx.services.groups
    groups.check_share_groups()
    group = described_group(ctx, group_id, ShareGroup, "share")
    members = (_member(member, groups.topics) for member in group.members.values())
    return description(_Answer, group, simple_assignor.NAME, members)


def _member(member: Member, topics: Topics) -> Any:
    told = member.subscription
    return _Answer.DescribedGroup.Member(
        member_id=member.member_id,
        rack_id=told.rack_id,
        member_epoch=member.current.epoch,
        client_id=told.client_id,
        client_host=told.client_host,
        subscribed_topic_names=list(told.topics),
        assignment=assigned(_Answer, member.current.assigned, topics),
    )


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return all_refused(request, _Answer, code)
