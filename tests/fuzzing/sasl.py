"""Logins by every mechanism, as strangers may try them: the handshake, and token after token.

A login ends with the user whose secret was used, or with a refusal: one line for the log without a
part of the secret, an answer that can be encoded, and nothing else.  A token that was changed
proves nothing.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from functools import cache, partial
from random import Random
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from scramp import ScramException, ScramMechanism
from scramp.core import ScramClient

from highwater.kafka.errors import ErrorCode
from highwater.kafka.security.authentication import Authentication, SaslSettings
from highwater.kafka.security.mechanisms import SCRAM_MECHANISMS, PlainExchange, ScramExchange
from highwater.kafka.security.oauth import OAuthExchange, SignedTokens, Tokens, UnsecuredTokens
from highwater.kafka.security.scram_users import Credential, ScramUsers, encode_credential
from highwater.kafka.wire.codec import encode_response
from highwater.kafka.wire.messages import SaslAuthenticateResponse
from tests.fuzzing.requests import damaged

USER, SECRET = "alice", "a-s3cret"
NOW_MS = 1_700_000_000_000
NAMES = (USER, USER, USER, "bob", "", "a,b", "=2C", "=", "\xad", "\u0627\u0031", "ü" * 200, "a\n")
CLAIMS: tuple[Any, ...] = (
    None,
    0,
    -1,
    1e300,
    1 << 80,
    True,
    "",
    " ",
    "\ud800",
    "a\nb",
    [],
    {},
    ["kafka"],
    USER,
)
RIGHT = tuple(f"{who}\0{USER}\0{SECRET}".encode() for who in ("", USER))
"""PLAIN's tokens that prove a user."""
_AUTHORIZATION, _NEXT = "authorization", "next"
LONGEST_LINE = 2000


@cache
def _users() -> ScramUsers:
    users, properties = ScramUsers(), {}
    for mechanism in SCRAM_MECHANISMS:
        made = ScramMechanism(mechanism).make_auth_info(SECRET, iteration_count=4096)
        properties[mechanism] = encode_credential(Credential(*made))
    users.configured(USER, properties)
    return users


@cache
def _key() -> Any:
    return ec.generate_private_key(ec.SECP256R1())


@cache
def _signed() -> Tokens:
    key = jwt.algorithms.ECAlgorithm.to_jwk(_key().public_key(), as_dict=True)
    return SignedTokens({"keys": [{**key, "alg": "ES256", "use": "sig", "kid": "k"}]})


def _settings() -> SaslSettings:
    exchanges: dict[str, Any] = {
        "PLAIN": partial(PlainExchange, {USER: SECRET}),
        "OAUTHBEARER": partial(OAuthExchange, UnsecuredTokens(), lambda: NOW_MS),
        "SIGNED": partial(OAuthExchange, _signed(), lambda: NOW_MS),
    }
    for mechanism in SCRAM_MECHANISMS:
        exchanges[mechanism] = partial(ScramExchange, mechanism, partial(_users().get, mechanism))
    return SaslSettings(exchanges, {"PLAIN": 5000}, 1 << 19, 0)


def check_login(chance: Random) -> str:
    """One connection's whole authentication; gives what came of it."""
    machine = Authentication(_settings())
    mechanism = chance.choice(list(machine.settings.exchanges))
    asked = mechanism if chance.random() < 0.95 else chance.choice(("", "GSSAPI", "x" * 9000, "\n"))
    check_answer(machine.handshake(asked, chance.choice((1, 1, 1, 1, 0))))
    client = _Client(chance, mechanism)
    for _ in range(4):
        token = client.token()
        answer = machine.authenticate(token, 0)
        check_answer(answer)
        if machine.complete:
            assert client.honest, f"{mechanism}: logged in by {token!r}"
            if client.proves_name:
                assert machine.principal == f"User:{client.name}", machine.principal
            assert machine.principal.isprintable(), ascii(machine.principal)
            check_answer(machine.authenticate(b"", 0))
            return "known"
        if answer.code is not ErrorCode.NONE:
            break
        client.answered(answer.token)
    assert not machine.known, machine.principal
    return "refused"


def check_kept(mechanism: str, tokens: Sequence[bytes]) -> Authentication:
    """The same for tokens that are known."""
    machine = Authentication(_settings())
    check_answer(machine.handshake(mechanism, 1))
    for token in tokens:
        check_answer(machine.authenticate(token, 0))
    assert machine.principal.isprintable(), ascii(machine.principal)
    return machine


