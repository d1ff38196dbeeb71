"""`highwater bench control-plane`: LeaderAndIsr and topic deletion on a broker with a full queue.

Theory of operation.  Two brokers; the one that is not the controller carries a load of real work:
600 connections and more, each with one acks=all Produce of 1 MiB outstanding, so that its request
channel is full (500) and the other connections are stalled.  Each round has a topic of its own for
the load and one to delete.

*Deletion*: the real controller's StopReplica has to get through; the time is that of DeleteTopics.
*Demotion*: the benchmark acts as the controller, so that the moment of sending is known.  One
LeaderAndIsr, on an open connection, gives the loaded partition to the other broker.  Each of the
load's connections notes when it gets NOT_LEADER_OR_FOLLOWER; requests that were queued before and
appended are acknowledged first, which the isolation is to spare.  The queue's length is read from
the metrics right before.

Two arms: the control plane's own listener, channel and handler; and the setting left empty, so that
all requests share the data plane.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio
from kazoo.client import KazooClient

from highwater.bench.figures.rows import rows_text
from highwater.bench.figures.sides import BenchFailed, Progress
from highwater.bench.loads.many_producers import Pressure
from highwater.bench.loads.pipeline_load import (
    create_topic,
    delete_topic,
    percentile,
    pressing,
    queue_length,
)
from highwater.cluster.ask import metadata
from highwater.cluster.process_cluster import ProcessCluster, Settings, process_cluster
from highwater.kafka.client.connection import ClientConnection
from highwater.kafka.wire import controller_messages as control
from highwater.world.real.network import RealNetwork

QUEUE = 500
SEPARATE, SHARED = "separate plane", "shared plane"
ARMS = (SEPARATE, SHARED)
_SHARE = {"control.plane.listener.name": ""}


@dataclass(frozen=True, slots=True)
class Plan:
    connections: int = 600
    batch_bytes: int = 1 << 20
    rounds: int = 5
    arms: tuple[str, ...] = ARMS
    wait_s: float = 60


@dataclass(slots=True)
class Found:
    """One arm's samples."""

    refused_ms: list[float] = field(default_factory=list)
    deleted_ms: list[float] = field(default_factory=list)
    queued: list[int] = field(default_factory=list)
    """The queue's length when LeaderAndIsr was sent."""
    never: int = 0
    """The number of connections that did not hear of it in time."""

    def as_json(self) -> dict[str, Any]:
        return {
            "not_leader_ms": [round(ms, 2) for ms in sorted(self.refused_ms)],
            "delete_ms": [round(ms, 2) for ms in self.deleted_ms],
            "queue_length": self.queued,
            "never": self.never,
        }


async def run(plan: Plan, folder: Path, progress: Progress) -> dict[str, Found]:
    """Runs each arm alone, one after the other."""
    found = {}
    for arm in plan.arms:
        results = found[arm] = Found()
        settings = Settings(
            folder / arm.replace(" ", "-"),
            brokers=2,
            properties={} if arm == SEPARATE else _SHARE,
            quick_end=True,
        )
        async with process_cluster(settings) as cluster:
            loaded = await _not_the_controller(cluster)
            for number in range(plan.rounds):
                await _round(plan, cluster, loaded, number, results)
                progress(
                    f"{arm}, round {number + 1}: {results.queued[-1]} queued; deleted in "
                    f"{results.deleted_ms[-1]:.0f} ms; all told so far at p99 in "
                    f"{percentile(results.refused_ms, 0.99):.0f} ms"
                )
    return found


async def _not_the_controller(cluster: ProcessCluster) -> int:
    answer = await metadata(cluster.address(cluster.brokers[0]), [])
    return next(n for n in cluster.brokers if n != answer.controller_id)


async def _round(
    plan: Plan, cluster: ProcessCluster, loaded: int, number: int, results: Found
) -> None:
    load, victim = f"load-{number}", f"victim-{number}"
    await create_topic(cluster, load, [loaded])
    await create_topic(cluster, victim, [loaded])
    host, port = cluster.address(loaded)
    sender = await _Sender.open(cluster, loaded)
    pressure = Pressure(host, port, load, plan.connections, plan.batch_bytes)
    async with pressing(pressure) as running:
        await _full(cluster, loaded)
        results.deleted_ms.append(1000 * await delete_topic(cluster, victim))
        results.queued.append(await _full(cluster, loaded))
        told = time.monotonic()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sender.give_away, load)
            outcome = await running.end(within_s=plan.wait_s)
            nursery.cancel_scope.cancel()
    sender.close()
    heard = [1000 * (at - told) for at in outcome.refused_at]
    if not heard:
        raise BenchFailed(f"nobody heard NOT_LEADER_OR_FOLLOWER within {plan.wait_s:g} s")
    results.refused_ms += heard
    results.never += plan.connections - len(heard)
    await delete_topic(cluster, load)


