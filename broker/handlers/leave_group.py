"""LeaveGroup, API 13, v0-5: members leave their group.

v0-2 name one member, v3 several, static ones by their group.instance.id.  Members of the consumer
protocol leave by it too, as an administrator has them leave; that is answered when it is committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from highwater.broker.context import Access, Api, Context, Delayed, Reply, of
from highwater.broker.coordinator.pending import Waiting
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


Leaving = Sequence[tuple[str, str | None]]


def handle(ctx: Context, request: Any) -> Reply:
    groups = ctx.services.groups
    leaving: Leaving = [(request.member_id, None)]
    if ctx.version >= FIRST_WITH_MANY:
        leaving = [(m.member_id, m.group_instance_id) for m in request.members]
    if groups.is_of_consumers(request.group_id):

        def answered(codes: Any) -> Response:
            if isinstance(codes, ErrorCode):
                return error_response(ctx, request, codes)
            return _response(ctx, request, leaving, codes)

        ticket = Waiting(answered)
        groups.consumers_leave(request.group_id, leaving, ticket)
        return Delayed(ticket)
    return _response(ctx, request, leaving, groups.leave(request.group_id, leaving))


def _response(ctx: Context, request: Any, leaving: Leaving, codes: Sequence[ErrorCode]) -> Response:
    if ctx.version < FIRST_WITH_MANY:
        return error_response(ctx, request, codes[0])
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
