"""OAUTHBEARER: which tokens count, what the client is told, and what the log says."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from highwater.kafka.config.checks import ConfigError
from highwater.kafka.errors import ErrorCode
from highwater.kafka.security.authentication import Authentication, Refused, SaslSettings
from highwater.kafka.security.jaas import OAUTH
from highwater.kafka.security.oauth import (
    OAuthExchange,
    SignedTokens,
    TokenError,
    Tokens,
    UnsecuredTokens,
)
from highwater.kafka.security.sasl import SaslLogin, sasl_settings
from highwater.kafka.security.scram_users import ScramUsers
from highwater.kafka.security.settings import ListenerSettings

NOW_MS = 1_700_000_000_000
NOW = NOW_MS // 1000
CLAIMS = {"sub": "alice", "iat": NOW - 100, "exp": NOW + 60, "iss": "me", "aud": "kafka"}


def part(value: Any) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def unsecured(**claims: Any) -> str:
    given = {k: v for k, v in ({"sub": "alice", "exp": NOW + 60} | claims).items() if v is not None}
    return f"{part({'alg': 'none'})}.{part(given)}."


def message(token: str, authorization: str = "", **extensions: str) -> bytes:
    pairs = "".join(f"{k}={v}\x01" for k, v in extensions.items())
    who = f"a={authorization}" if authorization else ""
    return f"n,{who},\x01auth=Bearer {token}\x01{pairs}\x01".encode()


def exchange(tokens: Tokens | None = None) -> OAuthExchange:
    return OAuthExchange(tokens or UnsecuredTokens(), lambda: NOW_MS)


def test_a_token_names_the_user_and_ends_the_session() -> None:
    made = exchange()
    assert made.step(message(unsecured(), "alice", traceId="7")) == b""
    assert (made.user, made.lifetime_ms) == ("alice", 60_000)


@pytest.mark.parametrize(("limit_ms", "lifetime_ms"), [(0, 60_000), (5_000, 5_000)])
def test_a_session_lasts_no_longer_than_its_token(limit_ms: int, lifetime_ms: int) -> None:
    settings = SaslSettings({"OAUTHBEARER": exchange}, {"OAUTHBEARER": limit_ms}, 1000, 0)
    machine = Authentication(settings)
    machine.handshake("OAUTHBEARER", 1)
    answer = machine.authenticate(message(unsecured()), 0)
    assert (machine.principal, answer.lifetime_ms) == ("User:alice", lifetime_ms)
    assert machine.refuses(3, lifetime_ms) is None
    assert "session has expired" in str(machine.refuses(3, lifetime_ms + 1))


def test_a_bad_token_is_told_by_json_and_fails_at_the_next_message() -> None:
    machine = Authentication(SaslSettings({"OAUTHBEARER": exchange}, {}, 1000, 0))
    machine.handshake("OAUTHBEARER", 1)
    first = machine.authenticate(message(unsecured(exp=NOW - 5)), 0)
    assert (first.code, first.token) == (ErrorCode.NONE, b'{"status":"invalid_token"}')
    assert not machine.complete
    second = machine.authenticate(b"\x01", 0)
    assert second.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert second.message == '{"status":"invalid_token"}'
    assert "authentication by OAUTHBEARER failed: the token expired 5 s ago" in second.log


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"exp": None}, r"does not say when it expires \(exp\)"),
        ({"exp": NOW - 1}, "expired 1 s ago"),
        ({"exp": "soon"}, "exp is no number"),
        ({"exp": True}, "exp is no number"),
        ({"iat": NOW + 5}, r"issued in the future \(iat\): compare the clocks"),
        ({"nbf": NOW + 5}, r"does not count yet \(nbf\)"),
        ({"iat": NOW - 5, "exp": NOW - 6}, "expired"),
        ({"sub": None}, r"names no user \(sub\)"),
        ({"sub": " "}, "names no user"),
        ({"sub": 7}, "names no user"),
    ],
)
def test_what_an_unsecured_token_has_to_say(claims: dict[str, Any], said: str) -> None:
    with pytest.raises(TokenError, match=said):
        UnsecuredTokens().claims(unsecured(**claims), NOW_MS)


def test_the_options_of_unsecured_tokens() -> None:
    tokens = UnsecuredTokens("name", "may", ["write"], skew_ms=10_000)
    good = unsecured(name="bob", may=["read", "write"], exp=NOW - 5, iat=NOW - 50)
    assert tokens.claims(good, NOW_MS).user == "bob"
    made = exchange(tokens)
    answer = made.step(message(unsecured(name="bob", may="read")))
    assert json.loads(answer) == {"status": "insufficient_scope", "scope": "write"}


@pytest.mark.parametrize(
    "token", ["a", "a.b", "a.b.", "e30.e30.", "e30.e30.c2ln", f"{part({'alg': 'none'})}.W10."]
)
def test_what_is_no_unsecured_token(token: str) -> None:
    with pytest.raises(TokenError):
        UnsecuredTokens().claims(token, NOW_MS)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"", "an invalid first message"),
        (b"\xff" * 10, "an invalid first message"),
        (b"n,,\x01auth=Bearer x\x01", "an invalid first message"),
        (b"n,,\x01host=x\x01\x01", "without a token"),
        (b"n,,\x01auth=Basic eHg=\x01\x01", "of the kind 'Basic', not Bearer"),
        (message(unsecured(), "bob"), "different from the token's principal name"),
    ],
)
def test_messages_that_are_wrong(sent: bytes, said: str) -> None:
    authorization = "bob" if b"a=bob" in sent else ""
    with pytest.raises(Refused, match=said) as error:
        exchange().step(sent)
    assert (error.value.told is None) == (authorization == "")


# --- signed ones

EC_KEY, RSA_KEY, FOREIGN = (
    ec.generate_private_key(ec.SECP256R1()),
    rsa.generate_private_key(65537, 2048),
    ec.generate_private_key(ec.SECP256R1()),
)


def jwks() -> dict[str, Any]:
    one = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(EC_KEY.public_key()))
    two = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA_KEY.public_key()))
    secret = {"kty": "oct", "k": "c2VjcmV0", "alg": "HS256", "kid": "oct"}
    return {"keys": [one | {"kid": "ec"}, two | {"kid": "rsa"}, secret, {"kty": "new"}]}


def signed(key: Any = EC_KEY, kid: str | None = "ec", alg: str = "ES256", **claims: Any) -> str:
    given = {k: v for k, v in (CLAIMS | claims).items() if v is not None}
    return jwt.encode(given, key, alg, headers={"kid": kid} if kid else None)


def check(token: str, **more: Any) -> str:
    given: dict[str, Any] = {"issuer": "me", "audience": ["other", "kafka"]} | more
    return SignedTokens(jwks(), **given).claims(token, NOW_MS).user


def test_tokens_of_known_keys_count() -> None:
    assert check(signed()) == "alice"
    assert check(signed(kid=None)) == "alice"
    assert check(signed(RSA_KEY, "rsa", "RS256")) == "alice"
    assert check(signed(exp=NOW - 20)) == "alice"  # within the skew of 30 s
    assert check(signed(email="a@b"), user="email") == "a@b"


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (signed(exp=NOW - 31), "the token expired 31 s ago"),
        (signed(nbf=NOW + 31), "does not count yet"),
        (signed(exp=None), "exp"),
        (signed(iat=None), "iat"),
        (signed(iss="you"), "issuer"),
        (signed(iss=None), "iss"),
        (signed(aud="else"), "[Aa]udience"),
        (signed(aud=None), "aud"),
        (signed(sub=None), "names no user"),
        (signed(FOREIGN), "Signature verification failed"),
        (signed(FOREIGN, None), "does not count"),
        (signed(kid="unknown"), "a key that the JWKS file does not have"),
        (signed("secret" * 8, "oct", "HS256"), "a key that the JWKS file does not have"),
        (signed("secret" * 8, "ec", "HS256"), "does not count"),
        (unsecured(), "does not count"),
        ("x.y.z", "no signed JSON web token"),
        ("x", "no signed JSON web token"),
    ],
)
def test_what_a_signed_token_has_to_be(token: str, said: str) -> None:
    with pytest.raises(TokenError, match=said) as error:
        check(token)
    assert token not in str(error.value)


# --- the listener's properties

OWN = "listener.name.clients.oauthbearer."
GIVEN = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    OWN + "sasl.jaas.config": f"{OAUTH} required;",
}


class Files:
    def read_all(self, path: str) -> bytes:
        return Path(path).read_bytes()


WORLD = cast("Any", SimpleNamespace(clock=SimpleNamespace(wall_ms=lambda: NOW_MS), disk=Files()))


def settings(**more: str) -> ListenerSettings:
    given = {name.replace("_", "."): value for name, value in more.items()}
    return ListenerSettings(GIVEN | given, "CLIENTS", "SASL_SSL")


def made(**more: str) -> OAuthExchange:
    found = sasl_settings(settings(**more), ScramUsers(), WORLD).exchanges["OAUTHBEARER"]()
    assert isinstance(found, OAuthExchange)
    return found


def test_a_jwks_file_makes_unsecured_tokens_worthless(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert made().step(message(unsecured())) == b""
    assert "without a signature, for tests: any client can be any user" in caplog.text
    caplog.clear()
    (tmp_path / "the keys.json").write_text(json.dumps(jwks()))
    given = {
        "sasl_oauthbearer_jwks_endpoint_url": (tmp_path / "the keys.json").as_uri(),
        "sasl_oauthbearer_expected_issuer": "me",
        "sasl_oauthbearer_expected_audience": "kafka, other",
    }
    assert made(**given).step(message(unsecured())) == b'{"status":"invalid_token"}'
    assert made(**given).step(message(signed())) == b""
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("sasl.oauthbearer.jwks.endpoint.url", "https://x/y", "keys are read from a file alone"),
        ("sasl.oauthbearer.jwks.endpoint.url", "file:///nowhere", "No such file"),
        ("sasl.oauthbearer.jwks.endpoint.url", "file:///dev/null", "it is no JSON"),
        (OWN + "sasl.server.callback.handler.class", "my.Handler", "no Java class can be loaded"),
        (
            OWN + "sasl.server.callback.handler.class",
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
            "signed tokens need their keys",
        ),
        (OWN + "sasl.jaas.config", "", f"OAUTHBEARER on listener CLIENTS needs it; write {OAUTH}"),
        (
            OWN + "sasl.jaas.config",
            f'{OAUTH} required unsecuredValidatorAllowableClockSkewMs="x";',
            "unsecuredValidatorAllowableClockSkewMs is no number",
        ),
    ],
)
def test_properties_that_cannot_be_used(name: str, value: str, line: str) -> None:
    given = ListenerSettings(GIVEN | {name: value}, "CLIENTS", "SASL_SSL")
    with pytest.raises(ConfigError) as error:
        sasl_settings(given, ScramUsers(), WORLD)
    [told] = error.value.lines
    assert line in told


def test_brokers_do_not_log_in_by_tokens() -> None:
    with pytest.raises(ConfigError, match="brokers have no tokens of their own"):
        SaslLogin(settings(sasl_mechanism_inter_broker_protocol="OAUTHBEARER"))
