"""The probe, against a socket that gives prepared answers in place of a broker."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kafka.protocol.metadata import MetadataResponse

from highwater.cli.healthcheck import check, main
from highwater.cluster.serving import View, view


def metadata(brokers: dict[int, tuple[str, int, str | None]], controller: int) -> bytes:
    """A Metadata v1 answer as another implementation encodes it."""
    row = MetadataResponse.MetadataResponseBroker
    body: bytes = MetadataResponse(
        brokers=[row(node_id=i, host=h, port=p, rack=r) for i, (h, p, r) in brokers.items()],
        controller_id=controller,
        topics=[],
    ).encode(version=1)
    return struct.pack(">ii", len(body) + 4, 1) + body


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A port on which every connection's first request gets this answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(4096)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join(5)


THREE = metadata({1: ("a", 9092, None), 2: ("b.example", 9093, "r1"), 3: ("c", 9094, "")}, 2)


def test_brokers_and_controller_are_read() -> None:
    with answering(THREE) as port:
        seen = view("127.0.0.1", port)
    assert seen == View({1: ("a", 9092), 2: ("b.example", 9093), 3: ("c", 9094)}, 2)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        struct.pack(">ii", 4, 1),
        struct.pack(">iiiihi", 18, 1, 1, 7, 900, 0),
    ],
)
def test_what_is_no_broker_is_an_os_error(answer: bytes) -> None:
    with answering(answer) as port, pytest.raises(OSError):
        view("127.0.0.1", port)


def test_the_health_check_wants_the_broker_itself_and_a_controller() -> None:
    with answering(THREE) as port:
        assert check("127.0.0.1", port, 3) is None
        assert check("127.0.0.1", port, 4) == "broker 4 is not among the live brokers [1, 2, 3]"
        assert main([f"127.0.0.1:{port}", "3"]) == 0
        assert main([f"127.0.0.1:{port}", "4"]) == 1
    with answering(metadata({3: ("c", 9094, None)}, -1)) as port:
        assert check("127.0.0.1", port, 3) == "no controller is known yet"
    assert main(["nonsense"]) == 2


def test_a_port_without_a_broker_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert main([f"127.0.0.1:{port}"]) == 1
    assert f"127.0.0.1:{port} does not answer" in capsys.readouterr().out
