"""Rows of throughput and latency: loads as processes against the shared clusters, in turn."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import trio

from highwater.bench.everything.turns import Once, Plan, Turns, broker_pids, flat
from highwater.bench.figures.memory import pss_mib
from highwater.bench.figures.rows import Line, Samples
from highwater.bench.figures.sides import BenchFailed
from highwater.bench.load import Load
from highwater.bench.loads import mixed as mixed_load
from highwater.bench.loads import request_rate, single_writes
from highwater.bench.loads.load_process import output
from highwater.cluster.processes import apache
from highwater.cluster.processes.process_cluster import ProcessCluster
from highwater.cluster.processes.zookeeper_process import find_java

KIB = 1024
DEFAULTS = {
    "linger.ms": 5,
    "batch.num.messages": 10_000,
    "queue.buffering.max.messages": 100_000,
}
"""librdkafka's own defaults."""


async def produced(load: Load) -> float:
    """Megabytes of record values a second."""
    found = json.loads(await output(load.command()))
    return float(found["records"] * load.record_bytes / found["seconds"] / 1e6)


def produce(
    *,
    record_bytes: int = 1000,
    batch_kib: int = 128,
    acks: str = "all",
    settings: Mapping[str, Any] | None = None,
    transaction: tuple[int, float] | None = None,
    share: float = 1.0,
) -> Once:
    """MB/s through librdkafka; `share` of the plan's megabytes where the load is a slow one."""

    async def once(plan: Plan, cluster: ProcessCluster, topic: str) -> tuple[float]:
        load = Load(
            bootstrap=cluster.direct_bootstrap,
            topic=topic,
            record_bytes=record_bytes,
            batch_bytes=batch_kib * KIB,
            acks=acks,
            warm_up_s=0.3,
            measure_s=plan.seconds,
            measure_mb=plan.megabytes * share,
            settings=dict(settings or {}),
            transaction=transaction,
        )
        return (await produced(load),)

    return once


def singles(what: str) -> Once:
    """Milliseconds of one record at a time: p50 and p99."""

    async def once(plan: Plan, cluster: ProcessCluster, topic: str) -> tuple[float, float]:
        command = single_writes.command(what, cluster.direct_bootstrap, topic, plan.writes)
        found = json.loads(await output(command))
        return found["p50_ms"], found["p99_ms"]

    return once


MIXED = (
    Line("mixed-p99", "half of Kafka's maximum, mixed: p99 of produce", "ms", 2),
    Line("mixed-p999", "the same, p99.9", "ms", 2),
)


async def mixed(turns: Turns) -> Samples:
    """Milliseconds of a produce at half of the highest rate of the last side, Apache Kafka."""
    most = await _most(turns)
    turns.progress(f"{turns.sides[-1].name} takes {most:.1f} MB/s at most: half of it is the load")
    rate = most / 2 * 1e6 / mixed_load.RECORD_BYTES

    async def once(plan: Plan, cluster: ProcessCluster, topic: str) -> tuple[float, float]:
        command = mixed_load.command(cluster.direct_bootstrap, topic, rate, plan.seconds)
        found = json.loads(await output(command))
        if not found["read"]:
            raise BenchFailed("the readers beside the load read nothing")
        return found["p99_ms"], found["p999_ms"]

    return await turns.in_turn(MIXED, once)


async def _most(turns: Turns) -> float:
    """The MB/s with librdkafka's defaults once it no longer grows."""
    rates: list[float] = []
    once = produce(batch_kib=977, settings=DEFAULTS)
    while len(rates) < turns.plan.warm and not flat(rates):
        rates += await turns.once_on_last(once)
    return max(rates)


def requests(api: str, connections: int) -> Once:
    """Requests a second, one in flight on each connection."""

    async def once(plan: Plan, cluster: ProcessCluster, topic: str) -> tuple[float]:
        address, seconds = cluster.address(cluster.brokers[0]), min(plan.seconds, 5)
        command = request_rate.command(api, address, topic, connections, seconds)
        return (json.loads(await output(command))["a_second"],)

    return once


def java_produce(properties: Sequence[str], share: float = 1.0) -> Once:
    """MB/s of Kafka's own ProducerPerformance, 1000-byte records."""

    async def once(plan: Plan, cluster: ProcessCluster, topic: str) -> tuple[float]:
        count = max(1000, int(plan.megabytes * share * 1000))
        words = ["--topic", topic, "--num-records", str(count), "--record-size", "1000"]
        words += ["--throughput", "-1", "--producer-props", "acks=all", *properties]
        words.append(f"bootstrap.servers={cluster.direct_bootstrap}")
        said = await output(java("org.apache.kafka.tools.ProducerPerformance", words))
        return (java_rate(said),)

    return once


def java(main_class: str, words: Sequence[str]) -> list[str]:
    jars = f"{apache.home()}/libs/*"
    quiet = ["-Xmx512m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
    return [find_java(), *quiet, "-cp", jars, main_class, *words]


def java_rate(said: str) -> float:
    """MB/s of 1000-byte records in ProducerPerformance's last line.

    >>> java_rate("5 records sent, 1 records/sec (0.00 MB/sec), ...\\n9 records sent, 2000.0 re")
    2.0
    """
    last = said.strip().splitlines()[-1]
    word = last.split("records sent,", 1)[1].split()[0]
    return float(word.replace(",", "")) * 1000 / 1e6


FOOTPRINT = (
    Line("memory-idle", "memory of an idle broker", "MiB PSS", 8),
    Line("memory-loaded", "memory of a loaded broker", "MiB PSS", 8),
    Line("disk", "bytes on disk a record of 100 B", "bytes", 1),
)


async def footprint(turns: Turns) -> Samples:
    """PSS of a broker, idle and after a load, and bytes on disk a record; in this order."""
    samples = Samples()
    clusters = await turns.clusters()
    await trio.sleep(turns.plan.idle_s / 4)
    for index, cluster in enumerate(clusters):
        samples.add("memory-idle", index, *map(pss_mib, broker_pids(cluster)))

    async def once(plan: Plan, cluster: ProcessCluster, topic: str) -> tuple[float]:
        load = Load(
            cluster.direct_bootstrap, topic, 100, 16 * KIB, "all", 0, plan.seconds,
            plan.megabytes / 10,
        )  # fmt: skip
        records = json.loads(await output(load.command()))["records"]
        written = _bytes_on_disk(cluster.folder, topic)
        pids = broker_pids(cluster)
        samples.add("memory-loaded", clusters.index(cluster), *map(pss_mib, pids))
        return (written / 3 / records,)

    samples.update(await turns.in_turn(FOOTPRINT[2:], once))
    return samples


def _bytes_on_disk(folder: Path, topic: str) -> int:
    """The bytes of the batches, which are equal on all replicas; indexes do not count, because
    Kafka's are allocated in advance."""
    return sum(path.stat().st_size for path in folder.glob(f"broker-*/data/{topic}-*/*.log"))
