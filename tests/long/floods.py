"""Floods of connections that never become clients, beside a client that behaves.

*stopped*: connections that open TLS and stop half-way: a third says nothing, a third sends half a
hello, a third a whole one and does not answer the broker's.  All of them are open at once.
*refused*: connections that finish TLS and authenticate wrongly, by PLAIN and SCRAM in turn.

The broker's memory stays within a bound for each connection, it has no connection left afterwards,
the client's records are all there, and each connection has a line in the log at most.

usage: python -m tests.long.floods [COUNT]
"""

from __future__ import annotations

import os
import resource
import ssl
import struct
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import trio

from highwater.kafka.security.jaas import PLAIN
from highwater.kafka.wire.codec import decode_response
from highwater.kafka.wire.messages import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.authority import PASSWORD, Authority
from tests.integration.robustness.rig import (
    BrokerProcess,
    ZooKeeper,
    frame_of,
    fresh_port,
    leader_of,
)
from tests.long.beside import Beside
from tests.waiting import eventually

TOPIC = "served"
KIB_EACH = 64
"""How much a connection may cost the broker while it is open."""
AT_ONCE = 100
REFUSED = 58
SPARE_FILES = 500

Attack = Callable[[int, int], Awaitable[None]]
"""One connection: its number, and the port."""


def flooded_broker(folder: Path, zookeeper: ZooKeeper) -> tuple[BrokerProcess, int]:
    """A broker with a plain listener, and the port of its SASL_SSL one."""
    folder.mkdir(parents=True, exist_ok=True)
    authority, port = Authority(folder), fresh_port()
    leaf = authority.issue("localhost", common_name="broker")
    broker = BrokerProcess(folder, zookeeper.fresh_path())
    broker.properties |= {
        "listeners": f"PLAINTEXT://127.0.0.1:{broker.port},CLIENTS://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.location": str(authority.pkcs12(leaf, "broker.p12")),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.location": str(authority.trust),
        "listener.name.clients.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.clients.plain.sasl.jaas.config": f'{PLAIN} required user_a="a-s3cret";',
        "socket.listen.backlog.size": "1000",
    }
    broker.serving()
    eventually(
        lambda: leader_of(broker.address, TOPIC, create=True) == 1, "topic", lambda: broker.output
    )
    return broker, port


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _hello() -> bytes:
    out = ssl.MemoryBIO()
    try:
        _context().wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return out.read()


HELLO = _hello()


async def stopped(number: int, port: int) -> None:
    """Opens TLS, stops, and waits until the broker has had enough."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        sent = (b"", HELLO[: len(HELLO) // 2], HELLO)[number % 3]
        try:
            if sent:
                await stream.send_all(sent)
            while await stream.receive_some(65536):
                pass
        except trio.BrokenResourceError:
            pass


async def refused(number: int, port: int) -> None:
    """Authenticates wrongly, and must be told so."""
    tcp = await trio.open_tcp_stream("127.0.0.1", port)
    stream = trio.SSLStream(tcp, _context(), server_hostname="localhost", https_compatible=True)
    mechanism = ("PLAIN", "SCRAM-SHA-512")[number % 2]
    try:
        await stream.send_all(frame_of(SaslHandshakeRequest(mechanism=mechanism), 1))
        await _answer(stream, 17, 1)
        token = (
            b"\0a\0wrong" if mechanism == "PLAIN" else b"n,,n=a,r=" + os.urandom(9).hex().encode()
        )
        await stream.send_all(frame_of(SaslAuthenticateRequest(auth_bytes=token), 2))
        code = (await _answer(stream, 36, 2)).error_code
        assert code == REFUSED, f"{mechanism}: {code}"
        assert not await stream.receive_some(1), "it is closed after that"
    finally:
        await trio.aclose_forcefully(tcp)


async def _answer(stream: trio.SSLStream[trio.SocketStream], key: int, version: int) -> Any:
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
        more = await stream.receive_some(65536)
        assert more, f"closed before the answer to {key}"
        data += more
    return decode_response(key, version, data[8 + (version >= 2) :])


async def _flood(
    attack: Attack, count: int, port: int, at_once: int, sample: Callable[[], None]
) -> None:
    limit = trio.CapacityLimiter(at_once)

    async def one(number: int) -> None:
        async with limit:
            await attack(number, port)

    async def sampled() -> None:
        while True:
            sample()
            await trio.sleep(0.1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sampled)
        async with trio.open_nursery() as attackers:
            for number in range(count):
                attackers.start_soon(one, number)
        nursery.cancel_scope.cancel()


def flood(folder: Path, zookeeper: ZooKeeper, count: int, quiet_s: float) -> str:
    """Both floods, and what came of them in a sentence."""
    broker, port = flooded_broker(folder, zookeeper)
    assert broker.child is not None
    process = psutil.Process(broker.child.pid.pid)
    beside = Beside(broker.address, TOPIC)
    told = []
    try:
        beside.interval()
        trio.run(trio.sleep, quiet_s)
        alone = beside.interval()
        told.append(f"p99 alone {alone['p99']:.0f} ms")
        for name, attack, at_once in (("stopped", stopped, count), ("refused", refused, AT_ONCE)):
            before = peak = process.memory_info().rss
            lines, cpu = len(broker.output.splitlines()), sum(process.cpu_times()[:2])

            def sample() -> None:
                nonlocal peak
                peak = max(peak, process.memory_info().rss)

            trio.run(_flood, attack, count, port, at_once, sample)
            found, spent = beside.interval(), sum(process.cpu_times()[:2]) - cpu
            grown = (peak - before) / 1024
            assert grown < KIB_EACH * count + 20_000, f"{name}: {grown:.0f} KiB more"
            eventually(lambda: _open(process, port) == 0, "no connection is left")
            written = len(broker.output.splitlines()) - lines
            assert written <= count + 20, f"{name}: {written} lines for {count} connections"
            told.append(
                f"{count:,} {name}: {grown / 1024:.0f} MiB more, {spent / count * 1000:.1f} ms of "
                f"CPU each, p99 {found['p99']:.0f} ms, "
                f"worst {found['worst']:.0f} ms of {found['count']:,} requests"
            )
        kept = beside.end()
        assert kept["missing"] == 0, kept
        told.append(f"{kept['acknowledged']:,} acknowledged records, all there")
        assert broker.stop() == 0
        assert "Traceback" not in broker.output, broker.output
    finally:
        beside.kill()
        broker.end()
    return "; ".join(told)


def _open(process: psutil.Process, port: int) -> int:
    found = process.net_connections("tcp")
    return sum(c.laddr.port == port and c.status == psutil.CONN_ESTABLISHED for c in found)


def allow_files(wanted: int) -> None:
    """Lets this process, and the broker that it starts, open that many; ends with the remedy."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            sys.exit(f"floods: it needs {wanted:,} open files, and may have {hard:,}: ulimit -Hn")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def main(count: int) -> None:
    allow_files(count + SPARE_FILES)
    with tempfile.TemporaryDirectory() as name:
        zookeeper = ZooKeeper(Path(name) / "zookeeper")
        try:
            print(flood(Path(name) / "broker", zookeeper, count, 10 if count > 1000 else 2))
        finally:
            zookeeper.end()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000)
