"""Reports the steps of one request as they happen, and the opening and closing of connections.

The metrics port streams the report: GET /trace follows the next Produce with acks=all (with
?api=NAME, the next request of that API), GET /trace?connections follows connections.  Each event is
one line of JSON, with the microseconds since the first.  Without a listener this costs nothing: the
handler pool's way to start a request is replaced only during a trace.

For a Produce that waits, the trace looks at the log's end and the HW of its partitions before and
after each request that the broker handles meanwhile.  So it sees which follower's fetch moves the
HW, and so lets the Produce go.
"""

from __future__ import annotations

import json
import struct
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

import trio

from highwater.kafka.errors import ApiError
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.fetch import parse_fetch
from highwater.kafka.wire.header import api_name
from highwater.kafka.wire.produce import parse_produce

if TYPE_CHECKING:
    from highwater.broker.context import Plane
    from highwater.broker.network.connection import BrokerConnection
    from highwater.broker.network.request import Request
    from highwater.broker.network.request_channel import RequestChannel
    from highwater.broker.services import Services

_PRODUCE, _FETCH = 0, 1
_LISTENERS = 4
_LINES = 1000
_UNHEARD = (trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError)
_MALFORMED = (struct.error, IndexError, ValueError)

Line = dict[str, Any]


class TracedPlane(Protocol):
    plane: Plane
    channel: RequestChannel


class Traced(Protocol):
    """The socket server, as a trace sees it."""

    services: Services
    tracers: dict[Tracer, None]

    @property
    def perf_ns(self) -> Callable[[], int]: ...

    def plane_of(self, connection: BrokerConnection) -> TracedPlane: ...

    def trace_changed(self) -> None:
        """Called when tracers come or go."""


