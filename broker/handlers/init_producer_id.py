"""InitProducerId, API 22, v0-5: gives an idempotent or transactional producer its id and epoch.

Without a transactional id every request gets a new producer id, in epoch 0, even one that names its
old id and epoch (v3, KIP-360).  With a transactional id the answer is that id's producer id in a
higher epoch, which fences the producer that had the id before.  An open transaction is aborted
first; meanwhile the client must ask again (CONCURRENT_TRANSACTIONS).
"""

from __future__ import annotations

from typing import Any

from highwater.broker.context import Access, Api, Context, Delayed, Need, Reply
from highwater.broker.coordinator.pending import Waiting
from highwater.broker.coordinator.transaction.transaction import Identity
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from highwater.kafka.wire.messages import InitProducerIdResponse


def _needs(request: Any, _: Any) -> tuple[Need, ...]:
    """A client that may write anywhere may have a producer id (KIP-679)."""
    name = request.transactional_id
    if name is not None:
        return (Need(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name),)
    anywhere = Need(Operation.WRITE, ResourceType.TOPIC, None)
    return anywhere, Need(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)


API = Api(key=22, name="InitProducerId", versions=(0, 5), access=Access(whole=(_needs,)))

FIRST_WITH_OLD_ID = 3
FIRST_WITH_FENCED = 4


async def handle(ctx: Context, request: Any) -> Reply:
    expected = None
    if ctx.version >= FIRST_WITH_OLD_ID:
        no_id = request.producer_id == NO_PRODUCER_ID
        no_epoch = request.producer_epoch == NO_PRODUCER_EPOCH
        if no_id != no_epoch:
            return error_response(ctx, request, ErrorCode.INVALID_REQUEST)
        if not no_id:
            expected = Identity(request.producer_id, request.producer_epoch)
    if request.transactional_id is not None:
        return await _transactional(ctx, request, expected)
    try:
        producer_id = await ctx.services.producer_ids.generate()
    except ApiError:
        # a producer repeats these: it has nothing yet that it could lose
        return error_response(ctx, request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return _response(Identity(producer_id, 0))


async def _transactional(ctx: Context, request: Any, expected: Identity | None) -> Reply:
    transactions, name = ctx.services.transactions, request.transactional_id
    fresh_id = None
    if transactions.needs_producer_id(name, request.transaction_timeout_ms, expected):
        try:
            fresh_id = await ctx.services.producer_ids.generate()
        except ApiError:
            return error_response(ctx, request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def render(answer: Any) -> Response:
        if isinstance(answer, Identity):
            return _response(answer)
        return error_response(ctx, request, answer)

    ticket = Waiting(render)
    transactions.init(name, request.transaction_timeout_ms, expected, fresh_id, ticket)
    return Delayed(ticket)


def _response(identity: Identity) -> Response:
    answer = InitProducerIdResponse(
        error_code=0, producer_id=identity.producer_id, producer_epoch=identity.epoch
    )
    return Response(answer)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    if code is ErrorCode.PRODUCER_FENCED and ctx.version < FIRST_WITH_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    answer = InitProducerIdResponse(error_code=int(code), producer_id=-1, producer_epoch=-1)
    return Response(answer, error_names=(code.name,))
