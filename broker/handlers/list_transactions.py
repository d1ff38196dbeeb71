"""ListTransactions, API 66, v0-1: the transactional ids that this broker coordinates (KIP-664).

v1 lets a client ask for transactions that have been open for longer than a duration (KIP-994).
"""

from __future__ import annotations

from typing import Any

from highwater.broker.context import Access, Api, Context, Reply
from highwater.broker.coordinator.transaction.transaction import Transaction
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.wire.messages import ListTransactionsResponse

API = Api(
    key=66,
    name="ListTransactions",
    versions=(0, 1),
    access=Access(inside="ids that it may not describe are hidden"),
)

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort",
          "Dead", "PrepareEpochFence")  # fmt: skip


def handle(ctx: Context, request: Any) -> Reply:
    code, found = ctx.services.transactions.transactions()
    if code is not ErrorCode.NONE:
        return error_response(ctx, request, code)
    unknown = [state for state in request.state_filters if state not in STATES]
    now = ctx.services.world.clock.wall_ms()
    answer = ListTransactionsResponse(
        error_code=0,
        unknown_state_filters=unknown,
        transaction_states=[
            ListTransactionsResponse.TransactionState(
                transactional_id=txn.transactional_id,
                producer_id=txn.producer_id,
                transaction_state=txn.state.label,
            )
            for txn in found
            if _asked_for(ctx, request, txn, now)
        ],
    )
    return Response(answer)


def _asked_for(ctx: Context, request: Any, txn: Transaction, now_ms: int) -> bool:
    assert txn.stored is not None
    if not ctx.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, txn.transactional_id):
        return False
    if request.producer_id_filters and txn.producer_id not in request.producer_id_filters:
        return False
    if request.state_filters and txn.state.label not in request.state_filters:
        return False
    longest = request.duration_filter if ctx.version >= 1 else -1
    return not (longest >= 0 and now_ms - txn.stored.started_ms <= longest)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    answer = ListTransactionsResponse(
        error_code=int(code), unknown_state_filters=[], transaction_states=[]
    )
    return Response(answer, error_names=(code.name,))