class Tracer:
    """The tracer of one listener; `lines` yields its events until the trace is complete."""

    def __init__(self, server: Traced, *, api: str = "Produce", connections: bool) -> None:
        self._server = server
        self._api = api
        self.connections = connections
        self._sender, self._receiver = trio.open_memory_channel[Line | None](_LINES)
        self._request: Request | None = None
        self._began = server.perf_ns()
        self._partitions: dict[TopicPartition, tuple[int, int]] = {}
        self._waits = False

    async def lines(self) -> AsyncIterator[str]:
        """Lines of JSON, each with its end of line."""
        with self._receiver:
            async for line in self._receiver:
                if line is None:
                    return
                yield json.dumps(line) + "\n"

    def tell(self, event: str, **facts: object) -> None:
        self._put((self._server.perf_ns() - self._began) // 1000, event, facts)

    def _put(self, us: int, event: str, facts: dict[str, object]) -> None:
        """Never raises: a listener that does not listen loses lines, and one that has gone is
        still called until its task has run."""
        with suppress(*_UNHEARD):
            self._sender.send_nowait({"us": us, "event": event, **facts})

    def _end(self) -> None:
        with suppress(*_UNHEARD):
            self._sender.send_nowait(None)
        self._sender.close()

    # --- connections

    def opened(self, connection: BrokerConnection, count: int) -> None:
        self.tell("opened", **_who(connection), open=count)

    def closed(self, connection: BrokerConnection, by: str, count: int) -> None:
        self.tell("closed", **_who(connection), by=by, open=count)

    # --- one request

    def before(self, request: Request) -> None:
        """Called when a handler is about to start any request."""
        if self._request is None and self._wanted(request):
            self._follow(request)

    def after(self, request: Request) -> None:
        """Called when the handler has done what it could at once."""
        if self._request is None:
            return
        if request is self._request:
            self._tell_appended()
            if not request.answered and not self._waits:
                self._waits = True
                overlaps = "; its connection's next may come" if request.overlaps else ""
                self.tell("purgatory", text=f"not complete: waits in the purgatory{overlaps}")
        elif self._waits:
            self._tell_moved(request)

    def sent(self, request: Request, now: int) -> None:
        if request is not self._request:
            return
        if self._waits:
            self._tell_moved(None)
        times = {
            "queue": request.taken - request.received,
            "local": request.handled - request.taken,
            "remote": request.ready - request.handled,
            "response queue": request.taken_back - request.ready,
            "send": now - request.taken_back,
            "total": now - request.received,
        }
        self.tell(
            "response",
            text=f"answered{_errors(request)}, through the response queue of processor "
            f"{request.connection.processor.index}",
        )
        self.tell("times", microseconds={name: ns / 1000 for name, ns in times.items()})
        self._end()

    def _wanted(self, request: Request) -> bool:
        if self._api != api_name(request.api_key):
            return False
        return request.api_key != _PRODUCE or self._acks(request) == -1

    @staticmethod
    def _acks(request: Request) -> int:
        assert request.body is not None
        try:
            return parse_produce(request.body, request.api_version).acks
        except _MALFORMED:
            return 0

    def _follow(self, request: Request) -> None:
        self._request, self._began = request, request.received
        connection, channel = request.connection, request.connection.processor
        self._tell_at(
            request.received,
            "processor",
            f"{api_name(request.api_key)} v{request.api_version}, {request.size} bytes, read by "
            f"processor {channel.index} from connection {connection.id} (accepted on listener "
            f"{connection.listener.name}), client id {request.client_id!r}",
        )
        plane = self._server.plane_of(connection)
        self._tell_at(
            request.taken,
            "handler",
            f"taken out of the request channel of the {plane.plane.value} plane by a handler; "
            f"{len(plane.channel)} of {plane.channel.capacity} wait behind it",
        )
        if request.api_key == _PRODUCE:
            assert request.body is not None
            name_of = self._server.services.metadata.topic_of
            parsed = parse_produce(request.body, request.api_version, name_of)
            self._partitions = {tp: self._ends(tp) for tp, _ in parsed.partitions}

    def _tell_at(self, ns: int, event: str, text: str) -> None:
        self._put(max(ns - self._began, 0) // 1000, event, {"text": text})

    def _ends(self, tp: TopicPartition) -> tuple[int, int]:
        """LEO and HW; -1 for both if there is no replica."""
        try:
            partition = self._server.services.replicas.partition(tp)
        except ApiError:
            return -1, -1
        return partition.require_log().log_end_offset, partition.high_watermark

    def _tell_appended(self) -> None:
        for tp, (leo, _) in self._partitions.items():
            now, hw = self._ends(tp)
            if now > leo:
                what = f"offset {leo}" if now == leo + 1 else f"offsets {leo} to {now - 1}"
                members = self._server.services.replicas.partition(tp).isr.members
                self.tell(
                    "log",
                    text=f"{tp}: {what} appended; LEO {now}, HW {hw}, ISR {list(members)}",
                )

    def _tell_moved(self, request: Request | None) -> None:
        for tp, (_, hw) in list(self._partitions.items()):
            leo, now = self._ends(tp)
            if now != hw:
                self._partitions[tp] = (leo, now)
                by = f" by {_described(request)}" if request is not None else ""
                self.tell("HW", text=f"{tp}: HW {hw} -> {now}{by}")


def _described(request: Request) -> str:
    name = api_name(request.api_key)
    if request.api_key == _FETCH and request.body is not None:
        try:
            return f"broker {parse_fetch(request.body, request.api_version).replica_id}'s fetch"
        except _MALFORMED:
            return f"a {name}"
    return f"a {name} of {request.client_id}"


def _errors(request: Request) -> str:
    return f" with {', '.join(request.error_names)}" if request.error_names else ""


def _who(connection: BrokerConnection) -> dict[str, object]:
    name, version = connection.software
    return {
        "connection": connection.id,
        "listener": connection.listener.name,
        "processor": connection.processor.index,
        "software": f"{name} {version}",
    }


def tracing(
    listening: Iterable[Tracer], start: Callable[[Request], Any]
) -> Callable[[Request], Any]:
    """Wraps a pool's way to start requests, so that tracers see the requests."""

    def traced(request: Request) -> Any:
        tracers = [tracer for tracer in listening if not tracer.connections]
        for tracer in tracers:
            tracer.before(request)
        body = request.body
        waiting = start(request)
        if request.body is None and tracers:
            request.body = body  # only to describe which replica fetches
            for tracer in tracers:
                tracer.after(request)
            request.body = None
        else:
            for tracer in tracers:
                tracer.after(request)
        return waiting

    return traced


@asynccontextmanager
async def trace(server: Traced, query: str) -> AsyncIterator[AsyncIterator[str]]:
    """The lines for a query such as "connections" or "api=Fetch"."""
    if len(server.tracers) >= _LISTENERS:
        yield _busy()
        return
    name, _, value = query.partition("=")
    api = value if name == "api" and value else "Produce"
    tracer = Tracer(server, api=api, connections=name == "connections")
    server.tracers[tracer] = None
    server.trace_changed()
    try:
        yield tracer.lines()
    finally:
        server.tracers.pop(tracer, None)
        server.trace_changed()


async def _busy() -> AsyncIterator[str]:
    yield json.dumps({"us": 0, "event": "error", "text": "enough traces are open"}) + "\n"
