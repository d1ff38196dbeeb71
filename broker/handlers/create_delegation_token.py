"""CreateDelegationToken, API 38, v0-3: a token in place of a password (KIP-48).

Any broker makes it, and all of them follow.  v3 makes one for another user (KIP-373).
"""

from __future__ import annotations

from typing import Any

from highwater.broker.admin.change_waits import once_followed
from highwater.broker.context import Access, Api, Context, Reply
from highwater.broker.request.response import Response
from highwater.broker.settings.token_manager import principals, require_own_login
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.token_znodes import TOKEN_CHANGES
from highwater.kafka.wire.token_messages import CreateDelegationTokenResponse

API = Api(
    key=38,
    name="CreateDelegationToken",
    versions=(0, 3),
    access=Access(inside="CREATE_TOKENS on the user for whom it is, where that is another"),
)
_USER = "User"


async def handle(ctx: Context, request: Any) -> Reply:
    require_own_login(ctx.security_protocol, ctx.principal, ctx.by_token)
    if request.owner_principal_name and not request.owner_principal_type:
        raise ApiError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    owner = _owner(ctx, request)
    rights = (Operation.CREATE_TOKENS, ResourceType.USER, owner)
    if owner != ctx.principal and not ctx.allows(*rights):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    if any(renewer.principal_type != _USER for renewer in request.renewers):
        raise ApiError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    renewers = [f"{r.principal_type}:{r.principal_name}" for r in request.renewers]
    manager = ctx.services.tokens
    token = await manager.create(owner, ctx.principal, renewers, request.max_lifetime_ms)
    answer = Response(
        CreateDelegationTokenResponse(
            error_code=0,
            **principals(owner, ctx.principal),
            issue_timestamp_ms=token.issued_ms,
            expiry_timestamp_ms=token.expires_ms,
            max_timestamp_ms=token.ends_ms,
            token_id=token.id,
            hmac=manager.tokens.hmac_of(token.id),
        )
    )
    return await once_followed(ctx.services, answer, TOKEN_CHANGES)


def _owner(ctx: Context, request: Any) -> str:
    if not (request.owner_principal_name and request.owner_principal_type):
        return ctx.principal
    return f"{request.owner_principal_type}:{request.owner_principal_name}"


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    answer = CreateDelegationTokenResponse(
        error_code=int(code),
        **principals(_owner(ctx, request), ctx.principal),
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
        token_id="",
        hmac=b"",
    )
    return Response(answer, error_names=(code.name,))
