"""SaslAuthenticate, API 36, v0-2: one step of an authentication that SaslHandshake began.

A failed one is answered after connection.failed.authentication.delay.ms, and the connection closed.
Where a listener does not use SASL, and after a successful one, it is ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.context import OPEN, Api, Context, Delayed, Reply
from highwater.broker.request.failed_authentication import answered
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire.messages import SaslAuthenticateResponse

API = Api(key=36, name="SaslAuthenticate", versions=(0, 2), access=OPEN)


def handle(ctx: Context, request: Any) -> Reply:
    machine = ctx.authentication
    if machine is None:
        return error_response(ctx, request, ErrorCode.ILLEGAL_SASL_STATE)
    answer = machine.authenticate(bytes(request.auth_bytes), ctx.now_ms)
    message = SaslAuthenticateResponse(
        error_code=int(answer.code),
        error_message=answer.message or "",
        auth_bytes=answer.token,
        session_lifetime_ms=answer.lifetime_ms,
    )
    reply = answered(ctx.connection_id, machine, answer, message)
    return reply if isinstance(reply, Response) else Delayed(reply)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    answer = SaslAuthenticateResponse(
        error_code=int(code), error_message="this listener does not use SASL", auth_bytes=b""
    )
    return Response(answer, error_names=(code.name,))
