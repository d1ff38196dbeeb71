"""Logs on real files in a temporary folder, with a clock that only the test moves."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio

from highwater.broker.log.index import OffsetIndex, TimeIndex
from highwater.broker.log.log import Log
from highwater.broker.log.log_config import LogConfig
from highwater.broker.log.parts import AppendInfo, LogSlice, Origin
from highwater.broker.log.recovery import load_log
from highwater.broker.log.validation import checked
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.records import BatchHeader, Record, batches, build_batch, validate_fetched
from highwater.world.real.disk import RealDisk

START_MS = 1_700_000_000_000
OWN = Origin.COORDINATOR
"""The origin of a batch that this broker made."""
TP = TopicPartition("topic", 0)


@dataclass
class FakeClock:
    """Wall time by hand; short spans by trio's clock, where there is one."""

    now_ms: int = START_MS

    def wall_ms(self) -> int:
        return self.now_ms

    def perf_ns(self) -> int:
        try:
            return int(trio.current_time() * 1e9)
        except RuntimeError:
            return 0


def batch(
    count: int = 1,
    *,
    size: int = 10,
    producer: tuple[int, int, int] | None = None,
    timestamp: int = START_MS,
    attributes: int = 0,
) -> bytearray:
    """One batch; `producer` is id, epoch, base sequence."""
    producer_id, epoch, sequence = producer or (-1, -1, -1)
    return build_batch(
        [Record(None, b"v" * size, timestamp + n) for n in range(count)], producer_id=producer_id,
        producer_epoch=epoch, base_sequence=sequence, attributes=attributes,
    )  # fmt: skip


@dataclass
class Logs:
    """One folder, and the log in it, which the test may open again and again."""

    folder: str
    disk: RealDisk = field(default_factory=RealDisk)
    clock: FakeClock = field(default_factory=FakeClock)

    def open(
        self,
        config: LogConfig | None = None,
        *,
        clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        cleaned_to: int = 0,
    ) -> Log:
        return load_log(
            self.disk, self.clock, self.folder, TP, config or LogConfig(), clean=clean,
            recovery_point=recovery_point, log_start_offset=log_start_offset, cleaned_to=cleaned_to,
        )  # fmt: skip


def lead(
    log: Log,
    data: bytearray,
    epoch: int = 0,
    now_ms: int = START_MS,
    *,
    origin: Origin = Origin.CLIENT,
) -> AppendInfo:
    """Appends a client's batch."""
    view, headers = checked(memoryview(data), log.config, origin, now_ms)
    return log.append_as_leader(view, headers, epoch, now_ms, origin=origin)


def follow(log: Log, data: bytes) -> AppendInfo:
    """Appends a leader's batch."""
    return log.append_as_follower(memoryview(data), validate_fetched(data))


def content(found: LogSlice) -> bytes:
    return found.file.read(found.position, found.size)


def headers_of(log: Log) -> list[BatchHeader]:
    """Every batch in the log's files, read from their bytes."""
    return [
        header for segment in log.segments for header in batches(segment.file.read(0, segment.size))
    ]


def bytes_of(log: Log) -> bytes:
    return b"".join(segment.file.read(0, segment.size) for segment in log.segments)


def sequence_of(log: Log, producer_id: int) -> Sequence[tuple[int, int]]:
    """(last sequence, last offset) of the batches that the log remembers."""
    entry = log.producers.get(producer_id)
    return [(b.last_sequence, b.last_offset) for b in entry.batches] if entry else []


def check_indexes(log: Log) -> None:
    """Checks that each entry of an index file is about an existing batch."""
    for segment in log.segments:
        segment.write_indexes()
        known = {h.position: h for h in batches(segment.file.read(0, segment.size))}
        path = segment.file.path.removesuffix(".log")
        offsets = OffsetIndex.decode(Path(path + ".index").read_bytes(), segment.size)
        assert len(offsets) == len(segment.offset_index)
        for offset, position in zip(offsets.offsets, offsets.positions, strict=True):
            assert known[position].last_offset == segment.base_offset + offset
        times = TimeIndex.decode(Path(path + ".timeindex").read_bytes())
        for timestamp, offset in zip(times.timestamps, times.offsets, strict=True):
            assert timestamp in [
                h.max_timestamp
                for h in known.values()
                if h.last_offset == segment.base_offset + offset
            ]


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """The system refuses, after a short write, to let files grow beyond that: a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(str(tmp_path / "topic-0"))
