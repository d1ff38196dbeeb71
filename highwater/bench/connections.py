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
from pathlib import Path
from typing import Any

import trio

from highwater.bench.figures.memory import pss_mib
from highwater.bench.figures.rows import rows_text
from highwater.bench.figures.sides import BenchFailed, Progress
from highwater.bench.loads.many_producers import Outcome, Pressure
from highwater.bench.loads.pipeline_load import create_topic, numbers, percentile, pressing
from highwater.cluster.interface import broker
from highwater.cluster.processes.process_cluster import ProcessCluster, process_cluster
from highwater.cluster.processes.process_settings import Settings
from highwater.kafka.wire.codec import encode_request
from highwater.kafka.wire.header import request_header
from highwater.kafka.wire.messages import ApiVersionsRequest

_TOPIC = "busy"


@dataclass(frozen=True, slots=True)
class Plan:
    idle: int = 4900
    busy: int = 100
    rate: float = 500
    """Requests a second of all the busy ones together."""
    batch_bytes: int = 1000
    seconds: float = 20


@dataclass(slots=True)
class Found:
    plan: Plan
    alone: Outcome
    beside: Outcome
    before_mib: float
    after_mib: float
    open: int

    @property
    def kib_a_connection(self) -> float:
        return (self.after_mib - self.before_mib) * 1024 / self.plan.idle

    @property
    def ratio(self) -> float:
        """p99 of the busy connections beside idle ones, divided by their p99 alone."""
        alone, beside = (percentile(o.latency_ms, 0.99) for o in (self.alone, self.beside))
        return beside / alone

    def as_json(self) -> dict[str, Any]:
        def latencies(outcome: Outcome) -> dict[str, float]:
            shares = (0.5, 0.9, 0.99, 0.999)
            return {f"p{s * 100:g}": round(percentile(outcome.latency_ms, s), 3) for s in shares}

        return {
            "connections": self.open,
            "KiB a connection": round(self.kib_a_connection, 2),
            "ms alone": latencies(self.alone),
            "ms beside idle ones": latencies(self.beside),
            "p99 ratio": round(self.ratio, 3),
        }


async def run(plan: Plan, folder: Path, progress: Progress) -> Found:
    settings = Settings(folder / "cluster", brokers=1, quick_end=True, zookeeper="java")
    async with process_cluster(settings) as cluster:
        await create_topic(cluster, _TOPIC, [1])
        await _busy(plan, cluster, 3)  # the first use is slower
        alone = await _busy(plan, cluster, plan.seconds)
        progress(f"alone: {_summary(alone)}")
        pid = cluster.pid(broker(1))
        before = pss_mib(pid)
        with ExitStack() as stack:
            await trio.to_thread.run_sync(_open_idle, cluster.address(1), plan.idle, stack)
            after = pss_mib(pid)
            beside = await _busy(plan, cluster, plan.seconds)
            series = await numbers(cluster.metrics_port(1))
            count = sum(v for n, v in series.items() if "metrics_connection_count{" in n)
        progress(f"beside {plan.idle} idle ones: {_summary(beside)}")
        return Found(plan, alone, beside, before, after, int(count))


def _summary(outcome: Outcome) -> str:
    p50, p99 = (percentile(outcome.latency_ms, share) for share in (0.5, 0.99))
    return f"{outcome.acked} requests, p50 {p50:.2f} ms, p99 {p99:.2f} ms"


async def _busy(plan: Plan, cluster: ProcessCluster, seconds: float) -> Outcome:
    host, port = cluster.address(1)
    pressure = Pressure(
        host, port, _TOPIC, plan.busy, plan.batch_bytes, rate=plan.rate, seconds=seconds
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


def table(found: Found) -> str:
    rows: list[tuple[Any, ...]] = []
    for name, outcome in (("alone", found.alone), ("beside the idle ones", found.beside)):
        latencies = [percentile(outcome.latency_ms, share) for share in (0.5, 0.9, 0.99)]
        rows.append((name, outcome.acked, *(round(ms, 2) for ms in latencies)))
    text = rows_text((f"{found.plan.busy} busy", "requests", "p50 ms", "p90 ms", "p99 ms"), rows)
    return (
        f"{text}\nratio at p99 {found.ratio:.2f}; {found.open} connections, "
        f"{found.kib_a_connection:.1f} KiB each"
    )
