"""OAUTHBEARER: a client shows a token, and its subject is the user (KIP-255, KIP-768; RFC 7628).

The listener's properties say which tokens count:

* signed ones (JWS), where `sasl.oauthbearer.jwks.endpoint.url` names a JWKS file: signature,
  issuer, audience and times are checked.  PyJWT does the cryptography: an extra of the
  installation.
* unsecured ones, for tests, where no such file is named: any client can be any user.  The options
  `unsecuredValidator…` of the JAAS entry are Kafka's.

A bad token is answered by the JSON of RFC 7628, without the reason; after the client's reply to it,
the login fails.  The reason is in the broker's log, and no part of the token is in either.

Unlike Kafka's, an unsecured token with `nbf` does not count before that time.

Source: OAuthBearerSaslServer, OAuthBearerUnsecuredValidatorCallbackHandler,
OAuthBearerValidatorCallbackHandler in org.apache.kafka.common.security.oauthbearer.
"""

from __future__ import annotations

import json
import logging
import math
import re
from base64 import urlsafe_b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urlsplit
from urllib.request import url2pathname

from highwater.base.install_hint import install_hint
from highwater.kafka.config.security_rows import TOKEN_CHECKS
from highwater.kafka.security.authentication import Refused

if TYPE_CHECKING:
    from highwater.kafka.security.settings import ListenerSettings
    from highwater.world.api import World

log = logging.getLogger(__name__)

OAUTHBEARER = "OAUTHBEARER"
JWKS = "sasl.oauthbearer.jwks.endpoint.url"
HANDLER = "sasl.server.callback.handler.class"
*SIGNED, UNSECURED = TOKEN_CHECKS
_ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
_KVSEP = "\x01"
_GS2 = re.compile(
    "n,(?:a=((?:[\x01-\x7f](?<![=,])|=2C|=3D)+))?,\x01((?:[A-Za-z]+=[^\x01]*\x01)*)\x01"
)
_AUTH = re.compile(r"(\w+) +([-_~+/.A-Za-z0-9]+=*)")


class TokenError(Exception):
    """Why a token does not count, without a part of it."""

    def __init__(self, reason: str, scope: str | None = None) -> None:
        super().__init__(reason)
        self.scope = scope
        """The scope that it would need."""


class Claims(NamedTuple):
    user: str
    expires_ms: int
    """Wall clock."""


class Tokens(Protocol):
    def claims(self, token: str, now_ms: int) -> Claims:
        """The claims of a token that is valid at this time (wall clock); raises TokenError."""


class UnsecuredTokens:
    """JWS whose algorithm is none, and whose signature is empty."""

    def __init__(
        self,
        user: str = "sub",
        scope: str = "scope",
        required: Sequence[str] = (),
        skew_ms: int = 0,
    ) -> None:
        self._user, self._scope, self._required, self._skew_ms = user, scope, required, skew_ms

    def claims(self, token: str, now_ms: int) -> Claims:
        parts = token.split(".")
        if len(parts) != 3 or parts[2]:
            raise TokenError("a token with a signature, where unsecured ones are expected")
        header, claims = (_object(part) for part in parts[:2])
        if header.get("alg") != "none":
            raise TokenError(
                "a token whose algorithm is not none, where unsecured ones are expected"
            )
        expires_ms = _times(claims, now_ms, self._skew_ms)
        issued = _seconds(claims, "iat")
        if issued is not None and issued * 1000 > now_ms + self._skew_ms:
            raise TokenError("the token was issued in the future (iat): compare the clocks")
        has = _scope(claims, self._scope)
        if not set(self._required) <= set(has):
            missing = " ".join(self._required)
            raise TokenError(f"the token lacks the scope {missing!r}", missing)
        return Claims(_user(claims, self._user), expires_ms)


