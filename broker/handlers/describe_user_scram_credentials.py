"""DescribeUserScramCredentials, API 50, v0: which users have SCRAM credentials (KIP-554).

SASL is not built, so nobody has: an empty list, or RESOURCE_NOT_FOUND for each user that was named.
"""

from __future__ import annotations

from typing import Any

from broker.context import Api, Context, Reply, Response
from highwater.common.errors import ErrorCode
from highwater.common.wire.messages import DescribeUserScramCredentialsResponse

API = Api(key=50, name="DescribeUserScramCredentials", versions=(0, 0))


def handle(ctx: Context, request: Any) -> Reply:
    results = [
        DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult(
            user=user.name,
            error_code=int(ErrorCode.RESOURCE_NOT_FOUND),
            error_message=f"user {user.name!r} has no SCRAM credentials",
            credential_infos=[],
        )
        for user in request.users or ()
    ]
    return Response(DescribeUserScramCredentialsResponse(error_code=0, results=results))


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    answer = DescribeUserScramCredentialsResponse(error_code=int(code), results=[])
    return Response(answer, error_names=(code.name,))
