"""RenewDelegationToken, API 39, v0-2: puts off when a token expires (KIP-48).

Its owner and its renewers may do it, by the token's HMAC.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.admin.change_waits import once_followed
from highwater.broker.context import Access, Api, Context, Reply
from highwater.broker.request.response import Response
from highwater.broker.settings.token_manager import require_own_login
from highwater.kafka.errors import ErrorCode
from highwater.kafka.token_znodes import TOKEN_CHANGES
from highwater.kafka.wire.token_messages import RenewDelegationTokenResponse

API = Api(
    key=39,
    name="RenewDelegationToken",
    versions=(0, 2),
    access=Access(inside="the token's owner and renewers alone"),
)


async def handle(ctx: Context, request: Any) -> Reply:
    require_own_login(ctx.security_protocol, ctx.principal, ctx.by_token)
    hmac, period_ms = bytes(request.hmac), request.renew_period_ms
    expires_ms = await ctx.services.tokens.renew(ctx.principal, hmac, period_ms)
    answer = RenewDelegationTokenResponse(error_code=0, expiry_timestamp_ms=expires_ms)
    return await once_followed(ctx.services, Response(answer), TOKEN_CHANGES)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    answer = RenewDelegationTokenResponse(error_code=int(code), expiry_timestamp_ms=-1)
    return Response(answer, error_names=(code.name,))