class SignedTokens:
    """JWS with a signature by one of these keys (a JWKS document)."""

    def __init__(
        self,
        jwks: Mapping[str, Any],
        user: str = "sub",
        issuer: str = "",
        audience: Sequence[str] = (),
        skew_ms: int = 30_000,
    ) -> None:
        """Raises ValueError with "problem; remedy"."""
        try:
            import jwt  # an extra: most brokers take no tokens
        except ImportError:
            problem = "it needs PyJWT, which is not installed"
            raise ValueError(f"{problem}; {install_hint('oauth')}") from None
        self._jwt = jwt
        self._keys: list[Any] = []
        for entry in jwks.get("keys") or ():
            try:
                key = jwt.PyJWK.from_dict(entry)
            except (jwt.PyJWTError, ValueError, TypeError, AttributeError):
                continue  # of a kind that is of no use here
            if key.algorithm_name in _ALGORITHMS:
                self._keys.append(key)
        if not self._keys:
            raise ValueError(f"it holds no public key for {', '.join(_ALGORITHMS)}; add one")
        self._user, self._issuer, self._audience = user, issuer, list(audience)
        self._skew_ms = skew_ms

    def claims(self, token: str, now_ms: int) -> Claims:
        jwt = self._jwt
        try:
            kid = jwt.get_unverified_header(token).get("kid")
        except jwt.PyJWTError:
            raise TokenError("it is no signed JSON web token") from None
        keys = [k for k in self._keys if kid is None or k.key_id == kid]
        if not keys:
            raise TokenError("the token is signed by a key that the JWKS file does not have")
        wrong: Exception | None = None
        for key in keys:
            try:
                claims = self._decoded(token, key)
            except jwt.PyJWTError as exc:
                wrong = exc
                continue
            return Claims(_user(claims, self._user), _times(claims, now_ms, self._skew_ms))
        raise TokenError(f"the token does not count: {wrong}") from None

    def _decoded(self, token: str, key: Any) -> dict[str, Any]:
        """The times are left to the caller, whose clock is the world's."""
        off = dict.fromkeys(("verify_exp", "verify_nbf", "verify_iat", "verify_sub"), False)
        options: Any = {"require": ["exp", "iat"], **off}
        found: dict[str, Any] = self._jwt.decode(
            token,
            key=key,
            algorithms=_ALGORITHMS,
            audience=self._audience or None,
            issuer=self._issuer or None,
            options=options,
        )
        return found


class OAuthExchange:
    """One token; a second message of the client's after one that does not count."""

    def __init__(self, tokens: Tokens, wall_ms: Callable[[], int]) -> None:
        self.user: str | None = None
        self.lifetime_ms: int | None = None
        self.by_token = False
        self._tokens = tokens
        self._wall_ms = wall_ms
        self._wrong: Refused | None = None

    def step(self, token: bytes) -> bytes:
        if self._wrong is not None:
            raise self._wrong
        wanted, shown = _message(token)
        now_ms = self._wall_ms()
        try:
            claims = self._tokens.claims(shown, now_ms)
        except TokenError as exc:
            answer = {"status": "invalid_token" if exc.scope is None else "insufficient_scope"}
            answer |= {} if exc.scope is None else {"scope": exc.scope}
            text = json.dumps(answer, separators=(",", ":"))
            self._wrong = Refused(str(exc), told=text)
            return text.encode()
        if wanted not in ("", claims.user):
            raise Refused(
                f"Authentication failed: Client requested an authorization id ({wanted}) that is "
                f"different from the token's principal name ({claims.user})",
                told=True,
            )
        self.user, self.lifetime_ms = claims.user, max(claims.expires_ms - now_ms, 1)
        return b""


def _message(token: bytes) -> tuple[str, str]:
    """Authorization id and token of the client's first message; raises Refused."""
    try:
        match = _GS2.fullmatch(token.decode("ascii"))
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise Refused("an invalid first message")
    pairs = dict(pair.partition("=")[::2] for pair in match[2].split(_KVSEP) if pair)
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None:
        raise Refused("a first message without a token")
    if auth[1].lower() != "bearer":
        raise Refused(f"a first message with a token of the kind {auth[1][:20]!r}, not Bearer")
    return (match[1] or "").replace("=2C", ",").replace("=3D", "="), auth[2]


