"""ListGroups, API 16, v0-5: the groups that this broker looks after.

Group coordinators are not built, so there are none.
"""

from __future__ import annotations

from typing import Any

from broker.context import Api, Context, Reply, Response
from highwater.common.errors import ErrorCode
from highwater.common.wire.messages import ListGroupsResponse

API = Api(key=16, name="ListGroups", versions=(0, 5))


def handle(ctx: Context, request: Any) -> Reply:
    return Response(ListGroupsResponse(error_code=0, groups=[]))


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return Response(ListGroupsResponse(error_code=int(code), groups=[]), error_names=(code.name,))
