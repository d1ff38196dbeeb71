"""The machine of one connection, and the exchanges of each mechanism."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from scramp import ScramMechanism

from highwater.kafka.errors import ErrorCode
from highwater.kafka.security.authentication import (
    ANONYMOUS,
    Answer,
    Authentication,
    Exchange,
    Refused,
    SaslSettings,
)
from highwater.kafka.security.mechanisms import (
    Answers,
    PlainExchange,
    ScramExchange,
    client_side,
)
from highwater.kafka.security.scram_users import (
    Credential,
    ScramUsers,
    decode_credential,
    encode_credential,
)

METADATA, VERSIONS, HANDSHAKE, AUTHENTICATE = 3, 18, 17, 36
USERS = ScramUsers()
PASSWORDS = {"alice": "alice-secret", "bob": "bob,=secret"}


def credential(mechanism: str, password: str, iterations: int = 4096) -> str:
    made = ScramMechanism(mechanism).make_auth_info(password, iteration_count=iterations)
    return encode_credential(Credential(*made))


for user, password in PASSWORDS.items():
    USERS.configured(user, {m: credential(m, password) for m in ("SCRAM-SHA-256", "SCRAM-SHA-512")})


def machine(**lifetimes: int) -> Authentication:
    exchanges: dict[str, Callable[[], Exchange]] = {
        "PLAIN": partial(PlainExchange, PASSWORDS),
        **{
            name: partial(ScramExchange, name, partial(USERS.get, name))
            for name in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        },
    }
    named = {name.replace("_", "-"): ms for name, ms in lifetimes.items()}
    return Authentication(SaslSettings(exchanges, named, 1000, 0))


def log_in(m: Authentication, mechanism: str, user: str, password: str, now_ms: int = 0) -> Answer:
    """Every step that a client makes; the last answer."""
    assert m.refuses(HANDSHAKE, now_ms) is None
    answer = m.handshake(mechanism, 1)
    assert answer == Answer()
    client: Answers = client_side(mechanism, user, password)
    token: bytes | None = client.first()
    while token is not None:
        assert m.refuses(AUTHENTICATE, now_ms) is None
        answer = m.authenticate(token, now_ms)
        if answer.code:
            return answer
        token = client.next(answer.token)
    return answer


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("user", PASSWORDS)
def test_the_right_password(mechanism: str, user: str) -> None:
    m = machine()
    answer = log_in(m, mechanism, user, PASSWORDS[user])
    assert answer.code is ErrorCode.NONE
    assert m.complete
    assert m.principal == f"User:{user}"
    assert m.refuses(METADATA, 10**9) is None


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("user", ["alice", "mallory"])
def test_a_wrong_password_and_an_unknown_user_look_the_same(mechanism: str, user: str) -> None:
    m = machine()
    answer = log_in(m, mechanism, user, "guess")
    told = (
        "Authentication failed: Invalid username or password"
        if mechanism == "PLAIN"
        else "Authentication failed during authentication due to invalid credentials "
        f"with SASL mechanism {mechanism}"
    )
    assert (answer.code, answer.message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, told)
    assert "guess" not in answer.log
    assert m.principal == ANONYMOUS
    for key in (METADATA, VERSIONS, HANDSHAKE, AUTHENTICATE):
        assert m.refuses(key, 0) is not None


def test_a_stranger_reaches_nothing_else() -> None:
    m = machine()
    refused = "unexpected Metadata request during SASL handshake"
    assert m.refuses(METADATA, 0) == refused
    assert m.refuses(VERSIONS, 0) is None
    assert m.refuses(VERSIONS, 0) is None
    assert m.refuses(AUTHENTICATE, 0) is not None
    m.handshake("PLAIN", 1)
    for key in (METADATA, VERSIONS, HANDSHAKE):
        assert m.refuses(key, 0) is not None
    assert m.refuses(AUTHENTICATE, 0) is None


def test_a_mechanism_that_is_not_enabled_and_tokens_without_headers() -> None:
    m = machine()
    assert m.handshake("GSSAPI", 1).code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert m.refuses(HANDSHAKE, 0) is not None
    m = machine()
    assert m.handshake("PLAIN", 0).code is ErrorCode.UNSUPPORTED_VERSION
    assert m.refuses(AUTHENTICATE, 0) is not None


@pytest.mark.parametrize(
    ("token", "told"),
    [
        (b"alice\0alice-secret", None),
        (b"\xff\0alice\0alice-secret", None),
        (b"\0alice\0alice-secret\0", None),
        (b"\0\0alice-secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"root\0alice\0alice-secret", "Authentication failed: Client requested an authorization"),
    ],
)
def test_tokens_of_plain_that_are_none(token: bytes, told: str | None) -> None:
    exchange = PlainExchange(PASSWORDS)
    with pytest.raises(Refused) as caught:
        exchange.step(token)
    assert (caught.value.told or "").startswith(told or "")
    assert (caught.value.told is None) is (told is None)
    assert exchange.user is None
    assert PlainExchange(PASSWORDS).step(b"alice\0alice\0alice-secret") == b""


@pytest.mark.parametrize("token", [b"", b"\xff", b"n,,", b"n,,n=alice", b"p=tls-unique,,n=a,r=b"])
def test_tokens_of_scram_that_are_none(token: bytes) -> None:
    with pytest.raises(Refused):
        ScramExchange("SCRAM-SHA-256", partial(USERS.get, "SCRAM-SHA-256")).step(token)


def test_a_proof_cannot_be_used_again() -> None:
    """The server's part of the nonce is new each time."""
    client = client_side("SCRAM-SHA-256", "alice", "alice-secret")
    first, find = client.first(), partial(USERS.get, "SCRAM-SHA-256")
    one, other = (ScramExchange("SCRAM-SHA-256", find) for _ in range(2))
    proof = client.next(one.step(first))
    assert proof is not None
    other.step(first)
    with pytest.raises(Refused):
        other.step(proof)
    assert other.user is None
    one.step(proof)
    assert one.user == "alice"


