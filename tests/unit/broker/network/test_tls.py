"""TLS on a listener: stores, client authentication, limits, and the whole request path under it."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import ssl
import tempfile
import threading
from pathlib import Path
from struct import pack
from typing import Any, cast

import pytest
import trio
import trio.testing

from highwater.broker.context import Context
from highwater.broker.request.response import FileSlice, Response
from highwater.kafka.client.connection import ClientConnection
from highwater.kafka.config.checks import ConfigError
from highwater.kafka.security.links import SecuredNetwork
from highwater.kafka.security.settings import ListenerSettings
from highwater.kafka.security.tls import ClientTls, ServerTls
from highwater.kafka.wire.header import request_header
from highwater.world import tls_connection as world_tls
from highwater.world.real.disk import RealDisk
from highwater.world.real.network import RealNetwork
from tests.authority import PASSWORD, Authority, Leaf, chain_pem, key_pem

from .conftest import Client, Net, Serving, echo, entry, serving

KEY_PASSWORD = "key-s3cret"
LISTENERS = {
    "listeners": "SSL://127.0.0.1:0",
    "security_inter_broker_protocol": "SSL",
}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def broker(authority: Authority) -> Leaf:
    return authority.issue("localhost", common_name="broker")


def whoami(ctx: Context, body: memoryview) -> Response:
    return Response(parts=[ctx.principal.encode()])


def settings(given: dict[str, Any], protocol: str = "SSL") -> ListenerSettings:
    return ListenerSettings({k: str(v) for k, v in given.items()}, "SSL", protocol)


def server_tls(given: dict[str, Any], protocol: str = "SSL") -> dict[str, ServerTls]:
    return {"SSL": ServerTls(settings(given, protocol), RealDisk())}


def pem(authority: Authority, leaf: Leaf) -> dict[str, Any]:
    return {"ssl.keystore.location": authority.pem(leaf, "broker.pem")}


async def connect(
    s: Serving, authority: Authority, leaf: Leaf | None = None, **limits: ssl.TLSVersion
) -> Client:
    context = ssl.create_default_context(cadata=authority.certificates)
    for name, version in limits.items():
        setattr(context, name, version)
    if leaf is not None:
        leaf.configure_cert(context)
    stream = await trio.open_tcp_stream(*s.addresses["SSL"])
    secured = trio.SSLStream(stream, context, server_hostname="localhost", https_compatible=True)
    return Client(secured)


@pytest.mark.parametrize("form", ["pem", "encrypted pem", "pkcs12", "text", "encrypted text"])
async def test_a_listener_takes_each_form_of_key_store(
    form: str, authority: Authority, broker: Leaf
) -> None:
    one_line = " ".join(chain_pem(broker).split("\n"))
    given: dict[str, dict[str, Any]] = {
        "pem": pem(authority, broker),
        "encrypted pem": {
            "ssl.keystore.location": authority.pem(broker, "b", password=KEY_PASSWORD),
            "ssl.keystore.type": "PEM",
            "ssl.key.password": KEY_PASSWORD,
        },
        "pkcs12": {  # its type is JKS, as in users' files
            "ssl.keystore.location": authority.pkcs12(broker, "broker.jks"),
            "ssl.keystore.password": PASSWORD,
            "ssl.key.password": PASSWORD,
        },
        "text": {
            "ssl.keystore.key": key_pem(broker),
            "ssl.keystore.certificate.chain": one_line,
        },
        "encrypted text": {
            "listener.name.ssl.ssl.keystore.key": key_pem(broker, KEY_PASSWORD),
            "listener.name.ssl.ssl.keystore.certificate.chain": one_line,
            "listener.name.ssl.ssl.key.password": KEY_PASSWORD,
        },
    }
    async with serving(RealNetwork(), entry(echo), tls=server_tls(given[form]), **LISTENERS) as s:
        client = await connect(s, authority)
        assert await client.call(b"hello") == b"<hello>"


@pytest.mark.parametrize("form", ["pem", "pkcs12", "text"])
async def test_a_trust_store_says_whose_certificates_are_accepted(
    form: str, authority: Authority, broker: Leaf, tmp_path_factory: pytest.TempPathFactory
) -> None:
    trust: dict[str, dict[str, Any]] = {
        "pem": {"ssl.truststore.location": authority.trust},
        "pkcs12": {
            "ssl.truststore.location": authority.trust_pkcs12("trust.p12"),
            "ssl.truststore.password": PASSWORD,
        },
        "text": {"ssl.truststore.certificates": authority.certificates},
    }
    given = pem(authority, broker) | trust[form] | {"ssl.client.auth": "required"}
    foreign = Authority(tmp_path_factory.mktemp("foreign"))
    async with serving(RealNetwork(), entry(whoami), tls=server_tls(given), **LISTENERS) as s:
        client = await connect(s, authority, authority.issue("a@b", common_name="alice"))
        assert (await client.call(b"")).startswith(b"User:CN=alice,")
        stranger = await connect(s, authority, foreign.issue("a@b", common_name="alice"))
        with pytest.raises((trio.BrokenResourceError, EOFError)):
            await stranger.call(b"")


@pytest.mark.parametrize("reset", [True, False])
async def test_why_a_client_refuses_is_told_though_it_is_gone_at_once(
    reset: bool, authority: Authority, broker: Leaf, caplog: pytest.LogCaptureFixture
) -> None:
    """Its alert and the end of the connection are here when the broker looks."""
    caplog.set_level(logging.INFO)
    got, made = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(got, made, server_hostname="localhost")

    def shake(sock: socket.socket) -> None:
        while True:
            got.write(sock.recv(65536))
            with contextlib.suppress(ssl.SSLWantReadError):
                client.do_handshake()

    tls = server_tls(pem(authority, broker))
    async with serving(RealNetwork(), entry(echo), tls=tls, **LISTENERS) as s:
        with socket.create_connection(s.addresses["SSL"], timeout=10) as sock:
            with pytest.raises(ssl.SSLWantReadError):
                client.do_handshake()
            sock.sendall(made.read())
            await trio.to_thread.run_sync(sock.recv, 1, socket.MSG_PEEK)
            with pytest.raises(ssl.SSLCertVerificationError):
                shake(sock)
            sock.sendall(made.read())
            if reset:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
        with trio.fail_after(10):
            while "refused" not in caplog.text:
                await trio.testing.wait_all_tasks_blocked(0.01)
    assert "the peer does not trust this certificate's authority" in caplog.text


@pytest.mark.parametrize("auth", ["none", "requested", "required"])
async def test_client_authentication(
    auth: str, authority: Authority, broker: Leaf, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    given = pem(authority, broker) | {
        "ssl.truststore.location": authority.trust,
        "ssl.client.auth": auth,
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]*),.*$/$1/U",
    }
    async with serving(RealNetwork(), entry(whoami), tls=server_tls(given), **LISTENERS) as s:
        known = await connect(s, authority, authority.issue("a@b", common_name="alice"))
        expected = b"User:ANONYMOUS" if auth == "none" else b"User:ALICE"
        assert await known.call(b"") == expected
        unknown = await connect(s, authority)
        if auth != "required":
            assert await unknown.call(b"") == b"User:ANONYMOUS"
        else:
            with pytest.raises((trio.BrokenResourceError, EOFError)):
                await unknown.call(b"")
            assert "the peer showed no certificate, and one is required" in caplog.text


async def test_of_sasl_ssl_only_the_listeners_own_client_auth_counts(
    authority: Authority, broker: Leaf
) -> None:
    given = pem(authority, broker) | {"ssl.truststore.location": authority.trust}
    for name, asked in (("ssl.client.auth", False), ("listener.name.ssl.ssl.client.auth", True)):
        tls = server_tls(given | {name: "required"}, "SASL_SSL")
        async with serving(RealNetwork(), entry(echo), tls=tls, **LISTENERS) as s:
            client = await connect(s, authority)
            if asked:
                with pytest.raises((trio.BrokenResourceError, EOFError)):
                    await client.call(b"")
            else:
                assert await client.call(b"") == b"<>"


async def test_only_enabled_versions_are_spoken(
    authority: Authority, broker: Leaf, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    given = pem(authority, broker) | {"ssl.enabled.protocols": "TLSv1.3"}
    async with serving(RealNetwork(), entry(echo), tls=server_tls(given), **LISTENERS) as s:
        client = await connect(s, authority, maximum_version=ssl.TLSVersion.TLSv1_2)
        with pytest.raises(trio.BrokenResourceError):
            await client.call(b"")
        client = await connect(s, authority)
        await client.call(b"")
        assert isinstance(client.stream, trio.SSLStream)
        assert client.stream.version() == "TLSv1.3"
    assert "ssl.enabled.protocols" in caplog.text


async def test_the_name_of_the_other_broker_is_checked(authority: Authority) -> None:
    elsewhere = authority.issue("elsewhere.example")
    given = pem(authority, elsewhere) | {"ssl.truststore.location": authority.trust}
    unchecked = given | {"ssl.endpoint.identification.algorithm": ""}
    async with serving(RealNetwork(), entry(echo), tls=server_tls(given), **LISTENERS) as s:
        _, port = s.addresses["SSL"]
        for properties, accepted in ((given, False), (unchecked, True)):
            network = SecuredNetwork(RealNetwork(), ClientTls(settings(properties), RealDisk()))
            if accepted:
                (await network.connect("localhost", port)).close()
            else:
                with pytest.raises(OSError, match="not accepted: Hostname mismatch"):
                    await network.connect("localhost", port)


@pytest.mark.thorough
async def test_requests_of_all_sizes_come_back(
    network: Net, authority: Authority, broker: Leaf
) -> None:
    async with serving(
        network, entry(echo), tls=server_tls(pem(authority, broker)), **LISTENERS
    ) as s:
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            client = await connect(s, authority, minimum_version=version, maximum_version=version)
            for size in (0, 1, 16_384, 65_530, 65_536, 70_000, 1_500_000, 9_000_000):
                body = bytes([size % 251]) * size
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(client.send, body)
                    _, answer = await client.receive()
                assert answer == b"<" + body + b">"


@pytest.mark.thorough
async def test_files_are_sent_and_a_slow_reader_holds_up_nobody(
    network: Net, authority: Authority, broker: Leaf, tmp_path: Path
) -> None:
    file = RealDisk().open(str(tmp_path / "segment"), create=True)
    content = os.urandom(5_000_000)
    file.append([content])

    def handle(ctx: Context, body: memoryview) -> Response:
        return Response(parts=[b"head", FileSlice(file, 10, len(content) - 10), b"tail"])

    tls = server_tls(pem(authority, broker))
    async with serving(network, entry(handle), tls=tls, num_network_threads=1, **LISTENERS) as s:
        slow = [await connect(s, authority) for _ in range(3)]
        for client in slow:
            await client.send(b"")
        for _ in range(3):
            assert await (await connect(s, authority)).call(b"") == b"head" + content[10:] + b"tail"
        for client in slow:
            assert (await client.receive())[1] == b"head" + content[10:] + b"tail"


@pytest.mark.thorough
async def test_half_a_handshake_holds_up_nobody_and_is_ended(
    network: Net,
    authority: Authority,
    broker: Leaf,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("highwater.kafka.security.tls.HANDSHAKE_S", 0.5)
    tls = server_tls(pem(authority, broker))
    async with serving(network, entry(echo), tls=tls, max_connections_per_ip=31, **LISTENERS) as s:
        half = [await trio.open_tcp_stream(*s.addresses["SSL"]) for _ in range(30)]
        for number, stream in enumerate(half):
            await stream.send_all(b"\x16\x03\x01\x02\x00\x01"[: number % 7])
        client = await connect(s, authority)
        assert await client.call(b"x") == b"<x>"
        for stream in half:
            with trio.fail_after(5):
                assert await stream.receive_some(100) == b""
        assert s.server.limits.total == 1
        assert await client.call(b"y") == b"<y>"
    assert caplog.text.count("did not end within 0.5 s") == 30


async def test_who_has_gone_before_its_turn_costs_no_key_exchange(
    authority: Authority, broker: Leaf
) -> None:
    """In a rush clients give up while they wait: their turns must not make the others wait."""
    [tls] = server_tls(pem(authority, broker)).values()
    hello = ssl.MemoryBIO()
    client = ssl.create_default_context(cadata=authority.certificates)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost").do_handshake()
    listener = await RealNetwork().listen("127.0.0.1", 0)
    async with await trio.open_tcp_stream(*listener.address) as stream:
        await stream.send_all(hello.read())
    accepted = await listener.accept()
    sent: list[int] = []
    watched = Watched(accepted, sent)
    with pytest.raises(ConnectionAbortedError, match="closed the connection during"):
        await tls.accept(cast("Any", watched))
    assert sent == [], "an answer was made for nobody"
    accepted.close()
    listener.close()


class Watched:
    """A connection that notes what is sent."""

    def __init__(self, connection: Any, sent: list[int]) -> None:
        self._connection, self._sent = connection, sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def send(self, views: Any, more: bool = False) -> int | None:
        self._sent.append(sum(map(len, views)))
        taken: int | None = self._connection.send(views, more)
        return taken


async def test_what_is_no_handshake_is_told_and_refused(
    authority: Authority,
    broker: Leaf,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(world_tls, "_HANDSHAKE_BYTES", 20_000)
    tls = server_tls(pem(authority, broker))
    async with serving(RealNetwork(), entry(echo), tls=tls, **LISTENERS) as s:
        plain = Client(await trio.open_tcp_stream(*s.addresses["SSL"]))
        await plain.send(b"hello")
        assert await plain.closed()
        assert "does not speak TLS; set its security.protocol" in caplog.text
        endless = Client(await trio.open_tcp_stream(*s.addresses["SSL"]))
        # a ClientHello of 65536 bytes in records of 16 KiB
        with pytest.raises((trio.BrokenResourceError, EOFError)):  # noqa: PT012
            for _ in range(100):
                await endless.stream.send_all(
                    b"\x16\x03\x01\x3f\xff\x01\x00\xff\xff" + bytes(16379)
                )
            await endless.receive()
        assert s.server.limits.total == 0


# --- stores that cannot be used


def told(given: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        server_tls(given)
    [line] = caught.value.lines
    assert PASSWORD not in line
    assert KEY_PASSWORD not in line
    assert "PRIVATE KEY" not in line
    return line


def test_a_listener_without_a_key() -> None:
    assert told({}).startswith("ssl.keystore.location=: listener SSL speaks SSL, which needs a key")


def test_a_file_that_is_not_there() -> None:
    assert told({"ssl.keystore.location": "/nowhere"}) == (
        "ssl.keystore.location=/nowhere: No such file or directory; name a file that can be read"
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xfe\xed\xfe\xed\x00\x00\x00\x02", "keytool -importkeystore -srckeystore"),
        (b"hello", "neither PEM nor PKCS12"),
        (b"\x30\x82rubbish", "no password; check ssl.keystore.password"),
        (b"-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----", "cannot be read"),
        (b"-----BEGIN X-----\nQUJD\n-----END X-----", "holds no certificate"),
    ],
)
def test_a_file_that_is_no_key_store(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    path.write_bytes(content)
    assert words in told({"ssl.keystore.location": path})


def test_passwords_that_do_not_open(authority: Authority, broker: Leaf) -> None:
    store = authority.pkcs12(broker, "broker.p12")
    line = told({"ssl.keystore.location": store, "ssl.keystore.password": "guess"})
    assert "guess" not in line
    assert line.endswith("does not open; check ssl.keystore.password")
    encrypted = {"ssl.keystore.location": authority.pem(broker, "b", password=KEY_PASSWORD)}
    assert told(encrypted).endswith("its private key is encrypted; set ssl.key.password")
    line = told(encrypted | {"ssl.key.password": "guess"})
    assert line.endswith("cannot be read; check ssl.key.password")


def test_the_key_of_another_certificate(authority: Authority, broker: Leaf) -> None:
    other = key_pem(authority.issue("other"))
    given = {"ssl.keystore.key": other, "ssl.keystore.certificate.chain": chain_pem(broker)}
    assert told(given).startswith("ssl.keystore.key=[hidden]: the key is not that of")
    assert "too" in told({"ssl.keystore.key": other})


def test_rules_that_cannot_be_read(authority: Authority, broker: Leaf) -> None:
    line = told(pem(authority, broker) | {"ssl.principal.mapping.rules": "RULE:x"})
    assert line.startswith("ssl.principal.mapping.rules=RULE:x: ")


def test_no_decrypted_key_is_ever_in_a_file(
    authority: Authority, broker: Leaf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = authority.pem(broker, "b", password=KEY_PASSWORD)
    folder = tmp_path / "kept"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", lambda path: None)
        server_tls({"ssl.keystore.location": store, "ssl.key.password": KEY_PASSWORD})
    [kept] = folder.iterdir()
    assert kept.stat().st_mode & 0o077 == 0
    assert "ENCRYPTED PRIVATE KEY" in kept.read_text()
    assert "BEGIN PRIVATE KEY" not in kept.read_text()
    kept.unlink()
    server_tls({"ssl.keystore.location": store, "ssl.key.password": KEY_PASSWORD})
    assert list(folder.iterdir()) == []


# --- moments at which bytes could be left behind


async def test_a_request_in_one_packet_with_the_end_of_the_handshake(
    network: Net, authority: Authority, broker: Leaf
) -> None:
    context = ssl.create_default_context(cadata=authority.certificates)
    tls = server_tls(pem(authority, broker))
    async with serving(network, entry(echo), tls=tls, **LISTENERS) as s:
        stream = await trio.open_tcp_stream(*s.addresses["SSL"])
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                await stream.send_all(outgoing.read())
                incoming.write(await stream.receive_some())
        frame = request_header(1, 4, 7, "test") + b"x"
        client.write(pack(">i", len(frame)) + frame)
        await stream.send_all(outgoing.read())
        answer = b""
        while len(answer) < 11:
            incoming.write(await stream.receive_some())
            try:
                answer += client.read(100)
            except ssl.SSLWantReadError:
                continue
        assert answer == pack(">ii", 7, 7) + b"<x>"


async def test_an_answer_whose_end_waits_for_room(
    network: Net, authority: Authority, broker: Leaf
) -> None:
    """A client asks, without reading, until the socket is full; then it gets every byte."""
    tls = server_tls(pem(authority, broker))
    handled = 0

    def large(ctx: Context, body: memoryview) -> Response:
        nonlocal handled
        handled += 1
        return Response(parts=[bytes(100_000)])

    async with serving(network, entry(large), tls=tls, **LISTENERS) as s:
        client = await connect(s, authority)
        await client.call(b"")
        [connection] = s.server.connections()
        secured = cast("world_tls.TlsConnection", connection.connection)
        asked = 0
        while not (connection.sending or secured._unsent):
            await client.send(b"")
            asked += 1
            while handled <= asked:
                await trio.sleep(0.001)
        for _ in range(asked):
            assert len((await client.receive())[1]) == 100_000


async def test_answers_that_arrived_together_are_all_read(
    authority: Authority, broker: Leaf
) -> None:
    """A broker as a client: what is decrypted, and did not fit, makes no socket readable."""
    given = pem(authority, broker) | {"ssl.truststore.location": authority.trust}
    async with serving(RealNetwork(), entry(echo), tls=server_tls(given), **LISTENERS) as s:
        network = SecuredNetwork(RealNetwork(), ClientTls(settings(given), RealDisk()))
        _, port = s.addresses["SSL"]
        connection = await ClientConnection.open(network, "localhost", port, "broker-1")
        for size in (100, 3000, 16_370, 20_000):
            asked = [await connection.begin(1, 4, [bytes(size)], 5) for _ in range(100)]
            while any(c.pending for c in s.server.connections()):
                await trio.sleep(0.001)
            with trio.fail_after(5):
                for pending in asked:
                    assert len(await pending.wait()) == size + 2
        connection.close()


async def test_runs_in_other_threads_have_turns_of_their_own(
    authority: Authority, broker: Leaf
) -> None:
    """A harness's clients each have a thread and a run: one stands still in its handshake's turn,
    and another connects meanwhile."""
    given = pem(authority, broker) | {"ssl.truststore.location": authority.trust}
    in_turn, over = threading.Event(), threading.Event()

    class Standing(RealNetwork):
        async def connect(self, host: str, port: int) -> Any:
            connection = await super().connect(host, port)
            take = connection.recv_into

            def recv_into(view: memoryview) -> int | None:
                if len(view) == world_tls._LOOK_BYTES:
                    in_turn.set()
                    assert over.wait(10)
                return take(view)

            return Wrapped(connection, recv_into)

    class Wrapped:
        def __init__(self, connection: Any, recv_into: Any) -> None:
            self._connection, self.recv_into = connection, recv_into

        def __getattr__(self, name: str) -> Any:
            return getattr(self._connection, name)

    async def talk(network: RealNetwork, port: int) -> bytes:
        secured = SecuredNetwork(network, ClientTls(settings(given), RealDisk()))
        with trio.fail_after(5):
            connection = await ClientConnection.open(secured, "localhost", port, "broker-1")
            pending = await connection.begin(1, 4, [b"hello"], 5)
            answer = bytes(await pending.wait())
        connection.close()
        return answer

    answers = []

    async def in_a_thread(network: RealNetwork, port: int) -> None:
        answers.append(await trio.to_thread.run_sync(trio.run, talk, network, port))

    async with serving(RealNetwork(), entry(echo), tls=server_tls(given), **LISTENERS) as s:
        _, port = s.addresses["SSL"]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(in_a_thread, Standing(), port)
            assert await trio.to_thread.run_sync(in_turn.wait, 10)
            try:
                await in_a_thread(RealNetwork(), port)
            finally:
                over.set()
    assert answers == [b"<hello>"] * 2
