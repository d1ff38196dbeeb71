"""DescribeAcls, API 29, v0-3: who may do what.  There is no authorizer: SECURITY_DISABLED."""

from __future__ import annotations

from typing import Any

from broker.context import Api, Context, Reply
from broker.response import Response
from highwater.common.errors import ErrorCode
from highwater.common.wire.messages import DescribeAclsResponse

API = Api(key=29, name="DescribeAcls", versions=(0, 3))

NO_AUTHORIZER = "no authorizer is configured"


def handle(ctx: Context, request: Any) -> Reply:
    return error_response(ctx, request, ErrorCode.SECURITY_DISABLED)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    answer = DescribeAclsResponse(error_code=int(code), error_message=NO_AUTHORIZER, resources=[])
    return Response(answer, error_names=(code.name,))
