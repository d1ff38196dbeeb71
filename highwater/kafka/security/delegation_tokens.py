"""Delegation tokens: what a user hands to programs in place of a password (KIP-48), as a broker
knows them.

A token's HMAC, by the secret key that all brokers share, is its password: a client logs in by SCRAM
with the token's id as the user, and says so.  It is its owner then, but may not ask for tokens.

Source: org.apache.kafka.common.security.token.delegation, kafka.server.DelegationTokenManager.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Iterator
from typing import NamedTuple

from highwater.kafka.security.scram_users import HASHES, MIN_ITERATIONS, Credential, derived

SECRET = "delegation.token.secret.key"
SECRET_BEFORE = "delegation.token.master.key"


class Token(NamedTuple):
    """Principals are `TYPE:NAME`; times are wall milliseconds."""

    id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    ends_ms: int
    """No renewal goes beyond it."""
    expires_ms: int

    def expired(self, now_ms: int) -> bool:
        return min(self.ends_ms, self.expires_ms) < now_ms

    def of(self, principal: str) -> bool:
        """Whether it owns the token, or may renew it."""
        return principal == self.owner or principal in self.renewers


class TokenLogin(NamedTuple):
    owner: str
    lifetime_ms: int
    credential: Credential


class DelegationTokens:
    """All tokens of the cluster; with an empty secret there are none."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()
        self._tokens: dict[str, Token] = {}
        self._ids: dict[bytes, str] = {}
        self._credentials: dict[tuple[str, str], Credential] = {}

    @property
    def enabled(self) -> bool:
        return bool(self._secret)

    def __iter__(self) -> Iterator[Token]:
        return iter(list(self._tokens.values()))

    def put(self, token: Token) -> None:
        self._tokens[token.id] = token
        self._ids[self.hmac_of(token.id)] = token.id

    def forget(self, token_id: str) -> None:
        self._tokens.pop(token_id, None)
        self._ids.pop(self.hmac_of(token_id), None)
        for mechanism in HASHES:
            self._credentials.pop((mechanism, token_id), None)

    def hmac_of(self, token_id: str) -> bytes:
        return hmac.digest(self._secret, token_id.encode(), "sha512")

    def by_hmac(self, shown: bytes) -> Token | None:
        return self._tokens.get(self._ids.get(shown, ""))

    def login(self, mechanism: str, token_id: str, now_ms: int) -> TokenLogin | None:
        """None for a token that does not count, or not any more."""
        token = self._tokens.get(token_id)
        if token is None or token.expired(now_ms):
            return None
        credential = self._credentials.get((mechanism, token_id))
        if credential is None:
            credential = self._credentials[mechanism, token_id] = self._made(mechanism, token_id)
        left_ms = min(token.ends_ms, token.expires_ms) - now_ms
        return TokenLogin(token.owner, max(left_ms, 1), credential)

    def _made(self, mechanism: str, token_id: str) -> Credential:
        """Some milliseconds of work, at the first login of a token."""
        salt = hmac.digest(self._secret, f"{mechanism} {token_id}".encode(), "sha256")
        name = HASHES[mechanism]().name
        password = b64encode(self.hmac_of(token_id))
        salted = hashlib.pbkdf2_hmac(name, password, salt, MIN_ITERATIONS)
        return derived(mechanism, salt, salted, MIN_ITERATIONS)
