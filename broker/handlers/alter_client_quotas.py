"""AlterClientQuotas, API 49, v0-1: sets and removes quotas of users, clients and addresses.

Any broker does it, and all of them follow.  Each entity has its own error.  v1 is flexible.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.admin.change_waits import once_followed
from highwater.broker.admin.mutations import error_names
from highwater.broker.context import Access, Api, Context, Reply, cluster
from highwater.broker.request.response import Response
from highwater.broker.settings.client_quotas import Operation, alter
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security import acls
from highwater.kafka.wire.messages import AlterClientQuotasResponse
from highwater.kafka.znodes import CONFIG_CHANGES

API = Api(
    key=49,
    name="AlterClientQuotas",
    versions=(0, 1),
    access=Access(whole=(cluster(acls.Operation.ALTER_CONFIGS),)),
)

_Entry = AlterClientQuotasResponse.EntryData


async def handle(ctx: Context, request: Any) -> Reply:
    entries: dict[frozenset[tuple[str, str | None]], Any] = {}
    codes = []
    for entry in request.entries:
        code, message = ErrorCode.NONE, None
        try:
            entity = {e.entity_type: e.entity_name for e in entry.entity}
            if len(entity) != len(entry.entity):
                raise ApiError(ErrorCode.INVALID_REQUEST, "an entity that names a type twice")
            operations = [Operation(op.key, None if op.remove else op.value) for op in entry.ops]
            await alter(ctx.services.zk, entity, operations, bool(request.validate_only))
        except ApiError as e:
            code, message = e.code, e.detail
        # an entity that is named twice is changed twice, and answered once
        named = frozenset((e.entity_type, e.entity_name) for e in entry.entity)
        entries[named] = _result(entry, code, message)
        codes.append(code)
    message_of_all = AlterClientQuotasResponse(entries=list(entries.values()))
    answer = Response(message_of_all, error_names=error_names(codes))
    if request.validate_only:
        return answer
    return await once_followed(ctx.services, answer, CONFIG_CHANGES)


def _result(entry: Any, code: ErrorCode, message: str | None) -> Any:
    return _Entry(
        error_code=int(code),
        error_message=message,
        entity=[
            _Entry.EntityData(entity_type=e.entity_type, entity_name=e.entity_name)
            for e in entry.entity
        ],
    )


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    entries = [_result(entry, code, None) for entry in request.entries]
    return Response(AlterClientQuotasResponse(entries=entries), error_names=(code.name,))
