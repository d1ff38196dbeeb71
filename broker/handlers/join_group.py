"""JoinGroup, API 11, v0-9: a member joins its group's next generation.

Group coordinators are not built: COORDINATOR_NOT_AVAILABLE, which clients repeat.
"""

from __future__ import annotations

from typing import Any

from broker.context import Api, Context, Reply, Response
from highwater.common.errors import ErrorCode
from highwater.common.wire.messages import JoinGroupResponse

API = Api(key=11, name="JoinGroup", versions=(0, 9))


def handle(ctx: Context, request: Any) -> Reply:
    return error_response(ctx, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    answer = JoinGroupResponse(
        error_code=int(code),
        generation_id=-1,
        protocol_type=None,
        # before v7 the name of the protocol cannot be null
        protocol_name=None if ctx.version >= 7 else "",
        leader="",
        member_id=request.member_id,
        members=[],
    )
    return Response(answer, error_names=(code.name,))
