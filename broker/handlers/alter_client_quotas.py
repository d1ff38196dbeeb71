"""AlterClientQuotas, API 49, v0-1: sets quotas.  They are not built: refused, rather than stored
unheeded.
"""

from __future__ import annotations

from typing import Any

from broker.context import Api, Context, Reply, Response
from highwater.common.errors import ErrorCode
from highwater.common.wire.messages import AlterClientQuotasResponse

API = Api(key=49, name="AlterClientQuotas", versions=(0, 1))

_Entry = AlterClientQuotasResponse.EntryData
_Entity = _Entry.EntityData


def handle(ctx: Context, request: Any) -> Reply:
    return error_response(ctx, request, ErrorCode.UNSUPPORTED_VERSION)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    entries = [
        _Entry(
            error_code=int(code),
            error_message="quotas are not supported",
            entity=[
                _Entity(entity_type=e.entity_type, entity_name=e.entity_name) for e in entry.entity
            ],
        )
        for entry in request.entries
    ]
    return Response(AlterClientQuotasResponse(entries=entries), error_names=(code.name,))
