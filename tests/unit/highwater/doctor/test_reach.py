"""The way of a connection, against real listeners that are not what the client expects.

A broker's own answers are asked for in tests/integration/process/test_cli.py.
"""

from __future__ import annotations

import http.server
import socket
import socketserver
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from highwater.doctor import talk
from highwater.doctor.client_findings import Effect, Finding
from highwater.doctor.reach import addresses, reach
from highwater.doctor.talk import Login
from highwater.kafka.wire import messages
from highwater.kafka.wire.codec import encode_response
from tests.authority import Authority


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(autouse=True)
def _no_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talk, "TIMEOUT_S", 0.5)


@contextmanager
def listening(context: ssl.SSLContext | None = None) -> Iterator[int]:
    """A web server, perhaps behind TLS; its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def asked(port: int, host: str = "127.0.0.1", **given: str) -> Finding:
    login = Login.of({name.replace("_", "."): value for name, value in given.items()})
    (finding,) = reach([(host, port)], login, lambda _: None).findings
    assert finding.effect is Effect.UNREACHABLE
    return finding


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[tuple[int, Authority]]:
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue("broker.invalid").configure_cert(context)
    with listening(context) as port:
        yield port, authority


def test_nothing_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        finding = asked(free.getsockname()[1])
    assert "Nothing listens on 127.0.0.1" in finding.why


def test_an_unknown_name() -> None:
    assert "The name nowhere.invalid is unknown" in asked(9092, "nowhere.invalid").why


@pytest.mark.thorough
def test_a_web_server() -> None:
    with listening() as port:
        assert asked(port).why == "A web server answers there."


@pytest.mark.thorough
def test_a_port_that_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert "does not answer" in asked(silent.getsockname()[1]).why


def test_tls_where_none_is_expected(tls: tuple[int, Authority]) -> None:
    finding = asked(tls[0])
    assert finding.why == "The listener speaks TLS."
    assert finding.remedy == "security.protocol=SSL (or SASL_SSL)"


def test_an_unknown_authority(tls: tuple[int, Authority]) -> None:
    assert "certificate is refused" in asked(tls[0], security_protocol="SSL").why


@pytest.mark.thorough
def test_a_certificate_for_another_name(tls: tuple[int, Authority]) -> None:
    port, authority = tls
    trust = str(authority.trust)
    given = {"security_protocol": "SSL", "ssl_ca_location": trust}
    assert asked(port, "localhost", **given).why == (
        "The broker's certificate is not for localhost."
    )
    given["ssl_endpoint_identification_algorithm"] = "none"
    assert asked(port, "localhost", **given).why == "A web server answers there."


def test_no_tls_where_it_is_expected() -> None:
    with listening() as port:
        finding = asked(port, security_protocol="SASL_SSL")
    assert finding.why == "The listener does not speak TLS."
    assert finding.remedy == "security.protocol=SASL_PLAINTEXT"


def test_one_fault_of_several_addresses_is_told_once() -> None:
    login = Login.of({})
    found = reach([("a.invalid", 1), ("a.invalid", 2)], login, lambda _: None).findings
    assert [f.what for f in found] == ["a.invalid:1, a.invalid:2"]


@pytest.mark.parametrize("wrong", ["localhost", "localhost:", ":9092", "localhost:0", "a:1,,b:2"])
def test_an_address_that_is_none(wrong: str) -> None:
    with pytest.raises(ValueError, match="is no HOST:PORT"):
        addresses(wrong)


class Broker(socketserver.BaseRequestHandler):
    """Answers ApiVersions, Metadata and SaslHandshake; of its server: what it does not like."""

    def handle(self) -> None:
        server = cast("Brokers", self.server)
        while len(size := self.request.recv(4)) == 4:
            data = self.request.recv(struct.unpack(">i", size)[0])
            key, version, number = struct.unpack_from(">hhi", data)
            if key in server.hangs_up_at:
                return
            body = bytes(encode_response(server.answers[key], version))
            self.request.sendall(struct.pack(">ii", len(body) + 4, number) + body)


class Brokers(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, hangs_up_at: tuple[int, ...] = (), advertised: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), Broker)
        self.port: int = self.server_address[1]
        self.hangs_up_at = hangs_up_at
        apis = [messages.ApiVersionsResponse.ApiVersion(api_key=3, min_version=0, max_version=9)]
        broker = messages.MetadataResponse.MetadataResponseBroker(
            node_id=1, host="127.0.0.1", port=advertised or self.port, rack=None
        )
        self.answers: dict[int, Any] = {
            18: messages.ApiVersionsResponse(error_code=0, api_keys=apis, throttle_time_ms=0),
            3: messages.MetadataResponse(
                brokers=[broker], cluster_id=None, controller_id=1, topics=[]
            ),
            17: messages.SaslHandshakeResponse(error_code=33, mechanisms=["SCRAM-SHA-256"]),
        }


@contextmanager
def brokers(**given: Any) -> Iterator[Brokers]:
    with Brokers(**given) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_broker_that_answers_at_its_advertised_address_has_no_finding() -> None:
    with brokers() as server:
        reached = reach([("127.0.0.1", server.port)], Login.of({}), lambda _: None)
    assert reached.findings == []
    assert reached.talk is not None
    reached.talk.close()


def test_an_advertised_address_that_leads_nowhere() -> None:
    with socket.socket() as free, brokers() as server:
        free.bind(("127.0.0.1", 0))
        nowhere = free.getsockname()[1]
        with brokers(advertised=nowhere) as wrong:
            found = asked(wrong.port)
            both = reach(
                [("127.0.0.1", wrong.port), ("127.0.0.1", server.port)],
                Login.of({}),
                lambda _: None,
            )
    assert found.what == f"broker 1 advertises 127.0.0.1:{nowhere}"
    assert found.why.startswith("Nothing listens on")
    assert found.remedy.startswith("advertised.listeners of the broker")
    assert [f.effect for f in both.findings] == [Effect.UNREACHABLE]


def test_a_listener_that_wants_a_login() -> None:
    with brokers(hangs_up_at=(3,)) as server:
        found = asked(server.port)
    assert "it wants a login" in found.why
    assert found.remedy.startswith("security.protocol=SASL_PLAINTEXT")


def test_a_mechanism_that_is_not_enabled() -> None:
    with brokers() as server:
        found = asked(server.port, security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN")
    assert found.why == "The broker does not know the mechanism PLAIN."
    assert found.remedy == "sasl.mechanism: one of SCRAM-SHA-256"


def test_a_key_store_in_a_format_of_java(tmp_path: Path) -> None:
    store = tmp_path / "trust.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed")
    with brokers() as server:
        found = asked(server.port, security_protocol="SSL", ssl_truststore_location=str(store))
    assert found.why == f"{store} is a key store, and the doctor reads PEM."


def test_addresses() -> None:
    assert addresses("PLAINTEXT://a:1, b:2,[::1]:3") == [("a", 1), ("b", 2), ("::1", 3)]
