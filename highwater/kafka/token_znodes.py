"""The znodes of delegation tokens: one a token, and announcements of what changed (KIP-48).

A znode does not hold the token's HMAC, which every broker computes by the secret key that all of
them have.  Brokers of a mixed cluster share the znodes.

Source: kafka.server.DelegationTokenManagerZk of 3.9.
"""

from __future__ import annotations

from highwater.kafka.sanitizer import desanitize, sanitize
from highwater.kafka.security.delegation_tokens import Token
from highwater.kafka.znode_fields import MOST_LONG, BadZnode, decode_json, field, text, whole
from highwater.kafka.znodes import encode_json, is_inner_path

TOKENS, TOKEN_CHANGES = "/delegation_token/tokens", "/delegation_token/token_changes"
TOKEN_PATHS = (TOKENS, TOKEN_CHANGES)
"""Made like PERSISTENT_PATHS where there is a secret key."""
_VERSION, _WITH_REQUESTER = 3, 3


def token_path(token_id: str) -> str:
    return f"{TOKENS}/{token_id}"


def encode_token(token: Token) -> bytes:
    return encode_json(
        {
            "version": _VERSION,
            "owner": sanitize(token.owner),
            "tokenRequester": sanitize(token.requester),
            "renewers": [sanitize(renewer) for renewer in token.renewers],
            "issueTimestamp": token.issued_ms,
            "maxTimestamp": token.ends_ms,
            "expiryTimestamp": token.expires_ms,
            "tokenId": token.id,
        }
    )


def decode_token(path: str, data: bytes) -> Token:
    """Raises BadZnode."""
    value = decode_json(path, data)
    version = whole(path, value, "version", 1, _VERSION)
    owner = _principal(path, text(path, value, "owner"))
    named = version >= _WITH_REQUESTER
    requester = _principal(path, text(path, value, "tokenRequester")) if named else owner
    renewers = field(path, value, "renewers")
    if not isinstance(renewers, list) or not all(isinstance(one, str) for one in renewers):
        raise BadZnode(f"{path} has no list of texts in 'renewers'")
    token_id = text(path, value, "tokenId")
    if path != token_path(token_id):
        raise BadZnode(f"{path} is about another token, {token_id!r}")
    issued, ends, expires = (
        whole(path, value, name, 0, MOST_LONG)
        for name in ("issueTimestamp", "maxTimestamp", "expiryTimestamp")
    )
    known_renewers = tuple(_principal(path, one) for one in renewers)
    return Token(token_id, owner, requester, known_renewers, issued, ends, expires)


def _principal(path: str, sanitized: str) -> str:
    found = desanitize(sanitized)
    kind, colon, _ = found.partition(":")
    if not (kind and colon):  # as Kafka does, which takes an empty name
        raise BadZnode(f"{path} has a principal that is not TYPE:NAME: {sanitized[:200]!r}")
    return found


def decode_token_change(data: bytes) -> str:
    """The id of the token that changed; raises BadZnode."""
    try:
        found = str(data, "utf-8")
    except UnicodeDecodeError:
        found = ""
    if not is_inner_path(found) or "/" in found:
        raise BadZnode(f"an announced change of a delegation token is not its id: {data[:200]!r}")
    return found
