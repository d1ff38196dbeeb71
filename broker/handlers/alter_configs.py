"""AlterConfigs, API 33, v0-2: replaces all overrides of a topic; IncrementalAlterConfigs is better.

Any broker changes topics; only the broker itself changes its own properties (`admin/configs`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from highwater.broker.admin import configs
from highwater.broker.admin.change_waits import ChangeWait, announcements
from highwater.broker.admin.mutations import error_names
from highwater.broker.context import Access, Api, Context, Delayed, Reply
from highwater.broker.membership.agreement import about_configs
from highwater.broker.request.response import Response
from highwater.kafka import znodes
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation
from highwater.kafka.wire.messages import AlterConfigsResponse

ACCESS = Access(
    each=configs.needs(Operation.ALTER_CONFIGS), items=("resources",), answers="responses"
)
API = Api(key=33, name="AlterConfigs", versions=(0, 2), access=ACCESS)


async def handle(ctx: Context, request: Any) -> Reply:
    async def change(resource: Any) -> None:
        await configs.replace(
            ctx.services,
            resource.resource_type,
            resource.resource_name,
            {c.name: c.value for c in resource.configs},
            bool(request.validate_only),
        )

    return await altered(ctx, request, change, AlterConfigsResponse)


async def altered(
    ctx: Context, request: Any, change: Callable[[Any], Awaitable[None]], response: Any
) -> Reply:
    """Changes each resource; answers when every broker has the new configuration of topics,
    brokers and groups."""
    results, codes = [], []
    changed: dict[int, list[str]] = {}
    for resource in request.resources:
        code, message = ErrorCode.NONE, None
        try:
            await change(resource)
        except ApiError as e:
            code, message = e.code, e.detail
        results.append(
            response.AlterConfigsResourceResponse(
                error_code=int(code),
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
        codes.append(code)
        if code is ErrorCode.NONE:
            changed.setdefault(resource.resource_type, []).append(resource.resource_name)
    answer = Response(response(responses=results), error_names=error_names(codes))
    if request.validate_only:
        return answer
    questions = []
    if topics := changed.get(configs.ResourceType.TOPIC):
        questions.append(about_configs(ctx.services, topics))
    if changed.keys() & {configs.ResourceType.BROKER, configs.ResourceType.GROUP}:
        questions += await announcements(ctx.services, znodes.CONFIG_CHANGES)
    return Delayed(ChangeWait(ctx.services, questions, answer)) if questions else answer


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return refusal(request, code, AlterConfigsResponse)


def refusal(request: Any, code: ErrorCode, response: Any) -> Response:
    responses = [
        response.AlterConfigsResourceResponse(
            error_code=int(code),
            error_message=code.name,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource in request.resources
    ]
    return Response(response(responses=responses), error_names=(code.name,))
