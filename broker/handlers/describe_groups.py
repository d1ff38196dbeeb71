"""DescribeGroups, API 15, v0-6: members and state of groups.

A group that does not exist is Dead, and so is one of the consumer protocol, which
ConsumerGroupDescribe shows, and a share group, which ShareGroupDescribe shows; from v6 on, that is
GROUP_ID_NOT_FOUND as well, with a message (KIP-1043).  Subscriptions and assignments are shown in
Stable alone: at other times they are not those in force.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.context import Access, Api, Context, Reply, of
from highwater.broker.coordinator.group.group import Group, State
from highwater.broker.coordinator.group.shard import Shown
from highwater.broker.coordinator.group.share.share_group import ShareGroup
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.wire.messages import DescribeGroupsResponse

API = Api(
    key=15,
    name="DescribeGroups",
    versions=(0, 6),
    access=Access(
        each=of(ResourceType.GROUP, Operation.DESCRIBE, ""), items=("groups",), answers="groups"
    ),
)

FIRST_WITH_NOT_FOUND = 6
_Group = DescribeGroupsResponse.DescribedGroup
_Member = _Group.DescribedGroupMember


def handle(ctx: Context, request: Any) -> Reply:
    groups, names = [], []
    for group_id in request.groups:
        try:
            described = _described(ctx, group_id, ctx.services.groups.describe(group_id))
        except ApiError as e:
            groups.append(_failed(group_id, e.code))
            names.append(e.code.name)
            continue
        if described.error_code:
            names.append(ErrorCode(described.error_code).name)
        elif request.include_authorized_operations:
            described.authorized_operations = ctx.operations(ResourceType.GROUP, group_id)
        groups.append(described)
    return Response(DescribeGroupsResponse(groups=groups), error_names=tuple(names))


def _described(ctx: Context, group_id: str, group: Shown | None) -> Any:
    if not isinstance(group, Group):
        if ctx.version < FIRST_WITH_NOT_FOUND:
            return _failed(group_id, ErrorCode.NONE, State.DEAD.value)
        shown_by = "ShareGroup" if isinstance(group, ShareGroup) else "ConsumerGroup"
        why = "there is no such group" if group is None else f"{shown_by}Describe shows it"
        message = f"{group_id} is not a classic group: {why}"
        return _failed(group_id, ErrorCode.GROUP_ID_NOT_FOUND, State.DEAD.value, message)
    stable = group.state is State.STABLE
    members = [
        _Member(
            member_id=m.member_id,
            group_instance_id=m.instance_id,
            client_id=m.client_id,
            client_host=m.client_host,
            member_metadata=m.metadata(group.protocol) if stable else b"",
            member_assignment=m.assignment if stable else b"",
        )
        for m in group.members.values()
    ]
    return _Group(
        error_code=0,
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if stable else "",
        members=members,
    )


def _failed(group_id: str, code: ErrorCode, state: str = "", message: str | None = None) -> Any:
    return _Group(
        error_code=int(code),
        error_message=message,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=[],
    )


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    groups = [_failed(group, code) for group in request.groups]
    return Response(DescribeGroupsResponse(groups=groups), error_names=(code.name,))
