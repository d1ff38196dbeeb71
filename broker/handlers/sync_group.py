"""SyncGroup, API 14, v0-5: a member hears what the group's leader assigned to it.

Group coordinators are not built: COORDINATOR_NOT_AVAILABLE, which clients repeat.
"""

from __future__ import annotations

from typing import Any

from broker.context import Api, Context, Reply, Response
from highwater.common.errors import ErrorCode
from highwater.common.wire.messages import SyncGroupResponse

API = Api(key=14, name="SyncGroup", versions=(0, 5))


def handle(ctx: Context, request: Any) -> Reply:
    return error_response(ctx, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    answer = SyncGroupResponse(error_code=int(code), assignment=b"")
    return Response(answer, error_names=(code.name,))
