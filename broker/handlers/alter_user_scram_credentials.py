"""AlterUserScramCredentials, API 51, v0: sets SCRAM credentials (KIP-554).

SASL is not built: UNSUPPORTED_SASL_MECHANISM for every user.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.context import Api, Context, Reply
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire.messages import AlterUserScramCredentialsResponse

API = Api(key=51, name="AlterUserScramCredentials", versions=(0, 0))


def handle(ctx: Context, request: Any) -> Reply:
    return error_response(ctx, request, ErrorCode.UNSUPPORTED_SASL_MECHANISM)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    users = dict.fromkeys(e.name for e in (*request.deletions, *request.upsertions))
    results = [
        AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult(
            user=user, error_code=int(code), error_message="SASL is not supported"
        )
        for user in users
    ]
    return Response(AlterUserScramCredentialsResponse(results=results), error_names=(code.name,))
