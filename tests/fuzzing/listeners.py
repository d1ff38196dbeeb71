"""Bytes of strangers at the ports: TLS handshakes, the metrics page's HTTP, the control API's HTTP.

Each connection gets an answer of the protocol, or is closed; the server goes on, and writes no
traceback.  TLS records are those of a client's own handshake, damaged at one of its flights.
"""

from __future__ import annotations

import json
import ssl
import struct
from random import Random
from typing import Any

import trio

from highwater.agent.errors import ControlError
from highwater.agent.http_server import Call
from highwater.agent.routes import ROUTES
from highwater.agent.routing import find
from tests.fuzzing.requests import damaged

Address = tuple[str, int]
PATIENCE_S = 0.2
_LINES = (
    "Host: x", "Host:", "Content-Length: 3", "Content-Length: -1", "Content-Length: 99999999999999",
    "Content-Length: \u00b2", "Transfer-Encoding: chunked", "Transfer-Encoding: gzip", "Origin: http://x",
    "Expect: 100-continue", "Connection: close", "Connection: upgrade", "Upgrade: h2c", "A" * 9000,
    "Authorization: Bearer x", "Authorization: \xff", ": x", " folded", "X: " + "y" * 20_000,
)  # fmt: skip
_TARGETS = (
    "/metrics", "/healthz", "/readyz", "/trace", "/trace?connections", "/trace?api=\xff",
    "/trace?%", "/", "*", "//[", "http://[", "/v1/topics", "/v1/topics/%ff%00", "/v1/status",
    "/v1/topics/" + "x" * 9000, "/v1/events?since=\u00b2", "/v1/events?since=" + "9" * 5000,
    "/v1/faults", "/v1/waits", "/v1/openapi.json", "/../../etc/passwd", "/%zz",
    "/v1/events?since=1&since=2&=&;",
)  # fmt: skip
_METHODS = (
    "GET",
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "OPTIONS",
    "",
    "get",
    "\x00",
    "PRI",
    "A" * 99,
)
_BODIES: tuple[bytes, ...] = (
    b"", b"{}", b"[]", b"[" * 100_000, b'{"name":1}', b'{"name":"x","partitions":1e400}', b"\xff",
    b'{"until":"x","within":NaN}', b'{"name":"\\ud800"}', b'{"until":[],"within":-1}', b"9" * 5000,
    b'{"name":"x","partitions":' + b"9" * 5000 + b"}", b'{"name":"x","config":{"a":{"b":[]}}}',
)  # fmt: skip


def http_request(chance: Random) -> bytes:
    target = chance.choice(_TARGETS)
    version = chance.choice(("HTTP/1.1", "HTTP/1.0", "HTTP/9", ""))
    lines = [f"{chance.choice(_METHODS)} {target} {version}"]
    if chance.random() < 0.8:
        lines.append("Host: x")
    body = chance.choice(_BODIES) if chance.random() < 0.6 else b""
    if chance.random() < 0.7:
        lines.append(f"Content-Length: {len(body)}")
    lines += chance.sample(_LINES, chance.choice((0, 0, 1, 3)))
    if chance.random() < 0.2:
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (chance.choice((len(body), 1 << 40)), body)
    end = chance.choice(("\r\n", "\r\n", "\r\n", "\n"))
    data = (end.join(lines) + end * 2).encode("latin-1", "replace") + body
    return damaged(chance, data) if chance.random() < 0.3 else data


def check_route(chance: Random) -> str:
    """A call of the control API, after HTTP: a route with its arguments, or one clear refusal."""
    call = Call(chance.choice(_METHODS), chance.choice(_TARGETS), chance.choice(_BODIES))
    if chance.random() < 0.4:
        body = damaged(chance, call.body)
        call = Call(chance.choice(ROUTES).method, chance.choice(ROUTES).path, body)
    return check_call(call)


def check_call(call: Call) -> str:
    try:
        find(ROUTES, call)
    except ControlError as error:
        refused = error
    else:
        return "found"
    assert refused.kind in ("bad_request", "not_found"), refused.kind
    json.dumps(refused.as_json()).encode()
    return refused.kind


async def http_connection(chance: Random, address: Address) -> None:
    """One or two requests, in one piece or in several."""
    data = b"".join(http_request(chance) for _ in range(chance.choice((1, 1, 2))))
    answer = await told(address, _pieces(chance, data))
    assert answer == b"" or answer.startswith(b"HTTP/1.1 "), answer[:200]


def _pieces(chance: Random, data: bytes) -> list[bytes]:
    if chance.random() < 0.7:
        return [data]
    at = chance.randrange(len(data) + 1)
    return [data[:at], data[at:]]


async def told(address: Address, pieces: list[bytes]) -> bytes:
    """What comes back, until the server has closed or says nothing more."""
    answer = b""
    async with await trio.open_tcp_stream(*address) as stream:
        try:
            for piece in pieces:
                await stream.send_all(piece)
            await stream.send_eof()
            with trio.move_on_after(PATIENCE_S):
                while more := await stream.receive_some(65536):
                    answer += more
        except trio.BrokenResourceError:
            pass
    return answer


def context() -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    return made


async def tls_connection(chance: Random, address: Address) -> None:
    """A handshake that is right up to one of its flights."""
    made = context()
    if chance.random() < 0.5:
        made.maximum_version = ssl.TLSVersion.TLSv1_2
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    name: Any = chance.choice(("localhost", "x" * 60, None))
    client = made.wrap_bio(received, sent, server_hostname=name)
    spoiled = chance.choice((0, 0, 0, 1, 2))
    async with await trio.open_tcp_stream(*address) as stream:
        try:
            for flight in range(3):
                try:
                    client.do_handshake()
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLError:
                    return
                data = sent.read()
                if flight == spoiled:
                    data = _spoiled(chance, data)
                await stream.send_all(data)
                with trio.move_on_after(PATIENCE_S) as waited:
                    more = await stream.receive_some(65536)
                if waited.cancelled_caught or not more:
                    return
                received.write(more)
        except trio.BrokenResourceError:
            pass


def _spoiled(chance: Random, data: bytes) -> bytes:
    """Damaged bytes, or records of other types, versions and lengths around them."""
    what = chance.random()
    if what < 0.5:
        return damaged(chance, data)
    if what < 0.8:
        kind, version = (
            chance.choice((20, 21, 22, 23, 24, 0, 255)),
            chance.choice((0x303, 0x301, 0, 0xFFFF)),
        )
        size = chance.choice((0, len(data), 1 << 14, 0xFFFF))
        return struct.pack(">BHH", kind, version, size) + data[5:]
    return chance.choice(
        (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x80\x2e\x01\x03\x01", b"\0" * 300, data * 40)
    )
