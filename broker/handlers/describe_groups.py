"""DescribeGroups, API 15, v0-5: members and state of groups.

Group coordinators are not built: COORDINATOR_NOT_AVAILABLE, which clients repeat.
"""

from __future__ import annotations

from typing import Any

from broker.context import Api, Context, Reply, Response
from highwater.common.errors import ErrorCode
from highwater.common.wire.messages import DescribeGroupsResponse

API = Api(key=15, name="DescribeGroups", versions=(0, 5))


def handle(ctx: Context, request: Any) -> Reply:
    return error_response(ctx, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    groups = [
        DescribeGroupsResponse.DescribedGroup(
            error_code=int(code),
            group_id=group,
            group_state="",
            protocol_type="",
            protocol_data="",
            members=[],
        )
        for group in request.groups
    ]
    return Response(DescribeGroupsResponse(groups=groups), error_names=(code.name,))
