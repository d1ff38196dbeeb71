"""`highwater bench fetch-wait`: the cost of fetch.min.bytes when all data is there.

Each side has one broker; both run at the same time and are measured in turn.  A client reads from
the start of a partition that has more data than it reads, so that no fetch waits at the end.  With
fetch.min.bytes above max.partition.fetch.bytes each fetch takes its whole max_wait_ms, in Kafka,
too; otherwise none waits.  "segments" sends hand-made fetches to a log of many small segments.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import trio

from highwater.bench.benchmark import option
from highwater.bench.figures.rows import Line, Samples, Table
from highwater.bench.figures.sides import BenchFailed, Sides
from highwater.bench.loads.bench_topics import create_topic
from highwater.client_calls import SOON_S, within
from highwater.cluster.processes import apache
from highwater.cluster.processes.process_cluster import ProcessCluster
from highwater.kafka.client.connection import ClientConnection
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.fetch import FetchPartition, FetchRequest, build_fetch, parse_fetch_answer
from highwater.kafka.wire.records import Record, batches, build_batch
from highwater.world.real.network import RealNetwork

SMALL = "segments"
CLIENTS = (SMALL, "java", "kcat", "librdkafka")
MIB = 1 << 20
WHOLE, SEGMENTS = "bench-fetch-wait", "bench-fetch-wait-segments"
RECORD_BYTES, BATCH_BYTES = 1000, 16384
SEGMENT_COUNT, SEGMENT_BYTES, SEGMENTS_WAIT_MS = 74, 200, 100
FETCH, VERSION = 1, 11
Read = Callable[[ProcessCluster], float]
"""Reads once; gives the seconds that it took."""
PATIENCE_S = 120
_PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
}


@dataclass(frozen=True, slots=True)
class Options:
    clients: tuple[str, ...] = option(CLIENTS, flag="--client", of=CLIENTS)
    min_mib: tuple[int, ...] = option((1, 2, 5, 10), "fetch.min.bytes.", least=1, most=50)
    records: int = option(15_000, "1 KB each.", least=1)
    rounds: int = option(5, least=1)

    @property
    def written(self) -> int:
        """The number of records written, so that min_bytes are left after the last one read."""
        return self.records + 2 * max(self.min_mib) * MIB // RECORD_BYTES

    def section(self, _against: str | None) -> tuple[str, str]:
        """The name and the heading of the section of a page."""
        which = "" if self.clients == CLIENTS else " ".join(self.clients)
        return f"bench fetch-wait {which}".strip(), f"## fetch.min.bytes: {which or 'all clients'}"


@dataclass(frozen=True, slots=True)
class Limits:
    """fetch.min.bytes and max.partition.fetch.bytes."""

    min_bytes: int
    of_partition: int

    def __str__(self) -> str:
        least = self.min_bytes // MIB
        above = self.of_partition < self.min_bytes
        limit = "a byte less" if above else f"{self.of_partition // MIB} MiB"
        return f"fetch.min.bytes {least} MiB, max.partition.fetch.bytes {limit}"


def around(min_mib: Sequence[int]) -> Iterator[Limits]:
    for wanted in (mib * MIB for mib in min_mib):
        for of_partition in (wanted - 1, wanted, 2 * wanted):
            yield Limits(wanted, of_partition)


def too_slow(table: Table) -> str:
    """Names the rows in which Highwater takes more than 1.5 times as long and 50 ms longer."""
    slow = [
        row.what
        for row in table.rows
        if row.theirs and median(row.ours) > max(1.5 * median(row.theirs), median(row.theirs) + 50)
    ]
    return f"too slow: {'; '.join(slow)}" if slow else ""


async def run(options: Options, sides: Sides) -> Table:
    """Raises BenchFailed."""
    if "kcat" in options.clients:
        kcat_program()  # fail now, not minutes later
    lines, samples = [], Samples()
    for client in options.clients:
        async with sides.together(1, _PROPERTIES) as clusters:
            sides.progress(f"{client}: writing what is read")
            for cluster in clusters:
                await _fill(options, client, cluster)
            for what, read in _reads(options, client):
                name = f"{client}: {what}" if len(options.clients) > 1 else what
                lines.append(Line(name, name, "ms"))
                for _ in range(options.rounds):
                    for index, cluster in enumerate(clusters):
                        took = await trio.to_thread.run_sync(read, cluster)
                        samples.add(name, index, took * 1000)
                said = ", ".join(f"{median(times):.0f} ms" for times in samples[name])
                sides.progress(f"{name}: {said}")
    return sides.table(lines, samples)


def _reads(options: Options, client: str) -> Iterator[tuple[str, Read]]:
    if client == SMALL:
        what = f"{SEGMENT_COUNT} segments, segment.bytes and min_bytes {SEGMENT_BYTES}"
        yield f"{what}, max_wait_ms {SEGMENTS_WAIT_MS}", _read_segments
        return
    for limits in around(options.min_mib):
        yield str(limits), _reader(client, limits, options.records)


async def _fill(options: Options, client: str, cluster: ProcessCluster) -> None:
    bootstrap = cluster.direct_bootstrap
    if client != SMALL:
        await create_topic(bootstrap, WHOLE, 1, 1, {})
        value, count = b"v" * RECORD_BYTES, options.written
        await trio.to_thread.run_sync(_produce, bootstrap, WHOLE, count, value)
        return
    small = {"segment.bytes": str(SEGMENT_BYTES)}
    await create_topic(bootstrap, SEGMENTS, 1, 1, small)
    one = build_batch([Record(None, b"", 0)])
    value = b"v" * (SEGMENT_BYTES // 2 + 1 - len(one))  # two batches do not fit into one
    await trio.to_thread.run_sync(_produce, bootstrap, SEGMENTS, SEGMENT_COUNT, value)


def _produce(bootstrap: str, topic: str, records: int, value: bytes) -> None:
    """Produces batches as the Java producer does by default; with small segments, each record
    alone."""
    from confluent_kafka import Producer

    whole = topic == WHOLE
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "batch.size": BATCH_BYTES,
            "batch.num.messages": 10_000 if whole else 1,
            "linger.ms": 100 if whole else 0,
            "log_level": 0,
        }
    )
    for _ in range(records):
        producer.produce(topic, value, partition=0)
    if within(f"filling {topic}", 60 + SOON_S, producer.flush, 60):
        raise BenchFailed(f"{topic}: records were not acknowledged within 60 s")


def _reader(client: str, limits: Limits, records: int) -> Read:
    reads = {"java": _java, "kcat": _kcat, "librdkafka": _librdkafka}
    return lambda cluster: reads[client](cluster.direct_bootstrap, limits, records)


def _librdkafka(bootstrap: str, limits: Limits, records: int) -> float:
    from confluent_kafka import Consumer, TopicPartition

    began = time.monotonic()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": WHOLE,
            "enable.auto.commit": False,
            "fetch.min.bytes": limits.min_bytes,
            "max.partition.fetch.bytes": limits.of_partition,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(WHOLE, 0, 0)])
    left = records
    while left > 0:
        left -= len(consumer.consume(1000, 0.1))
        if time.monotonic() - began > PATIENCE_S:
            raise BenchFailed(f"librdkafka: {left} records did not come within {PATIENCE_S} s")
    taken = time.monotonic() - began
    within("after the reading", SOON_S, consumer.close)
    return taken


def kcat_program() -> str:
    """The path of kcat; raises BenchFailed where it is not installed."""
    program = shutil.which("kcat") or shutil.which("kafkacat")
    if program is None:
        raise BenchFailed(
            "kcat is not installed: apt-get install kcat (Debian), or name the others by --client"
        )
    return program


def _kcat(bootstrap: str, limits: Limits, records: int) -> float:
    """The time of one kcat process, start to end."""
    program = kcat_program()
    began = time.monotonic()
    _output(
        [
            *(program, "-C", "-q", "-b", bootstrap, "-t", WHOLE, "-p", "0", "-o", "beginning"),
            *("-c", str(records), "-X", f"fetch.min.bytes={limits.min_bytes}"),
            *("-X", f"max.partition.fetch.bytes={limits.of_partition}"),
        ]
    )
    return time.monotonic() - began


def _java(bootstrap: str, limits: Limits, records: int) -> float:
    """ConsumerPerformance's own fetch.time.ms, without the start of the JVM and of the group."""
    with tempfile.TemporaryDirectory() as work:
        config = Path(work) / "consumer.properties"
        config.write_text(f"fetch.min.bytes={limits.min_bytes}\n")
        done = apache.tool(
            "org.apache.kafka.tools.ConsumerPerformance",
            [
                *("--bootstrap-server", bootstrap, "--topic", WHOLE, "--messages", str(records)),
                *("--fetch-size", str(limits.of_partition), "--consumer.config", str(config)),
                *("--hide-header", "--timeout", str(PATIENCE_S * 1000)),
            ],
            timeout_s=2 * PATIENCE_S,
        )
    columns = done.stdout.strip().split(", ")
    if done.returncode or len(columns) < 10 or int(columns[4]) < records:
        raise BenchFailed(f"ConsumerPerformance: {done.stdout}{done.stderr}".strip())
    return int(columns[7]) / 1000


