"""A socket server with handlers of the test's own, over the real network, with both pollers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from struct import pack, unpack
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
import trio

from highwater.broker.context import OPEN, Api, Context, Handler
from highwater.broker.network.handler_pool import ErrorResponse, HandlerEntry
from highwater.broker.network.network_metrics import register_network_metrics
from highwater.broker.network.socket_server import SocketServer
from highwater.broker.quota.quota_manager import Quotas
from highwater.broker.request.purgatory import CompletionSink, DelayedOperation, Purgatories
from highwater.broker.request.request_metrics import Metrics
from highwater.broker.request.response import Response
from highwater.kafka.config import Config
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.wire.header import request_header
from highwater.world.api import Connection, Listener
from highwater.world.real.clock import RealClock
from highwater.world.real.network import RealNetwork


class PlainNetwork:
    """The real network without its poller: connections are waited for in tasks."""

    def __init__(self) -> None:
        self._real = RealNetwork()

    async def listen(self, host: str, port: int, backlog: int = 50) -> Listener:
        return await self._real.listen(host, port, backlog)

    async def connect(self, host: str, port: int) -> Connection:
        return await self._real.connect(host, port)


Net = RealNetwork | PlainNetwork


@pytest.fixture(params=["epoll", "tasks"])
def network(request: pytest.FixtureRequest) -> Net:
    return RealNetwork() if request.param == "epoll" else PlainNetwork()


def echo(ctx: Context, body: memoryview) -> Response:
    return Response(parts=[b"<", bytes(body), b">"])


class Wait(DelayedOperation):
    kind: ClassVar[str] = "Fetch"

    def __init__(self, fails: bool = False) -> None:
        self.keys = ["k"]
        self.timeout_ms = 60_000
        self.ready = False
        self.fails = fails

    def try_complete(self) -> Response | None:
        if self.ready and self.fails:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return Response(parts=[b"done"]) if self.ready else None

    def on_expire(self) -> Response:
        return Response(parts=[b"expired"])


class Client:
    """Raw bytes to one listener."""

    def __init__(self, stream: trio.SocketStream | trio.SSLStream[trio.SocketStream]) -> None:
        self.stream = stream
        self._data = bytearray()

    async def send(self, body: bytes, *, key: int = 1, version: int = 4, id_: int = 7) -> None:
        frame = request_header(key, version, id_, "test") + body
        await self.stream.send_all(pack(">i", len(frame)) + frame)

    async def receive(self) -> tuple[int, bytes]:
        """Correlation id and body of the next answer; b"" for both once closed."""
        frame = await self._exactly(unpack(">i", await self._exactly(4))[0])
        return unpack(">i", frame[:4])[0], frame[4:]

    async def call(self, body: bytes, *, key: int = 1, version: int = 4, id_: int = 7) -> bytes:
        await self.send(body, key=key, version=version, id_=id_)
        got_id, answer = await self.receive()
        assert got_id == id_
        return answer

    async def closed(self) -> bool:
        """Waits until the server has closed."""
        with trio.fail_after(5):
            try:
                return await self.stream.receive_some(1) == b""
            except trio.BrokenResourceError:
                return True

    async def _exactly(self, n: int) -> bytes:
        while len(self._data) < n:
            more = await self.stream.receive_some(65536)
            if not more:
                raise EOFError
            self._data += more
        taken = bytes(self._data[:n])
        del self._data[:n]
        return taken


class Serving:
    """A running server and its parts."""

    def __init__(self, server: SocketServer, addresses: dict[str, tuple[str, int]]) -> None:
        self.server = server
        self.addresses = addresses
        self.services = server.services
        self._streams: list[trio.SocketStream] = []

    async def connect(self, listener: str = "PLAINTEXT") -> Client:
        stream = await trio.open_tcp_stream(*self.addresses[listener])
        self._streams.append(stream)
        return Client(stream)

    async def close(self) -> None:
        for stream in self._streams:
            await trio.aclose_forcefully(stream)


def entry(
    handle: Callable[..., Any],
    *,
    key: int = 1,
    versions: tuple[int, int] = (0, 11),
    raw: bool = True,
    error_response: ErrorResponse | None = None,
) -> HandlerEntry:
    api = Api(key, f"Api{key}", versions, OPEN, raw=raw)
    return HandlerEntry(api, cast("Handler", handle), error_response)


@asynccontextmanager
async def serving(
    network: RealNetwork | PlainNetwork,
    *entries: HandlerEntry,
    tls: Any = None,
    sasl: Any = None,
    **config: Any,
) -> AsyncIterator[Serving]:
    world = SimpleNamespace(network=network, clock=RealClock())
    purgatories = Purgatories()
    config.setdefault("listeners", "PLAINTEXT://127.0.0.1:0")
    given = Config(**config)
    services = SimpleNamespace(
        config=given, metrics=Metrics(), purgatories=purgatories,
        completions=CompletionSink(purgatories), quotas=Quotas(given), authorizer=None,
    )  # fmt: skip
    server = SocketServer(
        given, cast("Any", world), {e.api.key: e for e in entries}, cast("Any", services),
        tls or {}, sasl or {},
    )  # fmt: skip
    register_network_metrics(server)
    running = Serving(server, await server.bind())
    services.completions.hold, services.completions.go = server.hold, server.go
    async with trio.open_nursery() as nursery:
        nursery.start_soon(purgatories.run)
        nursery.start_soon(services.completions.run)
        nursery.start_soon(server.run)
        server.start_accepting()
        try:
            with trio.fail_after(20):
                yield running
        finally:
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await running.close()
