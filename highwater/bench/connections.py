"""`highwater bench connections`: the cost of idle connections in memory and to busy ones.

Theory of operation.  One broker.  100 connections produce small batches at a fixed rate, which an
otherwise idle machine serves easily, and their latencies are noted: first alone, then beside 4,900
connections that were opened, have asked for the versions, and are silent.  The growth of the
broker's PSS through those, divided by their number, is the memory of one.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from dataclasses import dataclass

import trio

from highwater.bench.benchmark import option
from highwater.bench.figures.memory import pss_mib
from highwater.bench.figures.rows import Line, Table, percentile
from highwater.bench.figures.sides import BenchFailed, Side, Sides
from highwater.bench.loads.bench_topics import create_topic
from highwater.bench.loads.many_producers import Outcome, Pressure
from highwater.bench.loads.pipeline_load import numbers, pressing
from highwater.cluster.interface import broker
from highwater.cluster.processes.process_cluster import ProcessCluster
from highwater.kafka.wire.codec import encode_request
from highwater.kafka.wire.header import request_header
from highwater.kafka.wire.messages import ApiVersionsRequest

_TOPIC = "busy"


_BATCH_BYTES = 1000
_SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}


@dataclass(frozen=True, slots=True)
class Options:
    idle: int = option(4900, least=1)
    busy: int = option(100, least=1)
    rate: float = option(500.0, "Requests a second in all.")
    seconds: float = option(20.0, "Measured time of each load.")

    def lines(self) -> list[Line]:
        what = f"{self.busy} busy connections"
        loads = {"alone": f"{what} alone", "beside": f"{what} beside {self.idle} idle ones"}
        found = []
        for load, title in loads.items():
            found.append(Line(f"{load} requests", f"{title}, requests", ""))
            found += [Line(f"{load} {share}", f"{title}, {share}", "ms") for share in _SHARES]
        found.append(Line("ratio", "p99 beside the idle ones, divided by p99 alone", ""))
        found.append(Line("open", "open connections", ""))
        return [*found, Line("each", "memory of an idle connection", "KiB")]


async def run(options: Options, sides: Sides) -> Table:
    async def load(cluster: ProcessCluster, _: Side) -> dict[str, float]:
        await create_topic(cluster.direct_bootstrap, _TOPIC, 1, 1, {})
        await _busy(options, cluster, 3)  # the first use is slower
        alone = await _busy(options, cluster, options.seconds)
        pid = cluster.pid(broker(1))
        before = pss_mib(pid)
        with ExitStack() as stack:
            await trio.to_thread.run_sync(_open_idle, cluster.address(1), options.idle, stack)
            each = (pss_mib(pid) - before) * 1024 / options.idle
            beside = await _busy(options, cluster, options.seconds)
            series = await numbers(cluster.metrics_port(1))
            count = sum(v for n, v in series.items() if "metrics_connection_count{" in n)
        found = {**_figures("alone", alone), **_figures("beside", beside)}
        ratio = found["beside p99"] / found["alone p99"]
        return {**found, "ratio": ratio, "open": int(count), "each": each}

    samples = await sides.alone(load, brokers=1, profile="test", quick_end=True)
    return sides.table(options.lines(), samples)


def _figures(load: str, outcome: Outcome) -> dict[str, float]:
    latencies = {
        f"{load} {name}": percentile(outcome.latency_ms, share) for name, share in _SHARES.items()
    }
    return {f"{load} requests": outcome.acked, **latencies}


async def _busy(options: Options, cluster: ProcessCluster, seconds: float) -> Outcome:
    host, port = cluster.address(1)
    pressure = Pressure(
        host, port, _TOPIC, options.busy, _BATCH_BYTES, rate=options.rate, seconds=seconds
    )
    async with pressing(pressure) as running:
        outcome = await running.end(within_s=seconds + 30)
    if outcome.lost_connections or outcome.errors or not outcome.acked:
        raise BenchFailed(f"the load failed: {outcome.errors}, {outcome.lost_connections} lost")
    return outcome


def _open_idle(address: tuple[str, int], count: int, stack: ExitStack) -> None:
    """Opens connections as a client does: they ask for the versions, and then nothing."""
    request = ApiVersionsRequest(client_software_name="idle", client_software_version="1")
    body = request_header(18, 3, 1, "idle") + bytes(encode_request(request, 3))
    frame = len(body).to_bytes(4, "big") + body
    for _ in range(count):
        sock = stack.enter_context(socket.create_connection(address, timeout=30))
        sock.sendall(frame)
        size = int.from_bytes(_exactly(sock, 4), "big")
        _exactly(sock, size)


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise BenchFailed("the broker closed a connection: max.connections, or ulimit -n?")
        data += more
    return data
