"""Heartbeat, API 12, v0-4: a member says it is alive, and hears whether its group is rebalancing.

Group coordinators are not built: COORDINATOR_NOT_AVAILABLE, which clients repeat.
"""

from __future__ import annotations

from typing import Any

from broker.context import Api, Context, Reply, Response
from highwater.common.errors import ErrorCode
from highwater.common.wire.messages import HeartbeatResponse

API = Api(key=12, name="Heartbeat", versions=(0, 4))


def handle(ctx: Context, request: Any) -> Reply:
    return error_response(ctx, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return Response(HeartbeatResponse(error_code=int(code)), error_names=(code.name,))
