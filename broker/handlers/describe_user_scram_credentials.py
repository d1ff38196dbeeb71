"""DescribeUserScramCredentials, API 50, v0: the users that have SCRAM credentials (KIP-554).

SASL is not built, so no user has: an empty list, or RESOURCE_NOT_FOUND for each named user.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.context import Api, Context, Reply
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire.messages import DescribeUserScramCredentialsResponse

API = Api(key=50, name="DescribeUserScramCredentials", versions=(0, 0))


def handle(ctx: Context, request: Any) -> Reply:
    asked = [user.name for user in request.users or ()]
    results = []
    for name in dict.fromkeys(asked):
        code, message = ErrorCode.RESOURCE_NOT_FOUND, f"user {name!r} has no SCRAM credentials"
        if asked.count(name) > 1:
            code, message = ErrorCode.DUPLICATE_RESOURCE, f"user {name!r} is named more than once"
        results.append(
            DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult(
                user=name, error_code=int(code), error_message=message, credential_infos=[]
            )
        )
    return Response(DescribeUserScramCredentialsResponse(error_code=0, results=results))


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    answer = DescribeUserScramCredentialsResponse(error_code=int(code), results=[])
    return Response(answer, error_names=(code.name,))
