"""`highwater bench control`: the cost of many partitions to the controller, and the time.

Theory of operation.  Each side in turn, alone: three brokers of the profile `test`, as processes.
One CreateTopics asks for all partitions of a topic, of each size in turn.  Measured are the time to
its answer, the time until every broker names a leader for every partition, and the CPU that brokers
and ZooKeeper use meanwhile.  Once there are as many partitions as the options say, the controller
is killed with -9; measured is the time until both survivors name a live leader for every partition.

Another cluster of each side then changes many ISRs at once (`isr_changes`).  At last a client of
ZooKeeper writes many znodes at once, and one after another beside a full load of Produce.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import trio

from highwater.bench import isr_changes, znode_writes
from highwater.bench.benchmark import option
from highwater.bench.figures.cpu import cpu_seconds
from highwater.bench.figures.rows import Line, Table
from highwater.bench.figures.sides import ON_JAVAS, Progress, Side, Sides
from highwater.bench.load import Load
from highwater.bench.loads.bench_topics import create_topic
from highwater.bench.loads.load_process import output
from highwater.bench.loads.many_partitions import WAIT_S, create, until_led, until_whole
from highwater.cluster.ask import metadata
from highwater.cluster.interface import broker
from highwater.cluster.processes.process_cluster import ProcessCluster

BESIDE_S = 6.0
MOST_TIMES = 1.2
"""How many times as long a figure may take on the embedded ZooKeeper as on ZooKeeper's own."""


@dataclass(frozen=True, slots=True)
class Options:
    create: tuple[int, ...] = option(
        (1000,),
        "Partitions of a topic; the topics are created one after another.",
        least=1,
        most=20_000,
    )
    in_all: int = option(
        3000,
        "The controller is killed once there are so many partitions.",
        flag="--failover",
        least=0,
        most=20_000,
    )
    replicas: int = option(3, least=2, most=3)
    rounds: int = option(1, least=1)

    def __post_init__(self) -> None:
        if len(set(self.create)) < len(self.create):
            raise ValueError("--create: each number once, as it is the name of a row")

    def steps(self) -> list[int]:
        """Partitions to create one after another, with 0 where the controller is killed.

        >>> Options((1000, 10000), 1000).steps(), Options((1000,), 3000).steps()
        ([1000, 0, 10000], [1000, 2000, 0])
        """
        found: list[int] = []
        for count in self.create:
            found.append(count)
            if 0 not in found and sum(found) >= self.in_all:
                found.append(0)
        return found if 0 in found else [*found, self.in_all - sum(found), 0]

    def section(self, against: str | None) -> tuple[str, str]:
        """The name and the heading of the section of a page."""
        by = against == "zookeeper"
        return "bench control" + " zookeeper" * by, "## Many partitions" + ", by ZooKeeper" * by

    def lines(self) -> list[Line]:
        found = []
        for count in self.create:
            what = f"{count} partitions in one request, RF {self.replicas}"
            found += [
                Line(f"answered {count}", f"{what}: to the answer", "s"),
                Line(f"whole {count}", f"{what}: until all brokers name all leaders", "s"),
                Line(f"CPU {count}", f"{what}: CPU of brokers and ZooKeeper", "s"),
            ]
        steps = self.steps()
        killed = f"controller and leaders killed, {sum(steps[: steps.index(0)])} partitions"
        isrs = f"{isr_changes.AT_ONCE} ISRs changed by one leader at once, the first to the last"
        burst = f"{znode_writes.AT_ONCE} setData of one client at once, median"
        return [
            *found,
            Line("failover", killed, "s"),
            Line("ISRs", isrs, "ms"),
            Line("burst", burst, "ms"),
            Line("beside", "setData beside a full load of Produce, p99", "ms"),
        ]