async def _full(cluster: ProcessCluster, loaded: int) -> int:
    """Waits until the queue is full; gives its length."""
    port = cluster.metrics_port(loaded)
    length = 0
    with trio.move_on_after(60):
        while (length := await queue_length(port)) < QUEUE:
            await trio.sleep(0.02)
        return length
    raise BenchFailed(f"the queue holds {length} requests and does not fill up: too little load")


class _Sender:
    """Acts as the controller to the loaded broker, at the controller's listener."""

    def __init__(self, connection: ClientConnection, loaded: int, epochs: tuple[int, int]) -> None:
        self._connection = connection
        self._loaded = loaded
        self._controller_epoch, self._broker_epoch = epochs

    @classmethod
    async def open(cls, cluster: ProcessCluster, loaded: int) -> _Sender:
        host, port = cluster.address(loaded, "CONTROL")
        connection = await ClientConnection.open(RealNetwork(), host, port, "bench-controller")
        epochs = await trio.to_thread.run_sync(_epochs, cluster.zookeeper_connect, loaded)
        return cls(connection, loaded, epochs)

    def close(self) -> None:
        self._connection.close()

    async def give_away(self, topic: str) -> None:
        """Gives the partition to the other broker."""
        other = 3 - self._loaded
        state = control.LeaderAndIsrPartitionState(
            partition_index=0,
            controller_epoch=self._controller_epoch,
            leader=other,
            leader_epoch=1,
            isr=[other],
            partition_epoch=1,
            replicas=[self._loaded, other],
            adding_replicas=[],
            removing_replicas=[],
            is_new=False,
        )
        request = control.LeaderAndIsrRequest(
            controller_id=other,
            controller_epoch=self._controller_epoch,
            broker_epoch=self._broker_epoch,
            topic_states=[
                control.LeaderAndIsrTopicState(topic_name=topic, partition_states=[state])
            ],
            live_leaders=[],
        )
        answer = await self._connection.call(request, control.LEADER_AND_ISR_VERSION, 120)
        if answer.error_code:
            raise BenchFailed(f"LeaderAndIsr was answered with error {answer.error_code}")


def _epochs(connect: str, broker_id: int) -> tuple[int, int]:
    """The controller's epoch and the broker's."""
    client = KazooClient(connect)
    client.start()
    try:
        data, _ = client.get("/controller_epoch")
        stat = client.exists(f"/brokers/ids/{broker_id}")
        assert stat is not None
        return int(data), int(stat.czxid)
    finally:
        client.stop()
        client.close()


def table(found: Mapping[str, Found]) -> str:
    rows = []
    for arm, f in found.items():
        times = [percentile(f.refused_ms, share) for share in (0.5, 0.99)]
        deleted = percentile(f.deleted_ms, 0.5), max(f.deleted_ms)
        rows.append((arm, *times, max(f.refused_ms), *deleted, min(f.queued), f.never))
    head = (
        "ms", "NOT_LEADER p50", "p99", "max", "delete p50", "max", "queue at least", "never told",
    )  # fmt: skip
    return rows_text(head, rows)


def times_apart(found: Mapping[str, Found]) -> float | None:
    """The p99 ratio of shared to separate; None where one of them was not run."""
    if SEPARATE not in found or SHARED not in found:
        return None
    shared, separate = (percentile(found[a].refused_ms, 0.99) for a in (SHARED, SEPARATE))
    return shared / separate


def plot(found: Mapping[str, Found]) -> str:
    """An SVG: the share of informed connections over the time since LeaderAndIsr (log)."""
    width, height, left, bottom = 720, 360, 60, 40
    low, high = 1.0, max(max(f.refused_ms) for f in found.values()) * 1.2

    def x(ms: float) -> float:
        from math import log10

        share = log10(max(ms, low) / low) / log10(high / low)
        return left + share * (width - left - 20)

    def y(share: float) -> float:
        return (height - bottom) - share * (height - bottom - 20)

    colours = ("#1f77b4", "#d62728")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    decade = 1.0
    while decade <= high:
        parts.append(
            f'<line x1="{x(decade):.1f}" x2="{x(decade):.1f}" y1="{y(1)}" y2="{y(0)}" '
            f'stroke="#ddd"/><text x="{x(decade):.1f}" y="{height - 20}" '
            f'text-anchor="middle">{decade:g} ms</text>'
        )
        decade *= 10
    parts += [
        f'<text x="8" y="{y(share) + 4:.1f}">{share:.0%}</text>' for share in (0.0, 0.5, 0.99, 1.0)
    ]
    for index, (arm, f) in enumerate(found.items()):
        ordered = sorted(f.refused_ms)
        points = " ".join(
            f"{x(ms):.1f},{y((i + 1) / len(ordered)):.1f}" for i, ms in enumerate(ordered)
        )
        colour = colours[index]
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
            f'<text x="{left + 10}" y="{35 + 16 * index}" fill="{colour}">{arm}</text>'
        )
    parts.append(
        f'<text x="{width / 2}" y="{height - 4}" text-anchor="middle">'
        "time from LeaderAndIsr to NOT_LEADER_OR_FOLLOWER, by connection</text></svg>"
    )
    return "\n".join(parts) + "\n"
