"""Rows for which a side has the machine for itself: starts, failovers, compaction; and reading."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from subprocess import DEVNULL

import trio

from highwater.bench import compaction, failover
from highwater.bench.everything.rate_rows import java
from highwater.bench.everything.turns import Once, Plan, Turns, broker_pids
from highwater.bench.figures.cpu import cpu_seconds
from highwater.bench.figures.memory import pss_mib
from highwater.bench.figures.rows import Samples
from highwater.bench.figures.sides import BenchFailed, Side, until
from highwater.bench.load import Load
from highwater.bench.loads import reads as reading
from highwater.bench.loads.bench_topics import create_topic
from highwater.bench.loads.load_process import output
from highwater.bench.loads.many_partitions import create, until_in_sync, until_led
from highwater.cluster.interface import broker
from highwater.cluster.ports import free_ports
from highwater.cluster.processes import zookeeper_process as zookeeper
from highwater.cluster.processes.process_cluster import ProcessCluster

FEW = 100
RECORD_BYTES = 1000
PARTITIONS = 12
LONG_S = 3600
WAIT_S = 60
ZOOKEEPER_TICK_MS = 2000
LOOK_S = 0.1
RESTARTED = 1
"""The number of the broker that is killed."""


Reader = Callable[[str, str, int], Awaitable[tuple[float, float]]]
"""Reads a number of records of a topic; returns megabytes, and seconds from the first record on."""


async def librdkafka(bootstrap: str, topic: str, records: int) -> tuple[float, float]:
    found = json.loads(await output(reading.command(bootstrap, topic, records)))
    return found["records"] * RECORD_BYTES / 1e6, found["seconds"]


async def java_client(bootstrap: str, topic: str, records: int) -> tuple[float, float]:
    """ConsumerPerformance's fetch.time.ms, which excludes the start of the JVM and of the group."""
    words = ["--bootstrap-server", bootstrap, "--topic", topic, "--messages", str(records)]
    words += ["--hide-header", "--timeout", "60000"]
    said = await output(java("org.apache.kafka.tools.ConsumerPerformance", words))
    columns = said.strip().splitlines()[-1].split(", ")
    if len(columns) < 10 or int(columns[4]) < records:
        raise BenchFailed(f"ConsumerPerformance: {said.strip()}")
    return int(columns[4]) * RECORD_BYTES / 1e6, int(columns[7]) / 1000


def consume(read: Reader) -> Once:
    """Measures reading what was just written, from the page cache: MB/s, and the brokers' CPU time
    in milliseconds a megabyte."""

    async def once(plan: Plan, cluster: ProcessCluster, topic: str) -> tuple[float, float]:
        where = cluster.direct_bootstrap
        size = (6 * plan.seconds, plan.megabytes)
        load = Load(where, topic, RECORD_BYTES, 128 << 10, "1", 0, *size)
        written = json.loads(await output(load.command()))["records"]
        pids = broker_pids(cluster)
        before = cpu_seconds(pids)
        megabytes, seconds = await read(where, topic, written)
        return megabytes / seconds, (cpu_seconds(pids) - before) * 1000 / megabytes

    return once


async def start(turns: Turns) -> Samples:
    """Measures each side alone, in turn: a start, idle time, and topics of 100 and 1,000
    partitions."""
    await turns.stop()
    samples = Samples()
    for number in range(turns.plan.pairs):
        zookeeper_s = await _zookeepers_own(turns.ours.folder / "zookeeper-alone")
        for index, side in enumerate(turns.sides):
            async with side.cluster(turns.plan.brokers, keep_files=True) as cluster:
                samples.add("start", index, max(side.ready_s[-1] - zookeeper_s, 0.01))
                samples.add("create-100", index, await _created(cluster, "few", FEW, FEW))
                await trio.sleep(2)  # by then followers have caught up
                samples.add("idle-cpu", index, await _idle_cpu(cluster, turns.plan.idle_s))
                many = turns.plan.partitions
                took = await _created(cluster, "many", many, FEW + many)
                samples.add("create-1000", index, took)
                samples.add("memory-partitions", index, *map(pss_mib, broker_pids(cluster)))
            turns.progress(f"start {number + 1}: {side.name} {side.ready_s[-1]:.1f} s")
    for side in turns.sides:
        side.clear()
    return samples


async def _zookeepers_own(folder: Path) -> float:
    """Seconds that ZooKeeper, alone, needs from its start until it answers."""
    folder.mkdir(parents=True, exist_ok=True)
    port = next(iter(free_ports(1)))
    command = zookeeper.prepare(folder, port, ZOOKEEPER_TICK_MS)
    began = time.monotonic()
    process = await trio.lowlevel.open_process(command, cwd=folder, stdout=DEVNULL, stderr=DEVNULL)
    try:
        answers = partial(trio.to_thread.run_sync, zookeeper.answers, port, LOOK_S)
        await until(answers, "ZooKeeper answers", WAIT_S, 0.02)
        return time.monotonic() - began
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
        shutil.rmtree(folder, ignore_errors=True)


async def _created(cluster: ProcessCluster, topic: str, partitions: int, in_all: int) -> float:
    began = time.monotonic()
    await create(cluster, topic, partitions, 3)
    await until_led(cluster, in_all, set(cluster.brokers))
    return time.monotonic() - began


async def _idle_cpu(cluster: ProcessCluster, seconds: float) -> float:
    """Milliseconds of CPU that the brokers use in a second."""
    pids = broker_pids(cluster)
    before, began = cpu_seconds(pids), time.monotonic()
    await trio.sleep(seconds)
    return (cpu_seconds(pids) - before) * 1000 / (time.monotonic() - began)


async def failovers(turns: Turns) -> Samples:
    """Seconds of a failover after the kill of a leader, for librdkafka with its defaults."""
    await turns.stop()
    options = failover.Options(
        turns.plan.kills, turns.plan.their_kills, ("librdkafka",), no_controller=True
    )
    found = await failover.measure(options, turns)
    client = f"{failover.LEADER} librdkafka"
    lines = {"failover-median": client, "failover-worst": f"{client} worst"}
    return Samples(
        {line: [[ms / 1000 for ms in side] for side in found[name]] for line, name in lines.items()}
    )


async def compacted(turns: Turns) -> Samples:
    """One round of `highwater bench compaction`, of a hundred records a key."""
    await turns.stop()
    records = turns.plan.compacted
    segment_mib = 64 if records > 1_000_000 else 1
    options = compaction.Options(records, records // 100, segment_mib)
    return Samples(compaction=(await compaction.measure(options, turns))["seconds"])


async def restart(turns: Turns) -> Samples:
    """A broker with full logs is killed and started again."""
    await turns.stop()

    async def load(cluster: ProcessCluster, _: Side) -> dict[str, float]:
        where, topic = cluster.direct_bootstrap, "restarted"
        config = {"min.insync.replicas": "2"}
        await create_topic(where, topic, PARTITIONS, 3, config)
        size = (LONG_S, turns.plan.restart_mb)
        load = Load(where, topic, RECORD_BYTES, 1 << 20, "all", 0, *size)
        await output(load.command())
        await cluster.kill(broker(RESTARTED))
        began = time.monotonic()
        await cluster.start(broker(RESTARTED), timeout_s=LONG_S)
        asked = cluster.address(cluster.brokers[-1])
        await until_in_sync(asked, topic, RESTARTED, LONG_S)
        return {"restart": time.monotonic() - began}

    return await turns.alone(load, brokers=turns.plan.brokers)
