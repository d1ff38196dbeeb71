"""LeaveGroup, API 13, v0-5: members leave their group.

Group coordinators are not built: COORDINATOR_NOT_AVAILABLE, which clients repeat.
"""

from __future__ import annotations

from typing import Any

from broker.context import Api, Context, Reply, Response
from highwater.common.errors import ErrorCode
from highwater.common.wire.messages import LeaveGroupResponse

API = Api(key=13, name="LeaveGroup", versions=(0, 5))


def handle(ctx: Context, request: Any) -> Reply:
    return error_response(ctx, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return Response(LeaveGroupResponse(error_code=int(code), members=[]), error_names=(code.name,))
