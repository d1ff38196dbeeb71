"""DeleteGroups, API 42, v0-2: deletes groups without members.

Group coordinators are not built: COORDINATOR_NOT_AVAILABLE, which clients repeat.
"""

from __future__ import annotations

from typing import Any

from broker.context import Api, Context, Reply, Response
from highwater.common.errors import ErrorCode
from highwater.common.wire.messages import DeleteGroupsResponse

API = Api(key=42, name="DeleteGroups", versions=(0, 2))


def handle(ctx: Context, request: Any) -> Reply:
    return error_response(ctx, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    results = [
        DeleteGroupsResponse.DeletableGroupResult(group_id=group, error_code=int(code))
        for group in request.groups_names
    ]
    return Response(DeleteGroupsResponse(results=results), error_names=(code.name,))
