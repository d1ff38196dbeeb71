"""ListTransactions, API 66, v0-1: the transactional ids that this broker looks after.

Transaction coordinators are not built, so there are none.
"""

from __future__ import annotations

from typing import Any

from broker.context import Api, Context, Reply, Response
from highwater.common.errors import ErrorCode
from highwater.common.wire.messages import ListTransactionsResponse

API = Api(key=66, name="ListTransactions", versions=(0, 1))


def handle(ctx: Context, request: Any) -> Reply:
    return error_response(ctx, request, ErrorCode.NONE)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    answer = ListTransactionsResponse(
        error_code=int(code), unknown_state_filters=[], transaction_states=[]
    )
    return Response(answer)
