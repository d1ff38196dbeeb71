"""`highwater bench compaction`: one broker, one partition, many records over few keys.

The same batches go to each side (`keyed`), into a topic that is not compacted yet.  Then the topic
becomes a compacted one, and the clock runs until the broker's cleaner-offset-checkpoint has reached
the active segment.  The remaining records are read from the segments themselves: their offsets must
be those that the load computes, and so the same on both sides.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import trio

from highwater.bench.figures.memory import pss_mib
from highwater.bench.figures.rows import Row
from highwater.bench.figures.sides import BenchFailed, Progress, Side
from highwater.bench.loads.bench_topics import ANSWER_S, admin_client, create_topic
from highwater.bench.loads.keyed import Keyed, send
from highwater.broker.log.checkpoints import CLEANER_OFFSETS, MalformedFileError, decode_offsets
from highwater.broker.log.cleaner.compacted_records import scan
from highwater.client_calls import ClientHangs, within
from highwater.cluster.processes.process_cluster import ProcessCluster, process_cluster
from highwater.cluster.processes.process_settings import Settings
from highwater.kafka.client.connection import ClientConnection
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.records import batches, payload_of
from highwater.world.real.network import RealNetwork

TP = TopicPartition("bench-compaction", 0)
POLL_S = 0.1
ASK_S = 0.005
API_VERSIONS = 18
PATIENCE_S = 1800
_CLEANER = {
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": "3600000",
    "log.segment.delete.delay.ms": "1000",
}
_NOT_YET_COMPACTED = {"retention.ms": "-1"}
"""The records' timestamps are old."""


@dataclass(frozen=True, slots=True)
class Plan:
    load: Keyed = field(default_factory=lambda: Keyed(1_000_000, 10_000))
    segment_bytes: int = 64 << 20
    rounds: int = 1


@dataclass(slots=True)
class Compacted:
    """One side's result of one round."""

    seconds: float
    memory_mib: float
    """The most memory of broker and cleaner during the cleaning."""
    idle_mib: float
    """The memory just before."""
    slowest_ms: float
    """The broker's slowest answer to an ApiVersions request meanwhile."""
    kept: list[int]
    clean_point: int


async def run(plan: Plan, sides: Sequence[Side], progress: Progress) -> list[Row]:
    """The measured rows, Highwater's first.  Raises BenchFailed where a wrong offset is left."""
    done: dict[str, list[Compacted]] = {side.name: [] for side in sides}
    for number in range(plan.rounds):
        for side in sides:
            folder = side.folder / f"run-{number}"
            settings = Settings(
                folder,
                zookeeper=side.zookeeper,
                brokers=1,
                profile="kafka",
                program=side.program,
                properties={**_CLEANER, "log.segment.bytes": str(plan.segment_bytes)},
                quick_end=True,
            )
            async with process_cluster(settings, timeout_s=120) as cluster:
                result = await _compact(plan, cluster, side.name, progress)
            _check(plan, side.name, result)
            done[side.name].append(result)
    kept = [result.kept for results in done.values() for result in results]
    if any(offsets != kept[0] for offsets in kept):
        raise BenchFailed("the sides kept different offsets")
    progress(f"every side kept the same {len(kept[0])} of {plan.load.records} offsets")
    return _rows(plan, sides, done)


