"""`highwater bench compaction`: one broker, one partition, many records over few keys.

The same batches go to each side (`keyed`), into a topic that is not compacted yet.  Then the topic
becomes a compacted one, and the clock runs until the broker's cleaner-offset-checkpoint has reached
the active segment.  The remaining records are read from the segments themselves: their offsets must
be those that the load computes, and so the same on both sides.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from highwater.bench.benchmark import option
from highwater.bench.figures.memory import pss_mib
from highwater.bench.figures.rows import Line, Samples, Table
from highwater.bench.figures.sides import BenchFailed, Progress, Side, Sides
from highwater.bench.loads.bench_topics import alter_topic, create_topic
from highwater.bench.loads.keyed import Keyed, send
from highwater.broker.log.checkpoints import CLEANER_OFFSETS, MalformedFileError, decode_offsets
from highwater.broker.log.cleaner.compacted_records import scan
from highwater.cluster.processes.process_cluster import ProcessCluster
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
}
_NOT_YET_COMPACTED = {"retention.ms": "-1"}
"""The records' timestamps are old."""
_COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}


@dataclass(frozen=True, slots=True)
class Options:
    records: int = option(1_000_000, least=1000)
    keys: int = option(10_000, least=1, most=99_999_999)
    segment_mib: int = option(8, "A segment's size.", least=1, most=1024)
    rounds: int = option(1, least=1)

    @property
    def load(self) -> Keyed:
        return Keyed(self.records, self.keys)

    def lines(self) -> list[Line]:
        what = f"compaction of {self.records} records over {self.keys} keys"
        return [
            Line("seconds", what, "s"),
            Line("most", "most memory of broker and cleaner meanwhile", "MiB PSS"),
            Line("idle", "memory of the broker just before", "MiB PSS"),
            Line("slowest", "slowest answer to an ApiVersions request meanwhile", "ms"),
            Line("left", "records left", "records, the same offsets"),
        ]


async def run(options: Options, sides: Sides) -> Table:
    return sides.table(options.lines(), await measure(options, sides))


async def measure(options: Options, sides: Sides) -> Samples:
    """Raises BenchFailed where a wrong offset is left, or the sides keep different ones."""
    kept: list[list[int]] = []

    async def load(cluster: ProcessCluster, side: Side) -> dict[str, float]:
        found, target, offsets = await _compact(options, cluster, side.name, sides.progress)
        _check(options, side.name, offsets, target)
        kept.append(offsets)
        return found

    properties = {**_CLEANER, "log.segment.bytes": str(options.segment_mib << 20)}
    start: dict[str, Any] = {"brokers": 1, "properties": properties, "quick_end": True}
    samples = await sides.alone(load, options.rounds, **start)
    if any(offsets != kept[0] for offsets in kept):
        raise BenchFailed("the sides kept different offsets")
    sides.progress(f"every side kept the same {len(kept[0])} of {options.records} offsets")
    return samples


async def _compact(
    options: Options, cluster: ProcessCluster, name: str, progress: Progress
) -> tuple[dict[str, float], int, list[int]]:
    """The figures; the offset up to which the log was cleaned, and the offsets that are left."""
    bootstrap, data = cluster.direct_bootstrap, cluster.data_dirs(1)[0]
    await create_topic(bootstrap, TP.topic, 1, 1, _NOT_YET_COMPACTED)
    progress(f"{name}: producing {options.records} records over {options.keys} keys")
    await send(*cluster.address(1), TP, options.load)
    target = max(_bases(data))
    if target == 0:
        raise BenchFailed(
            f"{options.records} records fit into one segment of {options.segment_mib} MiB, which "
            " is never cleaned: use more records, or smaller segments"
        )
    pid = cluster.pid("broker-1")
    idle = pss_mib(pid)
    progress(f"{name}: cleaning up to offset {target}")
    await alter_topic(bootstrap, TP.topic, _COMPACTED)
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
    found = {"seconds": seconds, "most": most, "idle": idle, "slowest": max(waits) * 1000}
    return {**found, "left": len(kept)}, target, kept


async def _ask(host: str, port: int, waits: list[float]) -> None:
    """Sends a small request now and then; adds the time of each to `waits`."""
    connection = await ClientConnection.open(RealNetwork(), host, port, "highwater-bench")
    while True:
        began = time.monotonic()
        await connection.call_raw(API_VERSIONS, 0, [], PATIENCE_S)
        waits.append(time.monotonic() - began)
        await trio.sleep(ASK_S)


def _check(options: Options, name: str, kept: list[int], clean_point: int) -> None:
    expected = options.load.expected(clean_point)
    if kept != expected:
        wrong = sorted(set(expected) ^ set(kept))
        raise BenchFailed(
            f"{name} kept {len(kept)} offsets, {len(expected)} were expected; "
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