def _object(part: str) -> dict[str, Any]:
    try:
        found = json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (Base64Error, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise TokenError("it is no JSON web token")
    return found


def _seconds(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if not good or not math.isfinite(value) or abs(value) > 1e12:
        raise TokenError(f"the token's {name} is no number of seconds")
    return float(value)


def _times(claims: Mapping[str, Any], now_ms: int, skew_ms: int) -> int:
    """When it expires (ms); raises TokenError where it has, or does not count yet."""
    expires, begins = _seconds(claims, "exp"), _seconds(claims, "nbf")
    issued = _seconds(claims, "iat")
    if expires is None:
        raise TokenError("the token does not say when it expires (exp)")
    if now_ms >= expires * 1000 + skew_ms:
        late_s = (now_ms - expires * 1000) / 1000
        raise TokenError(f"the token expired {late_s:.0f} s ago: renew it, or compare the clocks")
    if begins is not None and now_ms < begins * 1000 - skew_ms:
        raise TokenError("the token does not count yet (nbf): compare the clocks")
    if issued is not None and expires <= issued:
        raise TokenError("the token expires before it is issued")
    return int(expires * 1000)


def _user(claims: Mapping[str, Any], name: str) -> str:
    user = claims.get(name)
    if not isinstance(user, str) or not user.strip():
        raise TokenError(f"the token names no user ({name})")
    if not user.isprintable():
        raise TokenError(f"the token names a user that cannot be written in a line ({name})")
    return user


def _scope(claims: Mapping[str, Any], name: str) -> list[str]:
    found = claims.get(name, [])
    if isinstance(found, str):
        return found.split()
    return [str(one) for one in found] if isinstance(found, list) else []


def accepted_tokens(settings: ListenerSettings, world: World, options: Mapping[str, str]) -> Tokens:
    """The tokens that a listener accepts, by its properties and the options of its JAAS entry;
    raises ConfigError."""

    def of(name: str) -> str:
        return settings.of_mechanism(OAUTHBEARER, name)[1]

    url, handler = of(JWKS), of(HANDLER)
    name = settings.of_mechanism(OAUTHBEARER, JWKS)[0]
    if handler and handler not in (*SIGNED, UNSECURED):
        problem = "no Java class can be loaded"
        remedy = f"use {SIGNED[0]}, or leave it out"
        raise settings.wrong_at(settings.of_mechanism(OAUTHBEARER, HANDLER)[0], problem, remedy)
    if not url and handler in SIGNED:
        raise settings.wrong_at(
            name, "signed tokens need their keys", "name a JWKS file, file:///…"
        )
    if url and handler == UNSECURED:
        raise settings.wrong_at(name, f"{UNSECURED} checks no signature", "remove one of the two")
    if not url:
        return _unsecured(settings, options)
    place = urlsplit(url)
    if place.scheme != "file" or place.netloc not in ("", "localhost"):
        raise settings.wrong_at(name, "keys are read from a file alone", "use file:///PATH", url)
    try:
        jwks = json.loads(world.disk.read_all(url2pathname(place.path)))
        if not isinstance(jwks, dict):
            raise ValueError("it is no JWKS document; give one with a list of keys")
        audience = [one.strip() for one in of("sasl.oauthbearer.expected.audience").split(",")]
        return SignedTokens(
            jwks,
            of("sasl.oauthbearer.sub.claim.name"),
            of("sasl.oauthbearer.expected.issuer"),
            [one for one in audience if one],
            int(of("sasl.oauthbearer.clock.skew.seconds")) * 1000,
        )
    except json.JSONDecodeError:
        raise settings.wrong_at(name, "it is no JSON", "give a JWKS document", url) from None
    except OSError as exc:
        raise settings.wrong_at(name, exc.strerror or str(exc), "name a file", url) from exc
    except ValueError as exc:
        problem, _, remedy = str(exc).partition("; ")
        raise settings.wrong_at(name, problem, remedy, url) from None


def _unsecured(settings: ListenerSettings, options: Mapping[str, str]) -> Tokens:
    log.warning(
        "listener %s takes OAUTHBEARER tokens without a signature, for tests: any client can be "
        "any user; %s makes them safe",
        settings.listener,
        JWKS,
    )
    prefix = "unsecuredValidator"
    skew = options.get(f"{prefix}AllowableClockSkewMs", "0")
    if not skew.isdecimal():
        name = settings.of_mechanism(OAUTHBEARER, "sasl.jaas.config")[0]
        problem = f"{prefix}AllowableClockSkewMs is no number of milliseconds"
        raise settings.wrong_at(name, problem, "write 1000, for instance")
    return UnsecuredTokens(
        options.get(f"{prefix}PrincipalClaimName", "sub"),
        options.get(f"{prefix}ScopeClaimName", "scope"),
        options.get(f"{prefix}RequiredScope", "").split(),
        int(skew),
    )
