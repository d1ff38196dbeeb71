"""`highwater bench overload`: three times the load that a broker can serve.

Theory of operation.  One broker with queued.max.request.bytes set.  First its capacity is measured:
many connections, each with one Produce outstanding.  Then three times as many requests a second
fall due, whether it answers or not.  Beside them clients announce huge requests and send them
slowly, and slow readers fetch the records a kilobyte at a time.  Every half second the broker's PSS
is read.  At the end three things must hold.  The memory stayed under its bound (the idle broker's
memory, the bytes set, one largest request, and a fixed allowance for everything that is no
request). Every acknowledged offset is in the log.  And five seconds after the load has ended, a
light load is served as before.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Any

import trio

from highwater.bench.figures.memory import pss_mib
from highwater.bench.figures.rows import rows_text
from highwater.bench.figures.sides import BenchFailed, Progress
from highwater.bench.loads.many_producers import Outcome, Pressure, produce_frame
from highwater.bench.loads.pipeline_load import create_topic, end_offset, percentile, pressing
from highwater.cluster.interface import broker
from highwater.cluster.process_cluster import ProcessCluster, Settings, process_cluster
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.fetch import FetchPartition, FetchRequest, build_fetch
from highwater.kafka.wire.header import request_header

_TOPIC, _PROBE = "overload", "probe"
_MIB = 1 << 20
_SIZE = Struct(">i")
_KEPT = {"retention.bytes": str(4 << 30), "segment.bytes": str(256 << 20)}
"""A disk need not hold all of ten minutes; a lost record shows in the end offset."""
ALLOWANCE_MIB = 64
"""Allowance for everything but requests: connections, half-read bytes, answers, metrics."""
RECOVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class Plan:
    seconds: float = 30
    connections: int = 200
    batch_bytes: int = 64 * 1024
    times: float = 3
    slow_readers: int = 20
    huge: int = 4
    huge_mib: int = 16
    bound_mib: int = 128


@dataclass(slots=True)
class Found:
    plan: Plan
    capacity: float = 0.0
    offered: float = 0.0
    served: float = 0.0
    idle_mib: float = 0.0
    peaks_mib: list[float] = field(default_factory=list)
    acked: int = 0
    missing: int = 0
    before_ms: float = 0.0
    after_ms: float = 0.0

    @property
    def limit_mib(self) -> float:
        return self.idle_mib + self.plan.bound_mib + self.plan.huge_mib + ALLOWANCE_MIB

    @property
    def holds(self) -> bool:
        normal = self.after_ms < 2 * self.before_ms + 5
        return max(self.peaks_mib) < self.limit_mib and not self.missing and normal

    def as_json(self) -> dict[str, Any]:
        return {
            "capacity, requests/s": round(self.capacity),
            "offered, requests/s": round(self.offered),
            "served, requests/s": round(self.served),
            "idle MiB": round(self.idle_mib, 1),
            "peak MiB": round(max(self.peaks_mib), 1),
            "limit MiB": round(self.limit_mib, 1),
            "acknowledged": self.acked,
            "acknowledged and missing": self.missing,
            "p99 before, ms": round(self.before_ms, 2),
            "p99 from 5 s after, ms": round(self.after_ms, 2),
            "holds": self.holds,
        }


async def run(plan: Plan, folder: Path, progress: Progress) -> Found:
    found = Found(plan)
    settings = Settings(
        folder / "cluster",
        brokers=1,
        properties={
            "queued.max.request.bytes": str(plan.bound_mib * _MIB),
            "socket.request.max.bytes": str(plan.huge_mib * _MIB),
            "message.max.bytes": str(plan.huge_mib * _MIB),
            "log.retention.check.interval.ms": "5000",
        },
        quick_end=True,
    )
    async with process_cluster(settings) as cluster:
        for topic in (_TOPIC, _PROBE):
            await create_topic(cluster, topic, [1], _KEPT)
        found.before_ms = await _probe(cluster)
        found.idle_mib = pss_mib(cluster.pid(broker(1)))
        measured = await _load(plan, cluster, 0, 3)
        found.capacity = measured.acked / 3
        progress(f"it serves {found.capacity:.0f} requests/s; offering {plan.times:g} times that")
        outcome = await _overload(plan, cluster, found)
        found.acked = measured.acked + outcome.acked
        found.offered = outcome.offered / plan.seconds
        found.served = outcome.acked / plan.seconds
        progress(f"peak {max(found.peaks_mib):.0f} MiB of {found.limit_mib:.0f}; load has ended")
        await trio.sleep(RECOVERY_S)
        found.after_ms = await _probe(cluster)
        highest = max(measured.highest_offset, outcome.highest_offset)
        end = await end_offset(cluster.address(1), _TOPIC)
        found.missing = max(0, highest + 1 - end) + max(0, found.acked - end)
    return found


async def _load(plan: Plan, cluster: ProcessCluster, rate: float, seconds: float) -> Outcome:
    host, port = cluster.address(1)
    pressure = Pressure(
        host, port, _TOPIC, plan.connections, plan.batch_bytes, rate=rate, seconds=seconds
    )
    async with pressing(pressure) as running:
        outcome = await running.end(within_s=seconds + 60)
    if not outcome.acked or outcome.errors:
        raise BenchFailed(f"the load failed: {outcome.acked} acknowledged, {outcome.errors}")
    return outcome


async def _overload(plan: Plan, cluster: ProcessCluster, found: Found) -> Outcome:
    pid = cluster.pid(broker(1))
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            while True:
                found.peaks_mib.append(await trio.to_thread.run_sync(pss_mib, pid))
                await trio.sleep(0.5)

        nursery.start_soon(watch)
        for _ in range(plan.slow_readers):
            nursery.start_soon(_read_slowly, cluster.address(1))
        for _ in range(plan.huge):
            nursery.start_soon(_send_huge, plan, cluster.address(1))
        outcome = await _load(plan, cluster, plan.times * found.capacity, plan.seconds)
        nursery.cancel_scope.cancel()
    return outcome


async def _probe(cluster: ProcessCluster) -> float:
    """The p99 of a light load."""
    host, port = cluster.address(1)
    pressure = Pressure(host, port, _PROBE, 10, 1000, rate=100, seconds=3)
    async with pressing(pressure) as running:
        outcome = await running.end(within_s=60)
    if not outcome.latency_ms:
        raise BenchFailed("a light load was not answered")
    return percentile(outcome.latency_ms, 0.99)


async def _read_slowly(address: tuple[str, int]) -> None:
    """Asks for much, and reads a kilobyte of it every tenth of a second."""
    partition = FetchPartition(TopicPartition(_TOPIC, 0), -1, 0, -1, 0, 8 * _MIB)
    fetch = FetchRequest(-1, 100, 1, 8 * _MIB, 0, 0, -1, [partition], [], "")
    body = request_header(1, 11, 1, "slow") + build_fetch(fetch, 11)
    while True:
        stream = await trio.open_tcp_stream(*address)
        async with stream:
            stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
            await stream.send_all(_SIZE.pack(len(body)) + body)
            try:
                while await stream.receive_some(1024):
                    await trio.sleep(0.1)
            except trio.BrokenResourceError:
                pass


async def _send_huge(plan: Plan, address: tuple[str, int]) -> None:
    """Sends the largest allowed requests, a piece at a time."""
    frame = memoryview(produce_frame(_TOPIC, plan.huge_mib * _MIB - 4096))
    while True:
        try:
            stream = await trio.open_tcp_stream(*address)
            async with stream:
                for at in range(0, len(frame), _MIB // 4):
                    await stream.send_all(frame[at : at + _MIB // 4])
                    await trio.sleep(0.05)
                await stream.receive_some(100)
        except trio.BrokenResourceError:
            await trio.sleep(0.1)


def table(found: Found) -> str:
    rows = [(name, str(value)) for name, value in found.as_json().items()]
    return rows_text((f"{found.plan.seconds:g} s of overload", ""), rows)
