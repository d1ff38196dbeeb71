"""AddOffsetsToTxn, API 25, v0-4: a group's offsets join a transaction.

It adds the partition of __consumer_offsets to which the group belongs.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.context import Access, Api, Context, Delayed, Reply, of
from highwater.broker.coordinator.pending import Waiting
from highwater.broker.coordinator.transaction.transaction import Identity
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.wire.messages import AddOffsetsToTxnResponse

API = Api(
    key=25,
    name="AddOffsetsToTxn",
    versions=(0, 4),
    access=Access(
        whole=(
            of(ResourceType.TRANSACTIONAL_ID, Operation.WRITE, "transactional_id"),
            of(ResourceType.GROUP, Operation.READ, "group_id"),
        )
    ),
)

FIRST_WITH_FENCED = 2


def handle(ctx: Context, request: Any) -> Reply:
    ticket = Waiting(lambda code: error_response(ctx, request, code))
    ctx.services.transactions.add_partitions(
        request.transactional_id,
        Identity(request.producer_id, request.producer_epoch),
        [ctx.services.groups.partition_of(request.group_id)],
        ticket,
    )
    return Delayed(ticket)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    if code is ErrorCode.PRODUCER_FENCED and ctx.version < FIRST_WITH_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    names = (code.name,) if code else ()
    return Response(AddOffsetsToTxnResponse(error_code=int(code)), error_names=names)