def test_a_session_ends_unless_it_is_renewed() -> None:
    m = machine(PLAIN=5000)
    assert log_in(m, "PLAIN", "alice", "alice-secret").lifetime_ms == 5000
    assert m.refuses(METADATA, 5000) is None
    assert log_in(m, "PLAIN", "alice", "alice-secret", 5001).lifetime_ms == 5000
    assert m.refuses(METADATA, 10_001) is None
    assert "expired" in (m.refuses(METADATA, 10_002) or "")
    assert m.principal == "User:alice"


def test_a_session_is_renewed_by_the_same_user_and_mechanism_alone() -> None:
    m = machine(PLAIN=5000)
    log_in(m, "PLAIN", "alice", "alice-secret")
    answer = log_in(m, "PLAIN", "bob", PASSWORDS["bob"], 1)
    assert answer.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.message == (
        "Cannot change principals during re-authentication from User.alice: User.bob"
    )
    assert m.refuses(METADATA, 2) is not None
    m = machine()
    log_in(m, "PLAIN", "alice", "alice-secret")
    answer = log_in(m, "SCRAM-SHA-256", "alice", "alice-secret", 1)
    assert "is not supported for re-authentication of mechanism 'PLAIN'" in (answer.message or "")


def test_a_session_is_renewed_once_a_second_at_most() -> None:
    m = machine()
    log_in(m, "PLAIN", "alice", "alice-secret", 10)
    log_in(m, "PLAIN", "alice", "alice-secret", 20)
    assert m.refuses(HANDSHAKE, 1019) is None
    assert m.handshake("PLAIN", 1).code is ErrorCode.ILLEGAL_SASL_STATE
    assert m.authenticate(b"", 1019).code is ErrorCode.ILLEGAL_SASL_STATE
    assert m.complete
    log_in(m, "PLAIN", "alice", "alice-secret", 1020)


def test_credentials_as_kafka_writes_them() -> None:
    """The pair of RFC 7677's example: user `user`, password `pencil`."""
    text = (
        "salt=W22ZaJ0SNY7soEsUEjb6gQ==,"
        "stored_key=WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=,"
        "server_key=wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=,iterations=4096"
    )
    assert encode_credential(decode_credential(text)) == text
    users = ScramUsers()
    users.configured("user", {"SCRAM-SHA-256": text})
    m = Authentication(
        SaslSettings(
            {"S": lambda: ScramExchange("SCRAM-SHA-256", partial(users.get, "SCRAM-SHA-256"))},
            {},
            1000,
            0,
        )
    )
    m.handshake("S", 1)
    client = client_side("SCRAM-SHA-256", "user", "pencil")
    proof = client.next(m.authenticate(client.first(), 0).token)
    assert proof is not None
    assert m.authenticate(proof, 0).code is ErrorCode.NONE
    users.configured("user", {"producer_byte_rate": "1"})
    assert users.get("SCRAM-SHA-256", "user") is None


@pytest.mark.parametrize("text", ["", "hunter2", "salt=a,stored_key=b", "salt=hunter2,x"])
def test_a_credential_that_cannot_be_read_is_none(text: str) -> None:
    users = ScramUsers()
    with pytest.raises(ValueError) as caught:
        users.configured(
            "user", {"SCRAM-SHA-256": text, "SCRAM-SHA-512": credential("SCRAM-SHA-512", "p")}
        )
    assert "hunter2" not in str(caught.value)
    assert users.get("SCRAM-SHA-256", "user") is None
    assert users.get("SCRAM-SHA-512", "user") is not None