async def run(options: Options, sides: Sides) -> Table:
    async def many(cluster: ProcessCluster, side: Side) -> Mapping[str, float]:
        return await _many(options, cluster, lambda said: sides.progress(f"{side.name}: {said}"))

    async def writes(cluster: ProcessCluster, side: Side) -> Mapping[str, float | Sequence[float]]:
        sides.progress(f"{side.name}: {isr_changes.AT_ONCE} ISRs change, some 20 s")
        spans = await isr_changes.spans_ms(cluster)
        sides.progress(f"{side.name}: in {statistics.median(spans):.0f} ms; setData, some 10 s")
        return {"ISRs": spans, **await _znodes(cluster)}

    start: dict[str, Any] = {"profile": "test", "keep_files": True}
    kept = {"auto.leader.rebalance.enable": "false"}
    samples = await sides.alone(many, options.rounds, properties=kept, **start)
    kept |= isr_changes.PROPERTIES
    samples.update(await sides.alone(writes, options.rounds, properties=kept, **start))
    return sides.table(options.lines(), samples)


def too_slow(found: Table) -> str:
    """The figures that the embedded ZooKeeper misses by more than MOST_TIMES; empty: none."""
    if found.theirs != ON_JAVAS:
        return ""
    slow = [row.what for row in found.rows if row.ratio is not None and row.ratio * MOST_TIMES < 1]
    return f"more than {MOST_TIMES} times as long as {ON_JAVAS}: {'; '.join(slow)}" if slow else ""


async def _many(options: Options, cluster: ProcessCluster, progress: Progress) -> dict[str, float]:
    """Creates the partitions, and kills the controller when it is its turn."""
    found: dict[str, float] = {}
    topics: list[str] = []
    total = 0
    for step, count in enumerate(options.steps()):
        if count == 0:
            found["failover"] = await _killed(cluster, total, topics)
            progress(f"the controller killed, {total} partitions: {found['failover']:.2f} s")
            continue
        topics.append(f"created-{step}")
        total += count
        took = await _created(cluster, topics[-1], count, total, options.replicas)
        progress(f"{count} partitions created: {took['whole']:.2f} s")
        if count in options.create:
            found |= {f"{name} {count}": seconds for name, seconds in took.items()}
    return found


async def _created(
    cluster: ProcessCluster, topic: str, count: int, total: int, replicas: int
) -> dict[str, float]:
    """Seconds of a topic's creation, after which there are `total` partitions."""
    pids = [cluster.pid(member) for member in cluster.members()]
    before, began = cpu_seconds(pids), time.monotonic()
    await create(cluster, topic, count, replicas)
    found = {"answered": time.monotonic() - began}
    await until_led(cluster, total, set(cluster.brokers))
    found["whole"] = time.monotonic() - began
    found["CPU"] = cpu_seconds(pids) - before
    return found


async def _killed(cluster: ProcessCluster, total: int, topics: list[str]) -> float:
    """Seconds until the survivors name live leaders; the dead broker then comes back, and catches
    up."""
    controller = (await metadata(cluster.address(cluster.brokers[0]), [])).controller_id
    await trio.sleep(2)  # by then followers have caught up, and nothing is in flight
    began = time.monotonic()
    await cluster.kill(broker(controller))
    await until_led(cluster, total, set(cluster.brokers) - {controller})
    took = time.monotonic() - began
    await cluster.start(broker(controller))
    await until_led(cluster, total, set(cluster.brokers))
    await until_whole(cluster.address(controller), topics, WAIT_S)
    return took


async def _znodes(cluster: ProcessCluster) -> dict[str, float]:
    """Milliseconds of writes to ZooKeeper: of many at once, and of each beside a load."""
    connect = cluster.zookeeper_connect
    bursts = await trio.to_thread.run_sync(znode_writes.burst_ms, connect)
    over = threading.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_load, cluster, over)
        waits = await trio.to_thread.run_sync(znode_writes.single_ms, connect, over.is_set)
    p99 = statistics.quantiles(waits, n=100)[-1]
    return {"burst": statistics.median(bursts), "beside": p99}


async def _load(cluster: ProcessCluster, over: threading.Event) -> None:
    """Writes as fast as it can for a moment."""
    topic = "beside"
    try:
        bootstrap, config = cluster.bootstrap, {"min.insync.replicas": "2"}
        await create_topic(bootstrap, topic, 3, 3, config)
        load = Load(bootstrap, topic, 1000, 128 * 1024, "all", 0.3, BESIDE_S)
        await output(load.command())
    finally:
        over.set()
