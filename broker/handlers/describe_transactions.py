"""DescribeTransactions, API 65, v0: the state of transactional ids.

Transaction coordinators are not built: COORDINATOR_NOT_AVAILABLE, which clients repeat.
"""

from __future__ import annotations

from typing import Any

from broker.context import Api, Context, Reply, Response
from highwater.common.errors import ErrorCode
from highwater.common.wire.messages import DescribeTransactionsResponse

API = Api(key=65, name="DescribeTransactions", versions=(0, 0))


def handle(ctx: Context, request: Any) -> Reply:
    return error_response(ctx, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    states = [
        DescribeTransactionsResponse.TransactionState(
            error_code=int(code), transactional_id=name, transaction_state="", topics=[]
        )
        for name in request.transactional_ids
    ]
    answer = DescribeTransactionsResponse(transaction_states=states)
    return Response(answer, error_names=(code.name,))
