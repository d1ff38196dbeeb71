"""DeleteAcls, API 31, v0-3: removes access rules.  There is no authorizer.

The answer is SECURITY_DISABLED.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.context import Api, Context, Reply
from highwater.broker.handlers.describe_acls import NO_AUTHORIZER
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire.messages import DeleteAclsResponse

API = Api(key=31, name="DeleteAcls", versions=(0, 3))


def handle(ctx: Context, request: Any) -> Reply:
    return error_response(ctx, request, ErrorCode.SECURITY_DISABLED)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    result = DeleteAclsResponse.DeleteAclsFilterResult(
        error_code=int(code), error_message=NO_AUTHORIZER, matching_acls=[]
    )
    answer = DeleteAclsResponse(filter_results=[result for _ in request.filters])
    return Response(answer, error_names=(code.name,))
