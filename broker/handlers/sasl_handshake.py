"""SaslHandshake, API 17, v0-1: names the mechanism by which a connection will authenticate.

After v0 a client sends its tokens without headers, which is not built: v0 is refused with
UNSUPPORTED_VERSION.  Where a listener does not use SASL, and after a successful authentication, the
answer is ILLEGAL_SASL_STATE without mechanisms.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.context import OPEN, Api, Context, Delayed, Reply
from highwater.broker.request.failed_authentication import answered
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire.messages import SaslHandshakeResponse

API = Api(key=17, name="SaslHandshake", versions=(0, 1), access=OPEN)


def handle(ctx: Context, request: Any) -> Reply:
    machine = ctx.authentication
    if machine is None:
        return error_response(ctx, request, ErrorCode.ILLEGAL_SASL_STATE)
    answer = machine.handshake(request.mechanism, ctx.version)
    mechanisms = [] if answer.code is ErrorCode.ILLEGAL_SASL_STATE else machine.mechanisms
    message = SaslHandshakeResponse(error_code=int(answer.code), mechanisms=mechanisms)
    reply = answered(ctx.connection_id, machine, answer, message)
    return reply if isinstance(reply, Response) else Delayed(reply)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    answer = SaslHandshakeResponse(error_code=int(code), mechanisms=[])
    return Response(answer, error_names=(code.name,))
