"""The network layer's gauges, by the names that dashboards know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from highwater.base.metrics import Labels, labels
from highwater.broker.context import Plane

if TYPE_CHECKING:
    from highwater.broker.network.processor import Processor
    from highwater.broker.network.request_channel import RequestChannel
    from highwater.broker.network.socket_server import PlaneServer, SocketServer

SOCKETS = "kafka_network_socketserver_"
Gauge = Callable[..., None]


def register_network_metrics(server: SocketServer) -> None:
    """Registers everything that can be read from a socket server."""
    gauge = server.metrics.gauge
    channel = "kafka_network_requestchannel_"
    pool = "kafka_server_kafkarequesthandlerpool_"
    for plane in server.planes.values():
        prefix = "controlplane" if plane.plane is Plane.CONTROL else ""
        gauge(
            f"{channel}{prefix}requestqueuesize",
            plane.channel.__len__,
            "Requests in the request channel",
        )
        gauge(
            f"{channel}{prefix}responsequeuesize",
            _response_queues(plane),
            "Answers in each processor's response queue",
        )
        gauge(
            f"{SOCKETS}{prefix}networkprocessoravgidlepercent",
            _processors_idle(server, plane),
            "Share of the time in which the processors waited",
        )
        gauge(
            f"{pool}{prefix}requesthandleravgidlepercent_oneminuterate",
            _handlers_idle(server, plane),
            "Share of the time in which no handler of the plane ran",
        )
        gauge(
            f"{SOCKETS}{prefix}expiredconnectionskilledcount",
            _expired(server, plane.plane),
            "Connections closed after connections.max.idle.ms",
        )
        gauge(
            f"kafka_network_acceptor_{prefix}acceptorblockedpercent",
            _acceptors_blocked(server, plane),
            "Share of the time in which an acceptor had to wait before the next accept",
        )
    gauge(
        "kafka_network_processor_idlepercent",
        _processor_idle(server),
        "Share of the time in which a processor waited",
    )
    _register_memory(gauge, server.planes[Plane.DATA].channel)
    _register_connections(gauge, server)
    _register_purgatories(gauge, server)


def _register_memory(gauge: Gauge, data: RequestChannel) -> None:
    gauge(
        f"{SOCKETS}memorypoolavailable",
        lambda: max(data.capacity_bytes - data.bytes_in_flight, 0),
        "What queued.max.request.bytes leaves; very much where it is not set",
    )
    gauge(
        f"{SOCKETS}memorypoolused",
        lambda: data.bytes_in_flight,
        "Bytes held by requests that are read, queued or handled",
    )


def _register_connections(gauge: Gauge, server: SocketServer) -> None:
    connections = "kafka_server_socketservermetrics_connection_"
    gauge(f"{connections}count", lambda: _connections(server), "Open connections")
    gauge(
        f"{connections}creation_total",
        lambda: _totals(server, "created"),
        "Connections accepted",
    )
    gauge(f"{connections}close_total", lambda: _totals(server, "ended"), "Connections closed")
    for name, attribute in (("creation_rate", "created"), ("close_rate", "ended")):
        gauge(connections + name, _rates(server, attribute), "By second, since the last scrape")
    gauge(
        "kafka_server_socketservermetrics_connections",
        lambda: _software(server),
        "Open connections by client software",
    )


def _register_purgatories(gauge: Gauge, server: SocketServer) -> None:
    purgatory = "kafka_server_delayedoperationpurgatory_"
    gauge(
        f"{purgatory}purgatorysize",
        lambda: _purgatory(server, 0),
        "Watched keys of delayed operations",
    )
    gauge(
        f"{purgatory}numdelayedoperations",
        lambda: _purgatory(server, 1),
        "Delayed operations",
    )


def _response_queues(plane: PlaneServer) -> Callable[[], Mapping[Labels, float]]:
    return lambda: {labels(processor=p.index): p.unsent_answers for p in plane.processors}


def _processor_idle(server: SocketServer) -> Callable[[], Mapping[Labels, float]]:
    shares: dict[int, Callable[[], float]] = {}

    def read() -> Mapping[Labels, float]:
        found: dict[Labels, float] = {}
        for processor in (p for plane in server.planes.values() for p in plane.processors):
            if processor.index not in shares:
                shares[processor.index] = _share(server, partial(_busy_ns, processor))
            found[labels(networkprocessor=processor.index)] = 1.0 - shares[processor.index]()
        return found

    return read


def _busy_ns(processor: Processor) -> float:
    return processor.busy_ns


def _expired(server: SocketServer, plane: Plane) -> Callable[[], float]:
    return lambda: server.expired[plane]


def _acceptors_blocked(
    server: SocketServer, plane: PlaneServer
) -> Callable[[], Mapping[Labels, float]]:
    shares = {
        endpoint.listener: _share(server, partial(server.blocked_ns.__getitem__, endpoint.listener))
        for endpoint in plane.endpoints
    }
    return lambda: {labels(listener=name): read() for name, read in shares.items()}


def _totals(server: SocketServer, attribute: str) -> Mapping[Labels, float]:
    counts: dict[Labels, float] = {}
    for plane in server.planes.values():
        for processor in plane.processors:
            for listener, n in getattr(processor, attribute).items():
                counts[labels(listener=listener, network_processor=processor.index)] = n
    return counts


def _rates(server: SocketServer, attribute: str) -> Callable[[], Mapping[Labels, float]]:
    """The growth of counts a second, since the last scrape (at least a second ago)."""
    at, before = server.perf_ns(), _totals(server, attribute)
    rates: Mapping[Labels, float] = {}

    def read() -> Mapping[Labels, float]:
        nonlocal at, before, rates
        now, counts = server.perf_ns(), _totals(server, attribute)
        seconds = (now - at) / 1e9
        if seconds >= 1:
            rates = {key: (n - before.get(key, 0)) / seconds for key, n in counts.items()}
            at, before = now, counts
        return rates

    return read


def _processors_idle(server: SocketServer, plane: PlaneServer) -> Callable[[], float]:
    busy = _share(server, lambda: sum(p.busy_ns for p in plane.processors) / len(plane.processors))
    return lambda: 1.0 - busy()


def _handlers_idle(server: SocketServer, plane: PlaneServer) -> Callable[[], float]:
    busy = _share(server, lambda: plane.pool.busy_ns)
    return lambda: 1.0 - busy()


def _share(server: SocketServer, spent_ns: Callable[[], float]) -> Callable[[], float]:
    """The share of the time since the last scrape (at least a second ago) that was spent so."""
    before = [server.perf_ns(), spent_ns(), 0.0]

    def read() -> float:
        now = server.perf_ns()
        passed = now - before[0]
        if passed >= 1_000_000_000:
            spent = spent_ns()
            before[:] = [now, spent, min(max((spent - before[1]) / passed, 0.0), 1.0)]
        return before[2]

    return read


def _connections(server: SocketServer) -> Mapping[Labels, float]:
    counts: dict[Labels, float] = {}
    for connection in server.connections():
        key = labels(
            listener=connection.listener.name, network_processor=connection.processor.index
        )
        counts[key] = counts.get(key, 0) + 1
    return counts


def _software(server: SocketServer) -> Mapping[Labels, float]:
    counts: dict[Labels, float] = {}
    for connection in server.connections():
        name, version = connection.software
        key = labels(client_software_name=name, client_software_version=version)
        counts[key] = counts.get(key, 0) + 1
    return counts


def _purgatory(server: SocketServer, index: int) -> Mapping[Labels, float]:
    sizes = server.services.purgatories.sizes()
    return {labels(delayedoperation=kind): size[index] for kind, size in sizes.items()}
