"""Rows of throughput and latency: loads as processes against the shared clusters, in turn."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import trio

from highwater.bench.everything.measures import Run
from highwater.bench.everything.turns import Turns, broker_pids, flat
from highwater.bench.figures.memory import pss_mib
from highwater.bench.figures.rows import Samples
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
"""librdkafka's own."""


async def produced(load: Load) -> float:
    """Megabytes of record values a second."""
    found = json.loads(await output(load.command()))
    return float(found["records"] * load.record_bytes / found["seconds"] / 1e6)


def produce(
    line: str,
    *,
    record_bytes: int = 1000,
    batch_kib: int = 128,
    acks: str = "all",
    settings: Mapping[str, Any] | None = None,
    transaction: tuple[int, float] | None = None,
    share: float = 1.0,
) -> Run:
    """MB/s through librdkafka; `share` of the plan's megabytes where the load is a slow one."""

    async def run(turns: Turns) -> Samples:
        async def one(cluster: ProcessCluster, topic: str) -> dict[str, float]:
            load = Load(
                bootstrap=cluster.direct_bootstrap,
                topic=topic,
                record_bytes=record_bytes,
                batch_bytes=batch_kib * KIB,
                acks=acks,
                warm_up_s=0.3,
                measure_s=turns.plan.seconds,
                measure_mb=turns.plan.megabytes * share,
                settings=dict(settings or {}),
                transaction=transaction,
            )
            return {line: await produced(load)}

        return await turns.in_turn(one)

    return run


def singles(what: str, p50: str, p99: str) -> Run:
    """Milliseconds of one record at a time."""

    async def run(turns: Turns) -> Samples:
        async def one(cluster: ProcessCluster, topic: str) -> dict[str, float]:
            count = turns.plan.writes
            command = single_writes.command(what, cluster.direct_bootstrap, topic, count)
            found = json.loads(await output(command))
            return {p50: found["p50_ms"], p99: found["p99_ms"]}

        return await turns.in_turn(one, lambda ms: 1 / ms, partitions=1)

    return run


async def mixed(turns: Turns) -> Samples:
    """Milliseconds of produce at half of what the last side, Apache Kafka, takes at most."""
    most = await _most(turns)
    turns.progress(f"{turns.sides[-1].name} takes {most:.1f} MB/s at most: half of it is the load")
    rate = most / 2 * 1e6 / mixed_load.RECORD_BYTES

    async def one(cluster: ProcessCluster, topic: str) -> dict[str, float]:
        command = mixed_load.command(cluster.direct_bootstrap, topic, rate, turns.plan.seconds)
        found = json.loads(await output(command))
        if not found["read"]:
            raise BenchFailed("the readers beside the load read nothing")
        return {"mixed-p99": found["p99_ms"], "mixed-p999": found["p999_ms"]}

    return await turns.in_turn(one, lambda ms: 1 / ms)


async def _most(turns: Turns) -> float:
    """MB/s by librdkafka's defaults, when it does not grow any more."""
    rates: list[float] = []

    async def one(cluster: ProcessCluster, topic: str) -> dict[str, float]:
        where, plan = cluster.direct_bootstrap, turns.plan
        load = Load(
            where, topic, mixed_load.RECORD_BYTES, 1_000_000, "all", 0.3, plan.seconds,
            plan.megabytes, DEFAULTS,
        )  # fmt: skip
        return {"rate": await produced(load)}

    while len(rates) < turns.plan.warm and not flat(rates):
        rates.append((await turns.once_on_last(one))["rate"])
    return max(rates)


def requests(api: str, connections: int, line: str) -> Run:
    """Requests a second, one in flight on each connection."""

    async def run(turns: Turns) -> Samples:
        async def one(cluster: ProcessCluster, topic: str) -> dict[str, float]:
            seconds = min(turns.plan.seconds, 5)
            address = cluster.address(cluster.brokers[0])
            command = request_rate.command(api, address, topic, connections, seconds)
            return {line: json.loads(await output(command))["a_second"]}

        return await turns.in_turn(one)

    return run


def java_produce(line: str, properties: Sequence[str], share: float = 1.0) -> Run:
    """MB/s of Kafka's own ProducerPerformance, 1000-byte records."""

    async def run(turns: Turns) -> Samples:
        count = max(1000, int(turns.plan.megabytes * share * 1000))

        async def one(cluster: ProcessCluster, topic: str) -> dict[str, float]:
            words = ["--topic", topic, "--num-records", str(count), "--record-size", "1000"]
            words += ["--throughput", "-1", "--producer-props", "acks=all", *properties]
            words.append(f"bootstrap.servers={cluster.direct_bootstrap}")
            said = await output(java("org.apache.kafka.tools.ProducerPerformance", words))
            return {line: java_rate(said)}

        return await turns.in_turn(one)

    return run


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


async def footprint(turns: Turns) -> Samples:
    """PSS of a broker, idle and after a load, and bytes on disk a record; in this order."""
    samples = Samples()
    clusters = await turns.clusters()
    await trio.sleep(turns.plan.idle_s / 4)
    for index, cluster in enumerate(clusters):
        samples.add("memory-idle", index, *map(pss_mib, broker_pids(cluster)))

    async def one(cluster: ProcessCluster, topic: str) -> dict[str, float]:
        index = clusters.index(cluster)
        load = Load(
            cluster.direct_bootstrap, topic, 100, 16 * KIB, "all", 0, turns.plan.seconds,
            turns.plan.megabytes / 10,
        )  # fmt: skip
        found = json.loads(await output(load.command()))
        written = _bytes_on_disk(cluster.folder, topic)
        samples.add("memory-loaded", index, *map(pss_mib, broker_pids(cluster)))
        return {"disk": written / 3 / found["records"]}

    samples.update(await turns.in_turn(one))
    return samples


def _bytes_on_disk(folder: Path, topic: str) -> int:
    """Of the batches, which replicas hold alike; the indexes of Kafka are allocated ahead."""
    return sum(path.stat().st_size for path in folder.glob(f"broker-*/data/{topic}-*/*.log"))