async def _compact(plan: Plan, cluster: ProcessCluster, name: str, progress: Progress) -> Compacted:
    bootstrap, data = cluster.direct_bootstrap, cluster.data_dirs(1)[0]
    await trio.to_thread.run_sync(create_topic, bootstrap, TP.topic, 1, 1, _NOT_YET_COMPACTED)
    progress(f"{name}: producing {plan.load.records} records over {plan.load.keys} keys")
    await send(*cluster.address(1), TP, plan.load)
    target = max(_bases(data))
    if target == 0:
        raise BenchFailed(
            f"{plan.load.records} records fit into one segment of {plan.segment_bytes} bytes, "
            "which is never cleaned: use more records, or smaller segments"
        )
    pid = cluster.pid("broker-1")
    idle = pss_mib(pid)
    progress(f"{name}: cleaning up to offset {target}")
    await trio.to_thread.run_sync(_make_compacted, bootstrap)
    began = time.monotonic()
    most = idle
    waits: list[float] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_ask, *cluster.address(1), waits)
        while _cleaned_to(data) < target:
            if time.monotonic() - began > PATIENCE_S:
                raise BenchFailed(f"{name} did not clean the log within {PATIENCE_S} s")
            most = max(most, await trio.to_thread.run_sync(pss_mib, pid))
            await trio.sleep(POLL_S)
        seconds = time.monotonic() - began
        nursery.cancel_scope.cancel()
    kept = await trio.to_thread.run_sync(lambda: list(_offsets(data)))
    slowest = max(waits) * 1000
    progress(
        f"{name}: {seconds:.1f} s, {most:.0f} MiB at most, slowest answer {slowest:.0f} ms, "
        f"{len(kept)} records left"
    )
    return Compacted(seconds, most, idle, slowest, kept, target)


async def _ask(host: str, port: int, waits: list[float]) -> None:
    """Sends a small request now and then; adds the time of each to `waits`."""
    connection = await ClientConnection.open(RealNetwork(), host, port, "highwater-bench")
    while True:
        began = time.monotonic()
        await connection.call_raw(API_VERSIONS, 0, [], PATIENCE_S)
        waits.append(time.monotonic() - began)
        await trio.sleep(ASK_S)


def _check(plan: Plan, name: str, result: Compacted) -> None:
    expected = plan.load.expected(result.clean_point)
    if result.kept != expected:
        wrong = sorted(set(expected) ^ set(result.kept))
        raise BenchFailed(
            f"{name} kept {len(result.kept)} offsets, {len(expected)} were expected; "
            f"the first that differs is {wrong[0] if wrong else 'twice there'}"
        )


def _folder(data: Path) -> Path:
    return data / str(TP)


def _bases(data: Path) -> list[int]:
    return sorted(int(path.stem) for path in _folder(data).glob("*.log"))


def _cleaned_to(data: Path) -> int:
    with suppress(OSError, MalformedFileError):
        return decode_offsets((data / CLEANER_OFFSETS).read_bytes()).get(TP, 0)
    return 0


def _offsets(data: Path) -> Iterator[int]:
    for base in _bases(data):
        view = memoryview((_folder(data) / f"{base:020d}.log").read_bytes())
        for header in batches(view):
            for record in scan(payload_of(view, header), header.record_count):
                yield header.base_offset + record.offset_delta


def _make_compacted(bootstrap: str) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    admin = admin_client(bootstrap)
    wanted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in wanted.items()
    ]
    topic = ConfigResource(ConfigResource.Type.TOPIC, TP.topic, incremental_configs=entries)
    try:
        altered = admin.incremental_alter_configs([topic])[topic]
        within(f"altering the topic {TP.topic}", ANSWER_S, altered.result)
    except ClientHangs:
        raise
    except Exception as error:
        raise BenchFailed(f"topic {TP.topic} could not be altered: {error}") from error


def _rows(plan: Plan, sides: Sequence[Side], done: dict[str, list[Compacted]]) -> list[Row]:
    what = f"compaction of {plan.load.records} records over {plan.load.keys} keys"

    def row(title: str, unit: str, values: dict[str, list[float]]) -> Row:
        ours, theirs = (tuple(values[side.name]) for side in (sides[0], sides[-1]))
        return Row(title, unit, ours, theirs if len(sides) > 1 else (), smaller_is_better=True)

    def of(attribute: str) -> dict[str, list[float]]:
        return {n: [float(getattr(r, attribute)) for r in rs] for n, rs in done.items()}

    kept = {n: [float(len(r.kept)) for r in rs] for n, rs in done.items()}
    return [
        row(what, "s", of("seconds")),
        row("most memory of broker and cleaner meanwhile", "MiB PSS", of("memory_mib")),
        row("memory of the broker just before", "MiB PSS", of("idle_mib")),
        row("slowest answer to an ApiVersions request meanwhile", "ms", of("slowest_ms")),
        row("records left", "records, the same offsets", kept),
    ]
