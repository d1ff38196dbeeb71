"""EndTxn, API 26, v0-4: commits or aborts a transaction.

The answer is given when the decision is committed in __transaction_state: from then on it holds,
and the markers follow.  The next transaction may begin when they are all written; until then the
client is told to wait (CONCURRENT_TRANSACTIONS).  Deviation from Kafka 4: no v5, which gives a new
epoch for each transaction (KIP-890 part 2).
"""

from __future__ import annotations

from typing import Any

from highwater.broker.context import Access, Api, Context, Delayed, Reply, of
from highwater.broker.coordinator.pending import Waiting
from highwater.broker.coordinator.transaction.transaction import Identity
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.wire.messages import EndTxnResponse

API = Api(
    key=26,
    name="EndTxn",
    versions=(0, 4),
    access=Access(whole=(of(ResourceType.TRANSACTIONAL_ID, Operation.WRITE, "transactional_id"),)),
)

FIRST_WITH_FENCED = 2


def handle(ctx: Context, request: Any) -> Reply:
    ticket = Waiting(lambda code: error_response(ctx, request, code))
    producer = Identity(request.producer_id, request.producer_epoch)
    ctx.services.transactions.end(
        request.transactional_id, producer, bool(request.committed), ticket
    )
    return Delayed(ticket)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    if code is ErrorCode.PRODUCER_FENCED and ctx.version < FIRST_WITH_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    names = (code.name,) if code else ()
    return Response(EndTxnResponse(error_code=int(code)), error_names=names)
