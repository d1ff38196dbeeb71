"""/metrics, /healthz, /readyz and /trace on highwater.metrics.port, with a minimum of HTTP.

It binds highwater.metrics.host.  By default that is the host of the broker's first listener: a
broker that serves this machine alone shows its numbers to this machine alone.

There is one request a connection, GET or HEAD, answered and closed.  /healthz says that the loop
turns; /readyz whether the broker serves: 503 until it is registered, and when it is leaving.

A broker of thousands of partitions has a page of tens of thousands of lines, and making it takes as
long as thousands of requests.  So it is made some lines at a time, with requests served in between,
and the numbers of a page are not all of the same instant.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from itertools import islice
from typing import TYPE_CHECKING

import trio

from highwater.base.event_loop import in_turns
from highwater.base.metrics import CONFLUENT, CONTENT_TYPE, family_lines

if TYPE_CHECKING:
    from highwater.base.metrics import Registry
    from highwater.kafka.config import Config
    from highwater.world.api import Buffer, Connection, Listener, World

log = logging.getLogger(__name__)

OpenTrace = Callable[[str], AbstractAsyncContextManager[AsyncIterator[str]]]
"""For a query: lines to be streamed, as long as the context lasts (see `tracing`)."""
_MAX_REQUEST_BYTES = 8192
_REQUEST_S = 5.0
_ENOUGH_CONNECTIONS = 16
_LINES_AT_ONCE = 500
_REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class MetricsServer:
    """`bind`, then `run` in a task."""

    def __init__(
        self,
        world: World,
        registry: Registry,
        *,
        ready: Callable[[], bool] = lambda: True,
        dialect: str = CONFLUENT,
        trace: OpenTrace | None = None,
    ) -> None:
        self._world = world
        self._registry = registry
        self._ready = ready
        self._dialect = dialect
        self._trace = trace
        self._listener: Listener | None = None
        self._open = 0

    async def bind(self, host: str, port: int) -> tuple[str, int]:
        """Raises OSError with the port and the property in its message."""
        try:
            self._listener = await self._world.network.listen(host, port)
        except OSError as exc:
            where = f" at {host}" if host else ""
            problem = f"highwater.metrics.port={port} cannot be bound{where}: {exc.strerror or exc}"
            raise OSError(exc.errno, f"{problem}; choose another port, or -1 for none") from exc
        return self._listener.address

    @property
    def address(self) -> tuple[str, int]:
        """The bound address."""
        assert self._listener is not None, "bind first"
        return self._listener.address

    async def run(self) -> None:
        listener = self._listener
        assert listener is not None, "bind first"
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    connection = await listener.accept()
                    if self._open >= _ENOUGH_CONNECTIONS:
                        connection.close()
                    else:
                        self._open += 1
                        nursery.start_soon(self._serve, connection)
        finally:
            listener.close()

    async def _serve(self, connection: Connection) -> None:
        try:
            with trio.move_on_after(_REQUEST_S) as limit:
                request = await _read_head(connection)
                if request is not None and request.startswith(b"GET /trace") and self._trace:
                    limit.deadline = math.inf
                    await self._stream(connection, request)
                elif request is not None:
                    async for piece in in_turns(await self._answer(request), 1):
                        await _send(connection, piece)
        except (OSError, trio.ClosedResourceError) as exc:
            log.debug("a scraper went away: %s", exc)
        finally:
            self._open -= 1
            connection.close()

    async def _stream(self, connection: Connection, head: bytes) -> None:
        """Sends lines of JSON as they come, until the trace or the connection ends."""
        assert self._trace is not None
        query = head.split(b" ", 2)[1].partition(b"?")[2].decode("latin-1")
        async with self._trace(query) as lines, trio.open_nursery() as nursery:

            async def until_closed() -> None:
                scrap = memoryview(bytearray(64))
                while (n := connection.recv_into(scrap)) is None or n:
                    if n is None:
                        await connection.wait_readable()
                nursery.cancel_scope.cancel()

            nursery.start_soon(until_closed)
            head_lines = ("HTTP/1.1 200 OK", "Content-Type: application/x-ndjson")
            text = "\r\n".join((*head_lines, "Connection: close", "", ""))
            await _send(connection, text.encode())
            async for line in lines:
                await _send(connection, line.encode())
            nursery.cancel_scope.cancel()

    async def _answer(self, head: bytes) -> list[bytes]:
        """The answer in pieces, with other tasks' turns in between."""
        method, _, rest = head.partition(b" ")
        path = rest.split(b" ", 1)[0].split(b"?", 1)[0].decode("latin-1")
        status, kind, text, page = 200, "text/plain; charset=utf-8", "", None
        if method not in (b"GET", b"HEAD"):
            status, text = 405, "GET or HEAD\n"
        elif path == "/metrics":
            page, kind = await self._page(), CONTENT_TYPE
        elif path == "/healthz":
            text = "ok\n"
        elif path == "/readyz":
            status, text = (200, "ready\n") if self._ready() else (503, "not ready\n")
        else:
            status, text = 404, "/metrics, /healthz, /readyz\n"
        body = [text.encode()] if page is None else page
        lines = (
            f"HTTP/1.1 {status} {_REASONS[status]}",
            f"Content-Type: {kind}",
            f"Content-Length: {sum(map(len, body))}",
            "Connection: close",
            "",
            "",
        )
        answer = "\r\n".join(lines).encode()
        return [answer] if method == b"HEAD" else [answer, *body]

    async def _page(self) -> list[bytes]:
        """The page in pieces.  Each family becomes text at once: its numbers would be a hundred
        thousand objects for the garbage collector to look at.
        """
        pieces: dict[str, list[bytes]] = {}
        for family in self._registry.collect(self._world.clock.perf_ns()):
            of_name = pieces.setdefault(family.name, [])
            lines = family_lines(family, self._dialect)
            while some := list(islice(lines, _LINES_AT_ONCE)):
                of_name.append("\n".join([*some, ""]).encode())
                await trio.lowlevel.checkpoint()
        return [piece for _, of_name in sorted(pieces.items()) for piece in of_name]


async def open_metrics_server(
    config: Config,
    world: World,
    registry: Registry,
    ready: Callable[[], bool],
    trace: OpenTrace | None = None,
) -> MetricsServer | None:
    """A server, bound and ready to run; None if no port is configured."""
    if config.highwater_metrics_port < 0:
        return None
    dialect = config.highwater_metrics_dialect
    server = MetricsServer(world, registry, ready=ready, dialect=dialect, trace=trace)
    await server.bind(config.metrics_host, config.highwater_metrics_port)
    return server


async def _read_head(connection: Connection) -> bytes | None:
    """A request up to its empty line; None if it ends early or is too long."""
    buffer = bytearray(_MAX_REQUEST_BYTES)
    view = memoryview(buffer)
    have = 0
    while have < len(buffer):
        n = connection.recv_into(view[have:])
        if n is None:
            await connection.wait_readable()
        elif n == 0:
            return None
        else:
            have += n
            if b"\r\n\r\n" in buffer[:have] or b"\n\n" in buffer[:have]:
                return bytes(buffer[:have])
    return None


async def _send(connection: Connection, data: bytes) -> None:
    rest: Buffer = memoryview(data)
    while len(rest):
        n = connection.send([rest])
        if n is None:
            await connection.wait_writable()
        else:
            rest = rest[n:]
