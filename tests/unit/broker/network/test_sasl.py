"""SASL on a listener, from socket to socket, and a broker's own login to another."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest
import trio
from scramp import ScramMechanism

from highwater.broker.context import Context, Handler
from highwater.broker.handlers import api_versions, sasl_authenticate, sasl_handshake
from highwater.broker.network import socket_server
from highwater.broker.network.handler_pool import HandlerEntry
from highwater.broker.request.response import Response
from highwater.kafka.client.connection import ClientConnection
from highwater.kafka.config.checks import ConfigError
from highwater.kafka.security.authentication import SaslSettings
from highwater.kafka.security.jaas import PLAIN, SCRAM
from highwater.kafka.security.links import SecuredNetwork
from highwater.kafka.security.sasl import SaslLogin, jaas_login, sasl_settings
from highwater.kafka.security.scram_users import Credential, ScramUsers, encode_credential
from highwater.kafka.security.settings import ListenerSettings
from highwater.kafka.wire.codec import decode_response, encode_request
from highwater.kafka.wire.messages import (
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from highwater.world.real.network import RealNetwork

from .conftest import Client, Net, Serving, entry, serving

LISTENERS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security_inter_broker_protocol": "SASL_PLAINTEXT",
}
JAAS = f'{PLAIN} required username="broker" password="b-secret" user_broker="b-secret" ' + (
    'user_alice="a-secret";'
)
GIVEN = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
    "connection.failed.authentication.delay.ms": "0",
}
NO_USER = f'{PLAIN} required a="hunter2";'
ERROR_NONE, UNSUPPORTED_MECHANISM, FAILED = 0, 33, 58


def settings(given: dict[str, str] | None = None, **changed: str) -> ListenerSettings:
    own = {name.replace("_", "."): value for name, value in changed.items()}
    properties = (GIVEN if given is None else given) | own
    return ListenerSettings(properties, "SASL_PLAINTEXT", "SASL_PLAINTEXT")


def sasl(users: ScramUsers | None = None, **changed: str) -> dict[str, SaslSettings]:
    return {"SASL_PLAINTEXT": sasl_settings(settings(None, **changed), users or ScramUsers())}


def whoami(ctx: Context, body: memoryview) -> Response:
    return Response(parts=[ctx.principal.encode()])


ENTRIES = [
    entry(whoami),
    *(
        HandlerEntry(m.API, cast("Handler", m.handle), m.error_response)
        for m in (api_versions, sasl_handshake, sasl_authenticate)
    ),
]


async def ask(client: Client, request: Any, version: int) -> Any:
    key = request.API_KEY
    answer = await client.call(bytes(encode_request(request, version)), key=key, version=version)
    return decode_response(key, version, memoryview(answer))


async def log_in(client: Client, user: str = "alice", password: str = "a-secret") -> Any:
    handshake = await ask(client, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert handshake.error_code == ERROR_NONE
    token = f"\0{user}\0{password}".encode()
    return await ask(client, SaslAuthenticateRequest(auth_bytes=token), 1)


async def connect(s: Serving) -> Client:
    return await s.connect("SASL_PLAINTEXT")


async def test_who_authenticates_is_known_from_then_on(network: Net) -> None:
    async with serving(network, *ENTRIES, sasl=sasl(), **LISTENERS) as s:
        client = await connect(s)
        await ask(client, ApiVersionsRequest(), 0)
        answer = await log_in(client)
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
        for _ in range(3):
            assert await client.call(b"") == b"User:alice"
        large = await client.call(bytes(2_000_000))
        assert large == b"User:alice"


async def test_only_enabled_mechanisms_are_taken(network: Net) -> None:
    async with serving(network, *ENTRIES, sasl=sasl(), **LISTENERS) as s:
        client = await connect(s)
        answer = await ask(client, SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1)
        assert answer.error_code == UNSUPPORTED_MECHANISM
        assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256"]
        assert await client.closed()


async def test_a_stranger_reaches_no_handler(
    network: Net, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(network, *ENTRIES, sasl=sasl(), **LISTENERS) as s:
        client = await connect(s)
        await client.send(b"")
        assert await client.closed()
        assert "unexpected Fetch request during SASL handshake" in caplog.text
        client = await connect(s)
        await ask(client, SaslHandshakeRequest(mechanism="PLAIN"), 1)
        await client.send(b"")
        assert await client.closed()


async def test_a_stranger_may_send_little(network: Net, caplog: pytest.LogCaptureFixture) -> None:
    limited = sasl(sasl_server_max_receive_size="1000")
    async with serving(network, *ENTRIES, sasl=limited, **LISTENERS) as s:
        client = await connect(s)
        await client.send(bytes(1001), key=17)
        assert await client.closed()
        assert "sasl.server.max.receive.size=1000 is the limit" in caplog.text
        client = await connect(s)
        await log_in(client)
        assert await client.call(bytes(100_000)) == b"User:alice"


async def test_a_stranger_may_not_stay(
    network: Net, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(socket_server, "STRANGER_MS", 300)
    async with serving(network, *ENTRIES, sasl=sasl(), **LISTENERS) as s:
        known, silent, half = [await connect(s) for _ in range(3)]
        await log_in(known)
        await half.stream.send_all(b"\0\0")
        assert await silent.closed()
        assert await half.closed()
        assert caplog.text.count("it did not authenticate") == 2
        assert await known.call(b"") == b"User:alice"


@pytest.mark.thorough
async def test_a_wrong_password_is_answered_late_and_closes(
    network: Net, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    late = sasl(connection_failed_authentication_delay_ms="400")
    async with serving(network, *ENTRIES, sasl=late, num_io_threads=1, **LISTENERS) as s:
        client, other = await connect(s), await connect(s)
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            answers: list[Any] = []

            async def guess() -> None:
                answers.append(await log_in(client, password="guess"))

            nursery.start_soon(guess)
            await log_in(other)
            assert trio.current_time() - began < 0.4
        assert trio.current_time() - began >= 0.39
        assert answers[0].error_code == FAILED
        assert answers[0].error_message == "Authentication failed: Invalid username or password"
        assert await client.closed()
        assert await other.call(b"") == b"User:alice"
    assert "authentication by PLAIN failed" in caplog.text
    assert "guess" not in caplog.text


@pytest.mark.thorough
async def test_a_session_ends_and_is_renewed(network: Net) -> None:
    short = sasl(connections_max_reauth_ms="800")
    async with serving(network, *ENTRIES, sasl=short, **LISTENERS) as s:
        renewed, left = await connect(s), await connect(s)
        began = trio.current_time()
        assert (await log_in(left)).session_lifetime_ms == 800
        await log_in(renewed)
        while trio.current_time() - began < 0.4:
            assert await left.call(b"") == b"User:alice"
        await log_in(renewed)
        with pytest.raises((EOFError, trio.BrokenResourceError)):  # noqa: PT012
            while True:
                await left.call(b"")
        assert 0.8 <= trio.current_time() - began < 1.1
        assert await renewed.call(b"") == b"User:alice"


# --- a broker's own login


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_broker_logs_in_to_another(mechanism: str) -> None:
    made = ScramMechanism(mechanism).make_auth_info("b-secret") if mechanism != "PLAIN" else None
    users = ScramUsers()
    if made is not None:
        users.configured("broker", {mechanism: encode_credential(Credential(*made))})
    jaas = JAAS if made is None else f'{SCRAM} required username="broker" password="b-secret";'
    own = f"listener.name.sasl_plaintext.{mechanism.lower()}.sasl.jaas.config"
    properties = GIVEN | {own: jaas, "sasl.mechanism.inter.broker.protocol": mechanism}
    async with serving(RealNetwork(), *ENTRIES, sasl=sasl(users), **LISTENERS) as s:
        network = SecuredNetwork(RealNetwork(), None, SaslLogin(settings(properties)))
        host, port = s.addresses["SASL_PLAINTEXT"]
        connection = await ClientConnection.open(network, host, port, "broker-1")
        assert bytes(await connection.call_raw(1, 4, [b""], 5)).endswith(b"User:broker")
        connection.close()
        wrong = properties | {own: jaas.replace('password="b-secret"', 'password="guess"')}
        network = SecuredNetwork(RealNetwork(), None, SaslLogin(settings(wrong)))
        with pytest.raises(OSError, match="SASL login refused: Authentication failed") as caught:
            await network.connect(host, port)
        assert "guess" not in str(caught.value)


def test_where_the_jaas_entry_is_looked_for() -> None:
    def entry_of(user: str, module: str = PLAIN) -> str:
        return f'{module} required username="{user}" password="p";'

    given = {"sasl.jaas.config": entry_of("general")}
    assert jaas_login(settings(given), "PLAIN").options["username"] == "general"
    given["listener.name.sasl_plaintext.sasl.jaas.config"] = entry_of("listener")
    assert jaas_login(settings(given), "PLAIN").options["username"] == "listener"
    given["listener.name.sasl_plaintext.plain.sasl.jaas.config"] = entry_of("mechanism")
    assert jaas_login(settings(given), "PLAIN").options["username"] == "mechanism"
    with pytest.raises(ConfigError, match="is not the login module of SCRAM-SHA-256"):
        jaas_login(settings(given), "SCRAM-SHA-256")


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"sasl_enabled_mechanisms": "GSSAPI"}, "sasl.enabled.mechanisms=GSSAPI: GSSAPI is not"),
        (
            {"listener.name.sasl_plaintext.plain.sasl.jaas.config": ""},
            "listener.name.sasl_plaintext.plain.sasl.jaas.config=[hidden]: PLAIN on listener",
        ),
        (
            {"listener.name.sasl_plaintext.plain.sasl.jaas.config": "hunter2"},
            "listener.name.sasl_plaintext.plain.sasl.jaas.config=[hidden]: not a JAAS entry",
        ),
        (
            {"listener.name.sasl_plaintext.plain.sasl.jaas.config": NO_USER},
            "is used between brokers; add username",
        ),
        ({"sasl_mechanism_inter_broker_protocol": "GSSAPI"}, "use PLAIN or SCRAM-SHA-256"),
        ({"connections_max_reauth_ms": "5"}, "connections.max.reauth.ms=5: brokers do not"),
    ],
)
def test_what_cannot_be_used_is_told_by_one_line(changed: dict[str, str], line: str) -> None:
    own = {k if k.startswith("listener") else k.replace("_", "."): v for k, v in changed.items()}
    given = settings(GIVEN | own)
    with pytest.raises(ConfigError) as caught:  # noqa: PT012
        sasl_settings(given, ScramUsers())
        SaslLogin(given)
    [told] = caught.value.lines
    assert line in told
    assert "hunter2" not in told
