"""LeaveGroup, API 13, v0-5: members leave their group.

v0-2 name one member, v3 several, static ones by their group.instance.id.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.context import Access, Api, Context, Reply, of
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.wire.messages import LeaveGroupResponse

API = Api(
    key=13,
    name="LeaveGroup",
    versions=(0, 5),
    access=Access(whole=(of(ResourceType.GROUP, Operation.READ, "group_id"),)),
)

FIRST_WITH_MANY = 3


def handle(ctx: Context, request: Any) -> Reply:
    groups = ctx.services.groups
    if ctx.version < FIRST_WITH_MANY:
        (code,) = groups.leave(request.group_id, [(request.member_id, None)])
        return error_response(ctx, request, code)
    leaving = [(m.member_id, m.group_instance_id) for m in request.members]
    codes = groups.leave(request.group_id, leaving)
    if ErrorCode.COORDINATOR_NOT_AVAILABLE in codes:
        return error_response(ctx, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    members = [
        LeaveGroupResponse.MemberResponse(
            member_id=member_id, group_instance_id=instance_id, error_code=int(code)
        )
        for (member_id, instance_id), code in zip(leaving, codes, strict=True)
    ]
    names = tuple(code.name for code in codes if code)
    return Response(LeaveGroupResponse(error_code=0, members=members), error_names=names)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    answer = LeaveGroupResponse(error_code=int(code), members=[])
    return Response(answer, error_names=(code.name,) if code else ())
