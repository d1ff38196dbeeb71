"""EndTxn, API 26, v0-4: commits or aborts a transaction.

Transaction coordinators are not built: COORDINATOR_NOT_AVAILABLE, which clients repeat.
"""

from __future__ import annotations

from typing import Any

from broker.context import Api, Context, Reply, Response
from highwater.common.errors import ErrorCode
from highwater.common.wire.messages import EndTxnResponse

API = Api(key=26, name="EndTxn", versions=(0, 4))


def handle(ctx: Context, request: Any) -> Reply:
    return error_response(ctx, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return Response(EndTxnResponse(error_code=int(code)), error_names=(code.name,))
