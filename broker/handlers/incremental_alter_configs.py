"""IncrementalAlterConfigs, API 44, v0-1: sets, deletes, appends to or subtracts from overrides
(KIP-339).

Any broker changes topics; two that change one topic at once do not undo each other, as the write is
conditional.  Only the broker itself changes its own properties and the levels of its loggers.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.admin import configs
from highwater.broker.admin.mutations import error_names
from highwater.broker.admin.topic_waits import ConfigWait
from highwater.broker.context import Api, Context, Delayed, Reply
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.wire.messages import IncrementalAlterConfigsResponse

API = Api(key=44, name="IncrementalAlterConfigs", versions=(0, 1))

_Result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse


async def handle(ctx: Context, request: Any) -> Reply:
    results, codes, changed = [], [], []
    resources = [(r.resource_type, r.resource_name) for r in request.resources]
    for resource in request.resources:
        code, message = ErrorCode.NONE, None
        try:
            if resources.count((resource.resource_type, resource.resource_name)) > 1:
                detail = "the resource is named more than once"
                raise ApiError(ErrorCode.INVALID_REQUEST, detail)
            await configs.alter(
                ctx.services,
                resource.resource_type,
                resource.resource_name,
                [(c.name, c.config_operation, c.value) for c in resource.configs],
                bool(request.validate_only),
            )
        except ApiError as e:
            code, message = e.code, e.detail
        results.append(
            _Result(
                error_code=int(code),
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
        codes.append(code)
        if code is ErrorCode.NONE and resource.resource_type == configs.ResourceType.TOPIC:
            changed.append(resource.resource_name)
    message = IncrementalAlterConfigsResponse(responses=results)
    answer = Response(message, error_names=error_names(codes))
    if request.validate_only or not changed:
        return answer
    return Delayed(ConfigWait(ctx.services, changed, answer))
