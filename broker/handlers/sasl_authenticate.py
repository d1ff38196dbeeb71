"""SaslAuthenticate, API 36, v0-2: one step of an authentication that SaslHandshake began.

Only PLAINTEXT listeners are built, where it is not allowed: ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.context import Api, Context, Reply
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire.messages import SaslAuthenticateResponse

API = Api(key=36, name="SaslAuthenticate", versions=(0, 2))


def handle(ctx: Context, request: Any) -> Reply:
    return error_response(ctx, request, ErrorCode.ILLEGAL_SASL_STATE)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    answer = SaslAuthenticateResponse(
        error_code=int(code), error_message="this listener does not use SASL", auth_bytes=b""
    )
    return Response(answer, error_names=(code.name,))
