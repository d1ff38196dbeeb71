"""ListGroups, API 16, v0-5: the groups that this broker coordinates.

v4 filters by state, v5 by type: classic, consumer or share.  COORDINATOR_LOAD_IN_PROGRESS may
accompany the groups that are loaded.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.context import Access, Api, Context, Reply
from highwater.broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from highwater.broker.coordinator.group.consumer.embedded import CONSUMER
from highwater.broker.coordinator.group.shard import Shown
from highwater.broker.coordinator.group.share.share_group import ShareGroup
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.wire.messages import ListGroupsResponse

API = Api(
    key=16,
    name="ListGroups",
    versions=(0, 5),
    access=Access(inside="groups that it may not describe are hidden"),
)

CLASSIC, OF_CONSUMERS, SHARE = "classic", "consumer", "share"
"""The types; a share group's protocol type has the same name."""


def handle(ctx: Context, request: Any) -> Reply:
    code, groups = ctx.services.groups.groups()
    if not ctx.allows(Operation.DESCRIBE, ResourceType.CLUSTER):
        describe = (Operation.DESCRIBE, ResourceType.GROUP)
        groups = [group for group in groups if ctx.allows(*describe, group.group_id)]
    states = {state.lower() for state in request.states_filter or ()}
    types = {kind.lower() for kind in request.types_filter or ()}
    listed = [
        ListGroupsResponse.ListedGroup(
            group_id=group.group_id,
            protocol_type=_protocol_type(group),
            group_state=group.state.value,
            group_type=_type(group),
        )
        for group in groups
        if (not states or group.state.value.lower() in states)
        and (not types or _type(group) in types)
    ]
    answer = ListGroupsResponse(error_code=int(code), groups=listed)
    return Response(answer, error_names=(code.name,) if code else ())


def _type(group: Shown) -> str:
    if isinstance(group, ShareGroup):
        return SHARE
    return OF_CONSUMERS if isinstance(group, ConsumerGroup) else CLASSIC


def _protocol_type(group: Shown) -> str:
    if isinstance(group, ShareGroup):
        return SHARE
    return CONSUMER if isinstance(group, ConsumerGroup) else group.protocol_type or ""


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return Response(ListGroupsResponse(error_code=int(code), groups=[]), error_names=(code.name,))
