"""ListTransactions, API 66, v0-1: the transactional ids that this broker looks after.

Transaction coordinators are not built, so there are none.
"""

from __future__ import annotations

from typing import Any

from broker.context import Api, Context, Reply, Response
from highwater.common.errors import ErrorCode
from highwater.common.wire.messages import ListTransactionsResponse

API = Api(key=66, name="ListTransactions", versions=(0, 1))


STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort",
          "Dead", "PrepareEpochFence")  # fmt: skip


def handle(ctx: Context, request: Any) -> Reply:
    unknown = [state for state in request.state_filters if state not in STATES]
    answer = ListTransactionsResponse(
        error_code=0, unknown_state_filters=unknown, transaction_states=[]
    )
    return Response(answer)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    answer = ListTransactionsResponse(
        error_code=int(code), unknown_state_filters=[], transaction_states=[]
    )
    return Response(answer, error_names=(code.name,))
