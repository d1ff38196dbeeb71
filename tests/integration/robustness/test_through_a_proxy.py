"""What is sent straight to a broker and through the proxy before it has the same end, at the same
time."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from highwater.kafka.wire.header import request_header
from tests.background import BackgroundCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
AT_ONCE_S = 1.5
"""Within this time an end counts as one that was at once."""
MIB = 1 << 20
LISTENER = "EXTERNAL"
Pieces = tuple[bytes, ...]


def frame(api_key: int, version: int, body: bytes, client: bytes = b"frames") -> bytes:
    header = request_header(api_key, version, 7, None)
    header = header[:8] + struct.pack(">h", len(client)) + client + header[10:]
    return struct.pack(">i", len(header + body)) + header + body


def size(number: int, more: bytes = b"") -> bytes:
    return struct.pack(">i", number) + more


METADATA = frame(3, 1, b"\0\0\0\0")
WHOLE: dict[str, Pieces] = {
    "a request": (METADATA,),
    "byte by byte": tuple(METADATA[i : i + 1] for i in range(len(METADATA))),
    "two at once": (METADATA + METADATA,),
    "in two halves": (METADATA[:9], METADATA[9:]),
    "an API that there is not": (frame(999, 0, b""),),
    "a version that there is not": (frame(0, 99, b""),),
    "a newer ApiVersions": (frame(18, 99, b""),),
    "no body": (frame(3, 4, b""),),
    "a client id that is not UTF-8": (frame(3, 1, b"\0\0\0\0", b"\xff\xfe"),),
    "a client id of a broker": (frame(3, 1, b"\0\0\0\0", b"broker-2-fetcher-0"),),
    "a header cut short": (size(3, b"\0\3\0"),),
    "a size of 0": (size(0),),
    "a size of -5": (size(-5),),
    "a request, then a size of -5": (METADATA, size(-5)),
    "a request, then an API that there is not": (METADATA + frame(999, 0, b""),),
    "acks=0 to no topic": (frame(0, 3, b"\xff\xff\0\0\0\0\0\1\0\0\0\1\0\1x\0\0\0\1" + bytes(8)),),
    "nothing": (),
    "half of a size": (b"\0\0",),
    "half of a header": (METADATA[:9],),
    "a request and half of the next": (METADATA + METADATA[:9],),
}
CUT: dict[str, Pieces] = {
    f"{before}a size of {number} and {len(b''.join(more))} bytes": (*first, size(number), *more)
    for number in (100 * MIB, 100 * MIB + 1, 200 * MIB, 0x7FFFFFFF)
    for more in ((), (METADATA[4:],), (b"x" * 100_000,))
    for before, first in (("", ()), ("a request, then ", (METADATA,)))
} | {
    "another protocol": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",),
    "a TLS hello": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(512),),
}  # fmt: skip


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """A broker's own port, and that of the proxy before it."""
    with BackgroundCluster(tmp_path_factory.mktemp("proxied"), brokers=1) as cluster:
        process: Any = cluster.cluster
        ports = process._ports[1]
        yield ports.bound[LISTENER], ports.advertised[LISTENER]


def end_of(port: int, pieces: Pieces) -> tuple[bytes, str]:
    """What came back, and the end: closed, reset, or still open."""
    got, end = b"", "open"
    with socket.create_connection(("127.0.0.1", port), timeout=AT_ONCE_S) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for piece in pieces:
                sock.sendall(piece)
                sock.settimeout(0.03)
                try:
                    got += sock.recv(1 << 20)
                except TimeoutError:
                    pass
            until = time.monotonic() + AT_ONCE_S
            while (left := until - time.monotonic()) > 0:
                sock.settimeout(left)
                more = sock.recv(1 << 20)
                if not more:
                    end = "closed"
                    break
                got += more
        except TimeoutError:
            pass
        except OSError:
            end = "reset"
    return got, end


def both(ways: tuple[int, int], pieces: Pieces) -> list[tuple[bytes, str]]:
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(end_of, ways, (pieces, pieces)))


@pytest.mark.parametrize("name", WHOLE)
def test_what_was_read_whole_ends_the_same(ways: tuple[int, int], name: str) -> None:
    straight, proxied = both(ways, WHOLE[name])
    assert proxied == straight


@pytest.mark.parametrize("name", CUT)
def test_what_was_not_read_whole_ends_the_same(ways: tuple[int, int], name: str) -> None:
    """Whether the end is a reset depends on what of it had come."""
    straight, proxied = both(ways, CUT[name])
    assert (proxied[0], proxied[1] == "open") == (straight[0], straight[1] == "open")


def test_a_broker_refuses_what_is_above_its_limit_at_once(ways: tuple[int, int]) -> None:
    assert [end for _, end in both(ways, (size(100 * MIB),))] == ["open", "open"]
    assert "open" not in [end for _, end in both(ways, (size(100 * MIB + 1),))]
