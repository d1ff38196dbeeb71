"""DescribeDelegationToken, API 41, v0-3: tokens of some owners, or all that it may see (KIP-48).

A token may be seen by its owner and its renewers, by who may DESCRIBE it, and by who may
DESCRIBE_TOKENS of its owner.  The HMAC is shown with it.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.context import Access, Api, Context, Reply
from highwater.broker.request.response import Response
from highwater.broker.settings.token_manager import principals, require_own_login
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.security.delegation_tokens import Token
from highwater.kafka.wire.token_messages import DescribeDelegationTokenResponse

API = Api(
    key=41,
    name="DescribeDelegationToken",
    versions=(0, 3),
    access=Access(inside="tokens that it may not describe are hidden"),
)
_Token = DescribeDelegationTokenResponse.DescribedDelegationToken


def handle(ctx: Context, request: Any) -> Reply:
    require_own_login(ctx.security_protocol, ctx.principal, ctx.by_token)
    tokens = ctx.services.tokens.tokens
    if not tokens.enabled:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = request.owners
    asked = None if owners is None else [f"{o.principal_type}:{o.principal_name}" for o in owners]
    found = [
        _described(token, tokens.hmac_of(token.id))
        for token in tokens
        if (asked is None or any(map(token.of, asked))) and _shown(ctx, token)
    ]
    return Response(DescribeDelegationTokenResponse(error_code=0, tokens=found))


def _shown(ctx: Context, token: Token) -> bool:
    return (
        token.of(ctx.principal)
        or ctx.allows(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.id)
        or ctx.allows(Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
    )


def _described(token: Token, hmac: bytes) -> Any:
    renewers = [renewer.partition(":") for renewer in token.renewers]
    return _Token(
        **principals(token.owner, token.requester),
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.ends_ms,
        token_id=token.id,
        hmac=hmac,
        renewers=[
            _Token.DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, _, name in renewers
        ],
    )


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    answer = DescribeDelegationTokenResponse(error_code=int(code), tokens=[])
    return Response(answer, error_names=(code.name,))
