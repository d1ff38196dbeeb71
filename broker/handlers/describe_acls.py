"""DescribeAcls, API 29, v0-3: access rules.  There is no authorizer: SECURITY_DISABLED."""

from __future__ import annotations

from typing import Any

from highwater.broker.context import Api, Context, Reply
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire.messages import DescribeAclsResponse

API = Api(key=29, name="DescribeAcls", versions=(0, 3))

NO_AUTHORIZER = "no authorizer is configured"


def handle(ctx: Context, request: Any) -> Reply:
    return error_response(ctx, request, ErrorCode.SECURITY_DISABLED)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    answer = DescribeAclsResponse(error_code=int(code), error_message=NO_AUTHORIZER, resources=[])
    return Response(answer, error_names=(code.name,))
