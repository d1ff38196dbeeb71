"""Servers of this process under attack by `listeners`: many connections, then one that is good."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import trio

from highwater.agent.http_server import Call, HttpServer
from highwater.agent.routes import ROUTES
from highwater.agent.routing import find
from highwater.base.metrics import Registry
from highwater.broker.measure.metrics_server import MetricsServer
from highwater.kafka.security.settings import ListenerSettings
from highwater.kafka.security.tls import ServerTls
from highwater.world.real.clock import RealClock
from highwater.world.real.disk import RealDisk
from highwater.world.real.network import RealNetwork
from tests.authority import Authority
from tests.fuzzing.listeners import Address, context, http_connection, tls_connection, told
from tests.unit.broker.network.conftest import Client, echo, entry, serving

AT_ONCE = 10

Attack = Callable[[Random, Address], Awaitable[None]]
Numbers = range
"""The seeds of connections."""


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@asynccontextmanager
async def _few_lines(most: int) -> AsyncIterator[None]:
    """At most so many lines in the log, and no traceback."""
    seen, root = _Lines(), logging.getLogger()
    level = root.level
    root.addHandler(seen)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(seen)
    found = [r.getMessage() for r in seen.records if r.exc_info]
    assert not found, found[:3]
    assert len(seen.records) <= most, [r.getMessage() for r in seen.records[:5]]


async def _all(attack: Attack, address: Address, name: str, numbers: Numbers) -> None:
    left = iter(numbers)

    async def one_after_another() -> None:
        for number in left:
            try:
                await attack(Random(f"{name} {number}"), address)
            except AssertionError as error:
                raise AssertionError(f"{name} {number}: {error}") from error

    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE):
            nursery.start_soon(one_after_another)


async def metrics_port(numbers: Numbers) -> None:
    world = SimpleNamespace(network=RealNetwork(), clock=RealClock())
    server = MetricsServer(cast("Any", world), Registry())
    await server.bind("127.0.0.1", 0)
    async with _few_lines(0), trio.open_nursery() as nursery:
        nursery.start_soon(server.run)
        await _all(http_connection, server.address, "metrics", numbers)
        answer = await told(server.address, [b"GET /healthz HTTP/1.1\r\n\r\n"])
        assert answer.endswith(b"ok\n"), answer
        nursery.cancel_scope.cancel()


async def control_port(numbers: Numbers) -> None:
    async def answer(call: Call) -> dict[str, Any]:
        find(ROUTES, call)
        return {}

    server = await HttpServer.listen(answer, 0)
    address = server.listeners[0].socket.getsockname()
    async with _few_lines(0), trio.open_nursery() as nursery:
        nursery.start_soon(server.serve)
        await _all(http_connection, address, "control", numbers)
        answer_ = await told(address, [b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n"])
        assert answer_.startswith(b"HTTP/1.1 200"), answer_
        nursery.cancel_scope.cancel()


async def tls_port(numbers: Numbers) -> None:
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        store = authority.pem(authority.issue("localhost", common_name="broker"), "broker.pem")
        given = ListenerSettings({"ssl.keystore.location": str(store)}, "SSL", "SSL")
        tls = {"SSL": ServerTls(given, RealDisk())}
    own = {"listeners": "SSL://127.0.0.1:0", "security_inter_broker_protocol": "SSL"}
    async with (
        _few_lines(len(numbers) + 5),
        serving(RealNetwork(), entry(echo), tls=tls, **own) as s,
    ):
        address = s.addresses["SSL"]
        await _all(tls_connection, address, "tls", numbers)
        stream = await trio.open_tcp_stream(*address)
        secured = trio.SSLStream(stream, context(), server_hostname="localhost")
        assert await Client(secured).call(b"hello") == b"<hello>"
        await trio.aclose_forcefully(stream)


PORTS: dict[str, Callable[[Numbers], Awaitable[None]]] = {
    "metrics": metrics_port,
    "control": control_port,
    "tls": tls_port,
}
