"""EndTxn, API 26, v0-5: commits or aborts a transaction.

The answer is given when the decision is committed in __transaction_state: from then on it holds,
and the markers follow.  The next transaction may begin when they are all written; until then the
client is told to wait (CONCURRENT_TRANSACTIONS).  From v5 on the answer has a new epoch, or a new
producer id where the epochs are used up, for the next transaction (KIP-890, part 2).
"""

from __future__ import annotations

from typing import Any

from highwater.broker.context import Access, Api, Context, Delayed, Reply, of
from highwater.broker.coordinator.pending import Waiting
from highwater.broker.coordinator.transaction.transaction import Identity
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.wire.messages import EndTxnResponse

API = Api(
    key=26,
    name="EndTxn",
    versions=(0, 5),
    access=Access(whole=(of(ResourceType.TRANSACTIONAL_ID, Operation.WRITE, "transactional_id"),)),
)

FIRST_WITH_FENCED = 2
FIRST_WITH_EPOCH = 5


async def handle(ctx: Context, request: Any) -> Reply:
    producer = Identity(request.producer_id, request.producer_epoch)
    transactions, name = ctx.services.transactions, request.transactional_id
    commit = bool(request.committed)
    ticket = Waiting(lambda answer: _response(ctx, request, answer))
    if ctx.version < FIRST_WITH_EPOCH:
        transactions.end(name, producer, commit, ticket)
        return Delayed(ticket)
    fresh_id = None
    if transactions.ends_last_epoch(name):
        try:
            fresh_id = await ctx.services.producer_ids.generate()
        except ApiError:
            return error_response(ctx, request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    transactions.end_and_bump(name, producer, commit, fresh_id, ticket)
    return Delayed(ticket)


def _response(ctx: Context, request: Any, answer: Identity | ErrorCode) -> Response:
    if isinstance(answer, Identity):
        after = EndTxnResponse(
            error_code=0, producer_id=answer.producer_id, producer_epoch=answer.epoch
        )
        return Response(after)
    return error_response(ctx, request, answer)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    if code is ErrorCode.PRODUCER_FENCED and ctx.version < FIRST_WITH_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    names = (code.name,) if code else ()
    return Response(EndTxnResponse(error_code=int(code)), error_names=names)
