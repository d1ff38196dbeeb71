"""`highwater bench control`: the cost of many partitions to the controller, and the time.

Theory of operation.  Each side in turn, alone: three brokers of the profile `test`, as processes.
One CreateTopics asks for all partitions of a topic.  Measured are the time to its answer, the time
until every broker names a leader for every partition, and the CPU that brokers and ZooKeeper use
meanwhile.  Then the cluster gets more partitions, and the controller is killed with -9; measured is
the time until both survivors name a live leader for every partition.  At last a client of
ZooKeeper writes many znodes at once, and one after another beside a full load of Produce.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import trio

from highwater.bench import znode_writes
from highwater.bench.benchmark import option
from highwater.bench.figures.cpu import cpu_seconds
from highwater.bench.figures.rows import Line, Table
from highwater.bench.figures.sides import Side, Sides
from highwater.bench.load import Load
from highwater.bench.loads.bench_topics import create_topic
from highwater.bench.loads.load_process import output
from highwater.bench.loads.many_partitions import create, until_led
from highwater.cluster.ask import metadata
from highwater.cluster.interface import broker
from highwater.cluster.processes.process_cluster import ProcessCluster

BESIDE_S = 6.0


@dataclass(frozen=True, slots=True)
class Options:
    create: int = option(1000, least=1, most=20_000)
    in_all: int = option(
        3000, "Partitions there are when the controller is killed.", flag="--failover", least=0,
        most=20_000,
    )  # fmt: skip
    replicas: int = option(3, least=1, most=3)
    rounds: int = option(1, least=1)

    def section(self, against: str | None) -> tuple[str, str]:
        """The name and the heading of the section of a page."""
        by = against == "zookeeper"
        return "bench control" + " zookeeper" * by, "## Many partitions" + ", by ZooKeeper" * by

    def lines(self) -> list[Line]:
        what = f"{self.create} partitions in one request, RF {self.replicas}"
        burst = f"{znode_writes.AT_ONCE} setData of one client at once, median"
        return [
            Line("answered", f"{what}: to the answer", "s"),
            Line("whole", f"{what}: until all brokers name all leaders", "s"),
            Line("CPU", f"{what}: CPU of brokers and ZooKeeper", "s"),
            Line("failover", f"controller and leaders killed, {self.in_all} partitions", "s"),
            Line("burst", burst, "ms"),
            Line("beside", "setData beside a full load of Produce, p99", "ms"),
        ]


async def run(options: Options, sides: Sides) -> Table:
    async def load(cluster: ProcessCluster, _: Side) -> Mapping[str, float]:
        return {**await _created(options, cluster), **await _znodes(cluster)}

    start: dict[str, Any] = {
        "profile": "test",
        "properties": {"auto.leader.rebalance.enable": "false"},
    }
    samples = await sides.alone(load, options.rounds, keep_files=True, **start)
    return sides.table(options.lines(), samples)


async def _created(options: Options, cluster: ProcessCluster) -> dict[str, float]:
    """Creates the partitions, and kills the controller."""
    pids = [cluster.pid(member) for member in cluster.members()]
    before, began = cpu_seconds(pids), time.monotonic()
    await create(cluster, "created", options.create, options.replicas)
    found = {"answered": time.monotonic() - began}
    await until_led(cluster, options.create, set(cluster.brokers))
    found["whole"] = time.monotonic() - began
    found["CPU"] = cpu_seconds(pids) - before
    if options.in_all > options.create:
        await create(cluster, "more", options.in_all - options.create, options.replicas)
        await until_led(cluster, options.in_all, set(cluster.brokers))
    controller = (await metadata(cluster.address(cluster.brokers[0]), [])).controller_id
    await trio.sleep(2)  # by then followers have caught up, and nothing is in flight
    began = time.monotonic()
    await cluster.kill(broker(controller))
    total = max(options.create, options.in_all)
    await until_led(cluster, total, set(cluster.brokers) - {controller})
    found["failover"] = time.monotonic() - began
    await cluster.start(broker(controller))
    return found


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
