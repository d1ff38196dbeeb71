"""SaslHandshake, API 17, v0-1: names the mechanism by which a connection will authenticate.

Only PLAINTEXT listeners are built, where it is not allowed: ILLEGAL_SASL_STATE, and no mechanisms.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.context import Api, Context, Reply
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire.messages import SaslHandshakeResponse

API = Api(key=17, name="SaslHandshake", versions=(0, 1))


def handle(ctx: Context, request: Any) -> Reply:
    return error_response(ctx, request, ErrorCode.ILLEGAL_SASL_STATE)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    answer = SaslHandshakeResponse(error_code=int(code), mechanisms=[])
    return Response(answer, error_names=(code.name,))
