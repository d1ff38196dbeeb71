"""IncrementalAlterConfigs, API 44, v0-1: sets, deletes, appends to or subtracts from overrides
(KIP-339).

Any broker changes topics; two that change one topic at once do not undo each other, as the write is
conditional.  Only the broker itself changes its own properties and the levels of its loggers.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from highwater.broker.admin import configs
from highwater.broker.context import Api, Context, Reply
from highwater.broker.handlers.alter_configs import ACCESS, altered, refusal
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.wire.messages import IncrementalAlterConfigsResponse

API = Api(key=44, name="IncrementalAlterConfigs", versions=(0, 1), access=ACCESS)


async def handle(ctx: Context, request: Any) -> Reply:
    named = Counter((r.resource_type, r.resource_name) for r in request.resources)

    async def change(resource: Any) -> None:
        if named[resource.resource_type, resource.resource_name] > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the resource is named more than once")
        await configs.alter(
            ctx.services,
            resource.resource_type,
            resource.resource_name,
            [(c.name, c.config_operation, c.value) for c in resource.configs],
            bool(request.validate_only),
        )

    return await altered(ctx, request, change, IncrementalAlterConfigsResponse)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return refusal(request, code, IncrementalAlterConfigsResponse)