def _output(command: list[str]) -> None:
    done = subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False
    )
    if done.returncode:
        raise BenchFailed(f"{command[0]}: {done.stderr.decode(errors='replace').strip()}")


def _read_segments(cluster: ProcessCluster) -> float:
    return trio.run(_ask_for_segments, *cluster.address(1))


async def _ask_for_segments(host: str, port: int) -> float:
    connection = await ClientConnection.open(RealNetwork(), host, port, "highwater-bench")
    offset, began = 0, time.monotonic()
    while offset < SEGMENT_COUNT:
        asked = FetchPartition(TopicPartition(SEGMENTS, 0), -1, offset, -1, -1, MIB)
        request = FetchRequest(-1, SEGMENTS_WAIT_MS, SEGMENT_BYTES, MIB, 0, 0, -1, [asked], [], "")
        body = build_fetch(request, VERSION)
        answer = await connection.call_raw(FETCH, VERSION, [body], PATIENCE_S)
        found = parse_fetch_answer(memoryview(answer), VERSION).partitions[0]
        if found.error:
            raise BenchFailed(f"{SEGMENTS}: the fetch at {offset} gave error {found.error}")
        for header in batches(found.records):
            offset = header.last_offset + 1
    taken = time.monotonic() - began
    connection.close()
    return taken
