"""OffsetDelete, API 47, v0: forgets what a group has committed.

Group coordinators are not built: COORDINATOR_NOT_AVAILABLE, which clients repeat.
"""

from __future__ import annotations

from typing import Any

from broker.context import Api, Context, Reply, Response
from highwater.common.errors import ErrorCode
from highwater.common.wire.messages import OffsetDeleteResponse

API = Api(key=47, name="OffsetDelete", versions=(0, 0))


def handle(ctx: Context, request: Any) -> Reply:
    return error_response(ctx, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return Response(OffsetDeleteResponse(error_code=int(code), topics=[]), error_names=(code.name,))
