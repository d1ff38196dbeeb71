"""FindCoordinator, API 10, v0-6: which broker looks after a group or a transactional id.

Coordinators are not built: the answer is COORDINATOR_NOT_AVAILABLE, which clients repeat.  From v4
on several keys are asked for at once.
"""

from __future__ import annotations

from typing import Any

from broker.context import Api, Context, Reply, Response
from highwater.common.errors import ErrorCode
from highwater.common.wire.messages import FindCoordinatorResponse

API = Api(key=10, name="FindCoordinator", versions=(0, 6))

FIRST_WITH_MANY = 4
GROUP, TRANSACTION = 0, 1
NOWHERE: dict[str, Any] = {"node_id": -1, "host": "", "port": -1}


def handle(ctx: Context, request: Any) -> Reply:
    known = ctx.version < 1 or request.key_type in (GROUP, TRANSACTION)
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE if known else ErrorCode.INVALID_REQUEST
    return error_response(ctx, request, code)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    if ctx.version < FIRST_WITH_MANY:
        answer = FindCoordinatorResponse(error_code=int(code), error_message=None, **NOWHERE)
        return Response(answer, error_names=(code.name,))
    coordinators = [
        FindCoordinatorResponse.Coordinator(key=key, error_code=int(code), **NOWHERE)
        for key in request.coordinator_keys
    ]
    return Response(FindCoordinatorResponse(coordinators=coordinators), error_names=(code.name,))
