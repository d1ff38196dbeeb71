"""The network layer: acceptors, processors, request channels and handler pools of both planes.

    socket -> acceptor -> processor -> request channel -> handler
           -> response queue of that processor -> socket

The data plane serves every listener but one: it has num.network.threads processors, a channel of
queued.max.requests and num.io.threads handlers.  The control plane (KIP-291) is a second, complete
set with one processor, a channel of 20 and one handler, on control.plane.listener.name: the
controller's requests never wait behind those of clients.  If that name is empty there is no second
set, and control requests share the data plane, as in Kafka.

Both planes run in one thread, so each step of a full data plane still delays the control plane.
Therefore no task of either keeps the loop for more than about a millisecond.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import trio

from highwater.base.event_loop import monotonic_ms
from highwater.broker.context import Plane
from highwater.broker.network.connection import BrokerConnection, ListenerInfo
from highwater.broker.network.handing_over import borrowed, give_back
from highwater.broker.network.handler_pool import HandlerPool, HandlerTable, handler_table
from highwater.broker.network.processor import Gate, Processor
from highwater.broker.network.request import Request
from highwater.broker.network.request_channel import RequestChannel
from highwater.broker.network.request_log import RequestLog
from highwater.broker.network.sasl_connection import STRANGER_MS, SaslConnection
from highwater.broker.network.tracing import Tracer, tracing
from highwater.broker.quota.connection_limits import ConnectionLimits, TooManyConnections
from highwater.broker.quota.listener_limits import listener_limits
from highwater.kafka.security.authentication import ANONYMOUS, Authentication
from highwater.kafka.types import Endpoint

if TYPE_CHECKING:
    from highwater.broker.request.request_metrics import Metrics
    from highwater.broker.services import Services
    from highwater.kafka.config import Config
    from highwater.kafka.security.authentication import SaslSettings
    from highwater.kafka.security.tls import ServerTls
    from highwater.world.api import Connection, Listener, Loan, World

__all__ = ["BindError", "HandlerTable", "SocketServer", "handler_table"]

log = logging.getLogger(__name__)

CONTROL_CHANNEL_REQUESTS = 20
_ACCEPTS_A_TURN = 16
_NONE: Mapping[str, Any] = {}


class BindError(OSError):
    """Raised for a listener that cannot be opened; the message is the line for the user."""


class PlaneServer:
    """One plane: its listeners, processors, channel and handlers."""

    def __init__(self, plane: Plane, server: SocketServer, endpoints: tuple[Endpoint, ...]) -> None:
        config = server.config
        control = plane is Plane.CONTROL
        self.plane = plane
        self.endpoints = endpoints
        self.channel = RequestChannel(
            CONTROL_CHANNEL_REQUESTS if control else config.queued_max_requests,
            -1 if control else config.queued_max_request_bytes,
        )
        self.handlers = 1 if control else config.num_io_threads
        count = 1 if control else config.num_network_threads
        self.processors = [server.new_processor(self.channel) for _ in range(count)]
        self.pool = HandlerPool(
            plane,
            self.channel,
            server.handlers,
            server.services,
            server.metrics,
            server.perf_ns,
            server.request_log,
        )
        self.started = trio.Event()
        self._server = server
        self._next = 0
        self._nursery: trio.Nursery | None = None
        self._starting = 0

    def next_processor(self) -> Processor:
        """The processor for the next connection, round robin."""
        processor = self.processors[self._next % len(self.processors)]
        self._next += 1
        return processor

    @property
    def busy(self) -> bool:
        """Whether a request is on its way, not counting those that wait in the purgatory."""
        return len(self.channel) > 0 or any(
            processor.unsent_answers
            or any(
                c.sending or any(not request.waits for request in c.pending)
                for c in processor.connections
            )
            for processor in self.processors
        )

    def stop_reading(self) -> None:
        for processor in self.processors:
            processor.reading = False

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for processor in list(self.processors):
                await nursery.start(processor.run, self._server.network)
            self.started.set()
            await self.pool.run(lambda: self.handlers)

    def resize_handlers(self, size: int) -> None:
        self.handlers = size
        self.pool.resize(size)

    def resize_processors(self, size: int) -> None:
        """Sets the number of processors.  New ones take part as soon as they run; one that goes
        closes its connections, as in Kafka, and their clients connect again.
        """
        if self._nursery is None:
            fresh = range(size - len(self.processors))
            self.processors += [self._server.new_processor(self.channel) for _ in fresh]
        else:
            for _ in range(size - len(self.processors) - self._starting):
                self._starting += 1
                self._nursery.start_soon(self._add_processor, self._nursery)
        for processor in self.processors[size:]:
            processor.stop()
        del self.processors[size:]

    async def _add_processor(self, nursery: trio.Nursery) -> None:
        processor = self._server.new_processor(self.channel)
        await nursery.start(processor.run, self._server.network)
        self._starting -= 1
        self.processors.append(processor)

    def close_connections(self) -> None:
        for processor in self.processors:
            for connection in list(processor.connections):
                processor.close(connection)


class SocketServer:
    """Both planes.  `bind`, then `run` in a task, then `start_accepting`."""

    def __init__(
        self,
        config: Config,
        world: World,
        handlers: HandlerTable,
        services: Services,
        tls: Mapping[str, ServerTls] = _NONE,
        sasl: Mapping[str, SaslSettings] = _NONE,
    ) -> None:
        """`tls` and `sasl` hold the settings of the listeners that use them."""
        self.config = config
        self._tls = tls
        self._sasl = sasl
        self._handshakes: trio.Nursery | None = None
        self.handlers = handlers
        self.services = services
        self.on_disconnect: list[Callable[[int], None]] = []
        """Called with the number of a connection that has ended."""
        self.metrics: Metrics = services.metrics
        self.perf_ns = world.clock.perf_ns
        self.request_log = RequestLog()
        self.tracers: dict[Tracer, None] = {}
        self.expired = dict.fromkeys(Plane, 0)
        """Connections closed because nothing arrived for connections.max.idle.ms."""
        self.network = world.network
        listeners = config.parsed_listeners
        self._closed_one = trio.Event()
        several = len(listeners.bound) > 1
        protected = {listeners.inter_broker, listeners.control_plane} if several else set()
        self.limits = ConnectionLimits(
            config.max_connections,
            config.max_connections_per_ip,
            config.max_connections_per_ip_overrides,
            config.max_connection_creation_rate,
            windows=(config.quota_window_num, config.quota_window_size_seconds * 1000),
            protected=protected,
        )
        self.limit_listeners({})
        self.blocked_ns = {endpoint.listener: 0 for endpoint in listeners.bound}
        """By listener, how long its acceptor had to wait for room or for the creation rate."""
        self._protected = protected
        self._listeners: dict[str, tuple[Listener, ListenerInfo, PlaneServer]] = {}
        self._loan: Loan | None = None
        self._accepting = trio.Event()
        self._count = 0
        self._processors = 0
        self.gate = Gate()
        data = PlaneServer(Plane.DATA, self, listeners.data_plane)
        self.planes: dict[Plane, PlaneServer] = {Plane.DATA: data}
        if listeners.control_plane is not None:
            control = tuple(e for e in listeners.bound if e.listener == listeners.control_plane)
            self.planes[Plane.CONTROL] = PlaneServer(Plane.CONTROL, self, control)

    async def bind(self) -> dict[str, tuple[str, int]]:
        """Opens every listener, and returns their addresses by name; raises BindError."""
        for plane in self.planes.values():
            for endpoint in plane.endpoints:
                try:
                    listener = await self.network.listen(
                        endpoint.host, endpoint.port, self.config.socket_listen_backlog_size
                    )
                except OSError as exc:
                    self._close_listeners()
                    raise BindError(exc.errno, bind_problem(endpoint, exc)) from exc
                info = ListenerInfo(endpoint.listener, endpoint.security_protocol)
                self._listeners[endpoint.listener] = (listener, info, plane)
        self._loan = await borrowed(
            self.network, {i.name: i for _, i, _ in self._listeners.values()}
        )
        return {name: entry[0].address for name, entry in self._listeners.items()}

    def start_accepting(self) -> None:
        """Accepts connections; until this is called clients wait in the listen queues."""
        self._accepting.set()

    async def run(self) -> None:
        """Serves until it is cancelled, which closes everything at once (see `drain`)."""
        try:
            async with trio.open_nursery() as nursery:
                for plane in self.planes.values():
                    nursery.start_soon(plane.run)
                for plane in self.planes.values():
                    await plane.started.wait()
                nursery.start_soon(self._close_idle)
                self._handshakes = nursery
                await self._accepting.wait()
                for listener, info, plane in self._listeners.values():
                    nursery.start_soon(self._accept, listener, info, plane)
                if self._loan is not None:
                    for name, listener in self._loan.listeners:
                        _, info, plane = self._listeners[name]
                        lent = info._replace(lent=True)
                        nursery.start_soon(self._accept, listener, lent, plane)
                    nursery.start_soon(give_back, self._loan, self.connections)
        finally:
            self._close_listeners()
            for plane in self.planes.values():
                plane.close_connections()

    def hold(self) -> None:
        """Collects answers until `go`, so that they leave together."""
        self.gate.shut = True

    def go(self) -> None:
        self.gate.open()

    async def drain(self, timeout_s: float = 1.0) -> None:
        """Stops accepting and reading, and waits until all that was read is answered; then the
        caller cancels `run`."""
        self._close_listeners()
        for plane in self.planes.values():
            plane.stop_reading()
        with trio.move_on_after(timeout_s):
            while any(plane.busy for plane in self.planes.values()):
                await trio.sleep(0.002)

    # --- accepting

    async def _accept(self, listener: Listener, info: ListenerInfo, plane: PlaneServer) -> None:
        """The acceptor of one listener."""
        turn = 0
        while True:
            began = self.perf_ns()
            await self._wait_for_room(info)
            self.blocked_ns[info.name] += self.perf_ns() - began
            try:
                connection = await listener.accept()
            except trio.ClosedResourceError:
                return
            except OSError:
                log.exception("listener %s cannot accept", info.name)
                await trio.sleep(0.1)
                continue
            self._take(connection, info, plane)
            turn += 1
            if turn % _ACCEPTS_A_TURN == 0:
                await trio.lowlevel.checkpoint()

    async def _wait_for_room(self, info: ListenerInfo) -> None:
        if (problem := self.limits.problem(info.name)) is not None:
            log.warning("listener %s waits: %s are open", info.name, problem)
        while self.limits.problem(info.name) is not None:
            self._closed_one = trio.Event()
            await self._closed_one.wait()
        while delay_ms := self.limits.delay_ms(monotonic_ms(), info.name):
            await trio.sleep(delay_ms / 1000)

    def _take(self, connection: Connection, info: ListenerInfo, plane: PlaneServer) -> None:
        ip = connection.peer[0]
        delay_ms = self.limits.ip_delay_ms(ip, monotonic_ms())
        if delay_ms:  # kept open for a while: a client that tries again at once gains nothing
            log.debug(
                "a connection of %s is closed in %d ms: connection_creation_rate", ip, delay_ms
            )
            self.call_later(delay_ms, connection.close)
            return
        if self.limits.full:
            self._close_most_idle()
        try:
            self.limits.add(ip, info.name)
        except TooManyConnections as exc:
            log.info("refused a connection on listener %s: %s", info.name, exc)
            connection.close()
            return
        if tls := self._tls.get(info.name):
            assert self._handshakes is not None
            self._handshakes.start_soon(self._secure, connection, tls, info, plane)
        else:
            self._admit(connection, info, plane)

    def _admit(
        self,
        connection: Connection,
        info: ListenerInfo,
        plane: PlaneServer,
        wire: Connection | None = None,
    ) -> BrokerConnection:
        """Hands a connection to a processor."""
        self._count += 1
        processor = plane.next_processor()
        most, sasl = self.config.socket_request_max_bytes, self._sasl.get(info.name)
        if sasl is None:
            accepted = BrokerConnection(connection, info, processor, most, self._count, wire)
        else:
            accepted = guarded = SaslConnection(
                connection, info, processor, most, self._count, Authentication(sasl), wire
            )
            self.call_later(STRANGER_MS, guarded.close_stranger)
        processor.add(accepted)
        for tracer in self.tracers:
            if tracer.connections:
                tracer.opened(accepted, self.limits.total)
        return accepted

    async def _secure(
        self, wire: Connection, tls: ServerTls, info: ListenerInfo, plane: PlaneServer
    ) -> None:
        """Makes the handshake of a connection, which counts already but has no processor yet."""
        admitted = False
        try:
            connection = await tls.accept(wire)
            # a client of a SASL listener is known by SASL alone, as in Kafka
            principal = ANONYMOUS if info.name in self._sasl else tls.principal(connection)
            accepted = self._admit(connection, info, plane, wire)
            admitted = True
            accepted.principal = principal
            accepted.readable = True  # its first request may have come with the handshake's end
            accepted.processor.resume(accepted)
        except OSError as exc:
            log.info("listener %s refused %s:%d: %s", info.name, *wire.peer, exc)
        finally:
            if not admitted:
                wire.close()
                self.limits.remove(wire.peer[0], info.name)
                self._closed_one.set()

    def _close_most_idle(self) -> None:
        """Makes room for the inter-broker listener at the cost of a client."""
        others = [
            connection
            for connection in self.connections()
            if connection.listener.name not in self._protected
        ]
        if others:
            oldest = min(others, key=lambda c: (bool(c.pending), c.last_active, c.index))
            log.warning("closing connection %s: max.connections is reached", oldest.id)
            oldest.processor.close(oldest)

    def connections(self) -> list[BrokerConnection]:
        return [
            connection
            for plane in self.planes.values()
            for processor in plane.processors
            for connection in processor.connections
        ]

    async def _close_idle(self) -> None:
        """Closes connections on which nothing arrived for connections.max.idle.ms.  A connection
        that waits for its answer is closed only if it does not read the part that is there.
        """
        idle_ms = self.config.connections_max_idle_ms
        if idle_ms < 0:
            return
        while True:
            await trio.sleep(min(max(idle_ms / 4, 5), 30_000) / 1000)
            oldest = self.perf_ns() - idle_ms * 1_000_000
            for connection in self.connections():
                if connection.last_active < oldest and (
                    not connection.pending or connection.sending
                ):
                    half = connection.unfinished
                    level = logging.INFO if half else logging.DEBUG
                    text = "closing connection %s: idle for %d ms%s"
                    log.log(level, text, connection.id, idle_ms, f", and {half}" if half else "")
                    self.expired[self.plane_of(connection).plane] += 1
                    connection.processor.close(connection)

    def _close_listeners(self) -> None:
        for listener, _, _ in self._listeners.values():
            listener.close()
        if self._loan is not None:
            self._loan.close()

    def new_processor(self, channel: RequestChannel) -> Processor:
        """Makes a processor; its number is unique in a broker, and never used again."""
        self._processors += 1
        processor = Processor(
            self._processors - 1,
            channel,
            self.perf_ns,
            self.on_sent,
            self.on_closed,
            self.call_later,
        )
        processor.gate = self.gate
        return processor

    def reconfigure(self) -> None:
        """Applies dynamic broker configuration: numbers of tasks, limits, the size of the queue."""
        config, data = self.config, self.planes[Plane.DATA]
        data.channel.resize(config.queued_max_requests, config.queued_max_request_bytes)
        data.resize_handlers(config.num_io_threads)
        data.resize_processors(config.num_network_threads)
        self.limits.configure(
            config.max_connections,
            config.max_connections_per_ip,
            config.max_connections_per_ip_overrides,
            config.max_connection_creation_rate,
        )
        self._closed_one.set()

    def limit_listeners(self, changes: Mapping[str, str]) -> None:
        """Sets the listeners' own limits of connections, from the broker's file and `changes`."""
        self.limits.limit_listeners(listener_limits(self.config, changes))
        self._closed_one.set()

    # --- what processors report

    def on_sent(self, request: Request, now: int) -> None:
        for metrics in request.metrics:
            metrics.record(request, now)
        if request.logged is not None:
            self.request_log.sent(request, now)
        if self.tracers:
            for tracer in list(self.tracers):
                tracer.sent(request, now)

    def plane_of(self, connection: BrokerConnection) -> PlaneServer:
        return self._listeners[connection.listener.name][2]

    def trace_changed(self) -> None:
        """Makes the pools report each request while a trace listens."""
        for plane in self.planes.values():
            if self.tracers:
                plane.pool.start = tracing(self.tracers, plane.pool.handle)
            else:
                plane.pool.start = plane.pool.handle

    def on_closed(self, connection: BrokerConnection) -> None:
        for tracer in self.tracers:
            if tracer.connections:
                by = "client" if connection.hung_up_by_peer else "broker"
                tracer.closed(connection, by, self.limits.total - 1)
        self.limits.remove(connection.peer[0], connection.listener.name)
        for listener in self.on_disconnect:
            listener(connection.index)
        self._closed_one.set()

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> object:
        due = monotonic_ms() + delay_ms
        return self.services.purgatories.call_at(due, callback)


def bind_problem(endpoint: Endpoint, exc: OSError) -> str:
    """One line with the listener, the problem and the remedy."""
    where = f"listener {endpoint.listener} cannot bind {endpoint.host or '*'}:{endpoint.port}"
    if exc.errno == errno.EADDRINUSE:
        return f"{where}: the port is in use; stop what uses it, or change listeners"
    if exc.errno == errno.EADDRNOTAVAIL:
        return f"{where}: this machine has no such address; change the host in listeners"
    if exc.errno in (errno.EACCES, errno.EPERM):
        return f"{where}: not permitted; ports below 1024 need a privilege"
    return f"{where}: {exc.strerror or exc}"
