"""InitProducerId, API 22, v0-5: gives an idempotent producer its id.

Without a transactional id every question gets a new producer id, in epoch 0; one that names its old
id and epoch (v3, KIP-360) gets a new id, too.  With a transactional id it takes a transaction
coordinator, which is not built: COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

from typing import Any

from broker.admin.topics import zookeeper_errors
from broker.context import Api, Context, Reply, Response
from highwater.common.errors import ApiError, ErrorCode
from highwater.common.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from highwater.common.wire.messages import InitProducerIdResponse

API = Api(key=22, name="InitProducerId", versions=(0, 5))

FIRST_WITH_OLD_ID = 3


async def handle(ctx: Context, request: Any) -> Reply:
    if ctx.version >= FIRST_WITH_OLD_ID:
        no_id = request.producer_id == NO_PRODUCER_ID
        no_epoch = request.producer_epoch == NO_PRODUCER_EPOCH
        if no_id != no_epoch:
            return error_response(ctx, request, ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        if request.transactional_id == "":
            return error_response(ctx, request, ErrorCode.INVALID_REQUEST)
        return error_response(ctx, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    try:
        with zookeeper_errors():
            producer_id = await ctx.services.producer_ids.generate()
    except ApiError:
        # what a producer repeats: it has nothing yet that it could lose
        return error_response(ctx, request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return Response(InitProducerIdResponse(error_code=0, producer_id=producer_id, producer_epoch=0))


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    answer = InitProducerIdResponse(error_code=int(code), producer_id=-1, producer_epoch=-1)
    return Response(answer, error_names=(code.name,))