def check_answer(answer: Any) -> None:
    message = SaslAuthenticateResponse(
        error_code=int(answer.code), error_message=answer.message or "", auth_bytes=answer.token,
        session_lifetime_ms=answer.lifetime_ms,
    )  # fmt: skip
    encode_response(message, 2)
    assert answer.log.isprintable(), f"not one line: {answer.log!r}"
    assert len(answer.log) < LONGEST_LINE, f"a line of {len(answer.log)} characters"
    assert SECRET not in answer.log + (answer.message or ""), answer.log


class _Client:
    """Makes tokens; `honest` as long as each of them is right.  A token without a signature that
    was changed may be a right one for another name: then it `proves_name` no more."""

    def __init__(self, chance: Random, mechanism: str) -> None:
        self.chance = chance
        self.mechanism = mechanism
        self.name = chance.choice(NAMES)
        self.honest = self.proves_name = True
        self._scram: Any = None
        self._answer: str | None = None
        self._right = True

    def token(self) -> bytes:
        made = self._made()
        if self.chance.random() < 0.6:
            return made
        changed = damaged(self.chance, made) if self.chance.random() < 0.6 else self._edited(made)
        if changed != made:
            # base64 has bits that nobody reads, and a scheme may be written in capitals: those
            # stay the same token, so only names and secrets say that a login is wrong
            if self.mechanism == "PLAIN":  # what is left out may be what was wrong
                self.honest = changed in RIGHT
            self.proves_name = self.proves_name and self.mechanism != "OAUTHBEARER"
        return changed

    def answered(self, token: bytes) -> None:
        self._answer = token.decode()

    def _made(self) -> bytes:
        if self.mechanism == "PLAIN":
            return self._plain()
        if self.mechanism in SCRAM_MECHANISMS:
            return self._scrammed()
        return self._bearer()

    def _plain(self) -> bytes:
        secret = self.chance.choice((SECRET, SECRET, "guess", ""))
        who = self.chance.choice(("", "", self.name, "bob"))
        self.honest = self.name == USER and secret == SECRET and who in ("", USER)
        return f"{who}\0{self.name}\0{secret}".encode("utf-8", "surrogatepass")

    def _scrammed(self) -> bytes:
        """The right message where that is possible, else one of the same form."""
        if self._scram is None:
            secret = self.chance.choice((SECRET, SECRET, "guess"))
            self.honest = self.name == USER and secret == SECRET
            try:
                self._scram = ScramClient([self.mechanism], self.name, secret)
                return str(self._scram.get_client_first()).encode()
            except (ScramException, ValueError):
                self._scram = object()
                return f"n,,n={self.name},r=abc".encode()
        try:
            self._scram.set_server_first(self._answer)
            return str(self._scram.get_client_final()).encode()
        except (ScramException, ValueError, AttributeError):
            return b"c=biws,r=abc,p=YWJj"

    def _bearer(self) -> bytes:
        claims: dict[str, Any] = {"sub": self.name, "iat": 1_699_999_000, "exp": 1_700_000_900}
        if self.chance.random() < 0.5:
            claims[self.chance.choice(("sub", "iat", "exp", "nbf", "scope", "aud"))] = (
                self.chance.choice(CLAIMS)
            )
        found = claims["sub"]
        self.name = found if isinstance(found, str) else self.name
        if self.mechanism == "SIGNED" and self.chance.random() < 0.8:
            try:
                token = jwt.encode(claims, _key(), "ES256", {"kid": "k"})
            except (TypeError, ValueError):
                token = "a.b.c"
        else:
            # of a token without a signature, nothing is proved
            head: Any = self.chance.choice(
                ({"alg": "none"}, {"alg": "none"}, {"alg": "ES256", "kid": []}, {"alg": 1}, [])
            )
            token = f"{_part(head)}.{_part(claims)}."
        who = self.chance.choice(("", "", f"a={self.name}", "a=bob", "a=", "y"))
        text = f"n,{who},\x01auth=Bearer {token}\x01\x01"
        return text.encode("utf-8", "surrogatepass")

    def _edited(self, made: bytes) -> bytes:
        """With one attribute left out, doubled, moved or replaced."""
        by = self.chance.choice((b",", b"\0", b"\x01", b".", b"="))
        parts = made.split(by)
        at = self.chance.randrange(len(parts))
        what = self.chance.randrange(4)
        if what == 0:
            del parts[at]
        elif what == 1:
            parts.insert(at, parts[at])
        elif what == 2:
            self.chance.shuffle(parts)
        else:
            parts[at] = self.chance.choice(
                (b"", b"m=x", b"p=", b"p=!", b"n=\xc2\xad", b"a=bob", b"r=", b"\xff", b"i=0",
                 b"A" * 9000, b"W10", b"W1tb" * 3000, b"e30", b"y")
            )  # fmt: skip
        return by.join(parts)


def _part(value: Any) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
