"""Heartbeat, API 12, v0-4: a member says it is alive, and learns whether its group rebalances.

v3 has static members.  While the group is being loaded the answer is NONE.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.context import Access, Api, Context, Reply, of
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.wire.messages import HeartbeatResponse

API = Api(
    key=12,
    name="Heartbeat",
    versions=(0, 4),
    access=Access(whole=(of(ResourceType.GROUP, Operation.READ, "group_id"),)),
)


def handle(ctx: Context, request: Any) -> Reply:
    code = ctx.services.groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return error_response(ctx, request, code)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return Response(
        HeartbeatResponse(error_code=int(code)), error_names=(code.name,) if code else ()
    )
