"""Whether a broker serves: one Metadata request over a plain socket, with no other library.

Health checks run it several times a second while a container starts, and a benchmark measures
start-up with it.  So it must be light to import and must not depend on what it watches: it works on
any Kafka-compatible broker.

Metadata v1 with an empty list of topics names the live brokers and the controller; the answer is
small, and every broker since 0.10 knows it.  It comes from the metadata cache, which the controller
fills by UpdateMetadata.  So an answer that names the broker itself and a controller shows that the
broker has registered, and that the controller has reached it.
"""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

_CLIENT = b"probe"
_METADATA_V1_NO_TOPICS = (
    struct.pack(">hhih", 3, 1, 1, len(_CLIENT)) + _CLIENT + struct.pack(">i", 0)
)
_LARGEST_ANSWER = 1 << 20


class View(NamedTuple):
    """One broker's view of the cluster."""

    brokers: dict[int, tuple[str, int]]
    """Live brokers by id, with host and port on the listener that was asked."""
    controller: int
    """The controller's broker id, -1 where the broker knows of none."""


def view(host: str, port: int, timeout_s: float = 2.0) -> View:
    """The view of the broker at this address; OSError where no broker answers."""
    with socket.create_connection((host, port), timeout_s) as sock:
        sock.settimeout(timeout_s)
        sock.sendall(struct.pack(">i", len(_METADATA_V1_NO_TOPICS)) + _METADATA_V1_NO_TOPICS)
        (size,) = struct.unpack(">i", _exactly(sock, 4))
        if not 0 < size <= _LARGEST_ANSWER:
            raise OSError(f"{host}:{port} answers, but not in Kafka's protocol")
        body = _exactly(sock, size)
    try:
        return _parse(body)
    except (struct.error, UnicodeDecodeError) as error:
        raise OSError(f"{host}:{port} answers, but not in Kafka's protocol") from error


def _exactly(sock: socket.socket, n: int) -> bytes:
    data = bytearray()
    while len(data) < n:
        chunk = sock.recv(n - len(data))
        if not chunk:
            raise ConnectionResetError("the broker closed the connection")
        data += chunk
    return bytes(data)


def _parse(body: bytes) -> View:
    (count,) = struct.unpack_from(">i", body, 4)
    position = 8
    brokers: dict[int, tuple[str, int]] = {}
    for _ in range(count):
        broker_id, length = struct.unpack_from(">ih", body, position)
        position += 6
        host = body[position : position + length].decode()
        port, rack = struct.unpack_from(">ih", body, position + length)
        position += length + 6 + max(rack, 0)
        brokers[broker_id] = (host, port)
    (controller,) = struct.unpack_from(">i", body, position)
    return View(brokers, controller)
