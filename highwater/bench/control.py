"""`highwater bench control`: the cost of many partitions to the controller, and the time.

Theory of operation.  Each side in turn, alone: three brokers of the profile `test`, as processes.
One CreateTopics asks for all partitions of a topic.  Measured are the time to its answer, the time
until every broker names a leader for every partition, and the CPU that brokers and ZooKeeper use
meanwhile.  Then the cluster gets more partitions, and the controller is killed with -9; measured is
the time until both survivors name a live leader for every partition.  At last a client of
ZooKeeper writes many znodes at once, and one after another beside a full load of Produce.
"""

from __future__ import annotations

import shutil
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import psutil
import trio

from highwater.bench import znode_writes
from highwater.bench.figures.rows import Row
from highwater.bench.figures.sides import BenchFailed, Progress, Side
from highwater.bench.load import Load
from highwater.bench.loads.bench_topics import create_topic
from highwater.bench.loads.load_process import ended
from highwater.bench.loads.many_partitions import create, until_led
from highwater.cluster.ask import metadata
from highwater.cluster.interface import broker
from highwater.cluster.processes.process_cluster import ProcessCluster, process_cluster
from highwater.cluster.processes.process_settings import Settings

BESIDE_S = 6.0


@dataclass(frozen=True, slots=True)
class Plan:
    create: int = 1000
    failover: int = 3000
    replicas: int = 3
    brokers: int = 3
    rounds: int = 1


@dataclass(slots=True)
class Found:
    answered_s: list[float] = field(default_factory=list)
    whole_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    failover_s: list[float] = field(default_factory=list)
    burst_ms: list[float] = field(default_factory=list)
    beside_ms: list[float] = field(default_factory=list)
    """The 99th percentile of each round."""


async def run(plan: Plan, sides: Sequence[Side], progress: Progress) -> list[Row]:
    """The measured rows; the first side is Highwater's."""
    found = [Found() for _ in sides]
    for number in range(plan.rounds):
        for side, results in zip(sides, found, strict=True):
            settings = Settings(
                side.folder / f"round-{number + 1}",
                zookeeper=side.zookeeper,
                brokers=plan.brokers,
                program=side.program,
                properties={"auto.leader.rebalance.enable": "false"},
            )
            async with process_cluster(settings, timeout_s=120) as cluster:
                await _one(plan, cluster, results)
            progress(
                f"round {number + 1} of {plan.rounds}, {side.name}: {plan.create} partitions"
                f" answered after {results.answered_s[-1]:.1f} s, whole after"
                f" {results.whole_s[-1]:.1f} s, {results.cpu_s[-1]:.1f} s of CPU; controller"
                f" failover with {plan.failover}: {results.failover_s[-1]:.1f} s"
            )
    for side in sides:
        shutil.rmtree(side.folder, ignore_errors=True)  # not earlier: see `Side.cluster`
    return _rows(plan, found)


async def _one(plan: Plan, cluster: ProcessCluster, found: Found) -> None:
    before, began = _cpu_s(cluster), time.monotonic()
    await create(cluster, "created", plan.create, plan.replicas)
    found.answered_s.append(time.monotonic() - began)
    await until_led(cluster, plan.create, set(cluster.brokers))
    found.whole_s.append(time.monotonic() - began)
    found.cpu_s.append(_cpu_s(cluster) - before)
    if plan.failover > plan.create:
        await create(cluster, "more", plan.failover - plan.create, plan.replicas)
        await until_led(cluster, plan.failover, set(cluster.brokers))
    controller = (await metadata(cluster.address(cluster.brokers[0]), [])).controller_id
    await trio.sleep(2)  # by then followers have caught up, and nothing is in flight
    began = time.monotonic()
    await cluster.kill(broker(controller))
    total = max(plan.create, plan.failover)
    await until_led(cluster, total, set(cluster.brokers) - {controller})
    found.failover_s.append(time.monotonic() - began)
    await cluster.start(broker(controller))
    connect = cluster.zookeeper_connect
    bursts = await trio.to_thread.run_sync(znode_writes.burst_ms, connect)
    found.burst_ms.append(statistics.median(bursts))
    over = threading.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_load, cluster, over)
        waits = await trio.to_thread.run_sync(znode_writes.single_ms, connect, over.is_set)
    found.beside_ms.append(statistics.quantiles(waits, n=100)[-1])


async def _load(cluster: ProcessCluster, over: threading.Event) -> None:
    """Writes as fast as it can for a moment."""
    topic = "beside"
    try:
        bootstrap, config = cluster.bootstrap, {"min.insync.replicas": "2"}
        await trio.to_thread.run_sync(create_topic, bootstrap, topic, 3, 3, config)
        load = Load(bootstrap, topic, 1000, 128 * 1024, "all", 0.3, BESIDE_S)
        done = await ended(load.command())
        if done.returncode:
            raise BenchFailed(f"the load failed: {done.stderr.decode()[-300:]}")
    finally:
        over.set()


def _cpu_s(cluster: ProcessCluster) -> float:
    total = 0.0
    for member in cluster.members():
        times = psutil.Process(cluster.pid(member)).cpu_times()
        total += times.user + times.system
    return total


def _rows(plan: Plan, found: Sequence[Found]) -> list[Row]:
    def row(what: str, unit: str, name: str) -> Row:
        ours, *rest = [tuple(getattr(side, name)) for side in found]
        return Row(what, unit, ours, rest[0] if rest else (), smaller_is_better=True)

    what = f"{plan.create} partitions in one request, RF {plan.replicas}"
    return [
        row(f"{what}: to the answer", "s", "answered_s"),
        row(f"{what}: until all brokers name all leaders", "s", "whole_s"),
        row(f"{what}: CPU of brokers and ZooKeeper", "s", "cpu_s"),
        row(f"controller and leaders killed, {plan.failover} partitions", "s", "failover_s"),
        row(f"{znode_writes.AT_ONCE} setData of one client at once, median", "ms", "burst_ms"),
        row("setData beside a full load of Produce, p99", "ms", "beside_ms"),
    ]
