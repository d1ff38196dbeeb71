"""Highwater's cleaner beside Apache Kafka's, on the same bytes.

A log is written once, and copied into the folder of an Apache Kafka broker; both cleaners work on
it, round after round, and between the rounds the same segments are added to both.  After each,
every batch that is left must be the same: offsets, producer, sequence, attributes, number of
records, and the records themselves.  Only where a delete horizon lies may differ: it is a time.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio

from highwater.broker.log.checkpoints import CLEANER_OFFSETS, decode_offsets
from highwater.broker.log.cleaner.cleaner import LogCleaner
from highwater.broker.log.log import Log
from highwater.broker.log.log_config import LogConfig
from highwater.broker.log.log_manager import LogManager
from highwater.broker.log.parts import Origin
from highwater.cluster.processes import apache
from highwater.cluster.processes.process_settings import Settings
from highwater.kafka.config import Config
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.compression import Compression
from highwater.kafka.wire.records import (
    DELETE_HORIZON,
    TRANSACTIONAL,
    Marker,
    Record,
    batches,
    build_batch,
    build_marker,
    records_of_batch,
)
from highwater.world.chance import seeded
from highwater.world.real.clock import RealClock
from highwater.world.real.disk import RealDisk
from tests.background import BackgroundCluster

pytestmark = [
    pytest.mark.integration, pytest.mark.apache, pytest.mark.slow, pytest.mark.timeout(300),
]  # fmt: skip
TP = TopicPartition("cleaned", 0)
ROUNDS = 4
SEGMENT_BYTES = 6000
CONFIG = LogConfig(
    cleanup_policy="compact", segment_bytes=SEGMENT_BYTES, index_interval_bytes=400,
    min_cleanable_dirty_ratio=0.0, delete_retention_ms=1,
)  # fmt: skip
PROPERTIES = {
    "log.cleaner.backoff.ms": "50", "log.cleaner.min.cleanable.ratio": "0.0",
    "log.cleaner.delete.retention.ms": "1", "log.cleanup.policy": "compact",
    "log.segment.bytes": str(SEGMENT_BYTES), "log.index.interval.bytes": "400",
    "log.segment.delete.delay.ms": "0", "log.retention.check.interval.ms": "3600000",
    "log.initial.task.delay.ms": "1",
}  # fmt: skip


class Kept(NamedTuple):
    """The contents of a batch and its records, times of horizons left out."""

    base: int
    last: int
    attributes: int
    producer: tuple[int, int, int]
    max_timestamp: int
    records: tuple[Record, ...]


class Ours:
    """A log that only this test writes, and its cleaner."""

    def __init__(self, folder: Path) -> None:
        self.disk, self.clock = RealDisk(), RealClock()
        config = Config(log_dirs=(str(folder),))
        self.logs = LogManager(self.disk, self.clock, [str(folder)], config, _fail)
        folder.mkdir(parents=True)
        self.log: Log = self.logs.get_or_create(TP, CONFIG)
        self.cleaner = LogCleaner(
            self.logs, self.disk, self.clock, config, all_in_sync=lambda _: True
        )
        self.random = seeded("cleaned")
        self.sequences: dict[int, int] = {}

    def append(self, data: bytearray) -> None:
        self.log.append_as_leader(
            memoryview(data), list(batches(data)), 0, self.clock.wall_ms(),
            origin=Origin.COORDINATOR,
        )  # fmt: skip

    def write(self, count: int) -> None:
        """Writes overwrites, tombstones, no keys, codecs, producers, transactions; then a new
        segment."""
        random, now = self.random, self.clock.wall_ms()
        for _ in range(count):
            records = [self._record(now) for _ in range(random.randint(1, 6))]
            codec = random.choice(list(Compression)) if random.random() < 0.4 else Compression.NONE
            what = random.random()
            if what < 0.5:
                kind = "LogAppendTime" if random.random() < 0.2 else "CreateTime"
                self.log.config = replace(CONFIG, message_timestamp_type=kind)
                self.append(build_batch(records, compression=codec))
                self.log.config = CONFIG
                continue
            producer = random.randrange(100, 106)
            transactional = what < 0.75
            self._send(producer, records, codec, transactional)
            if transactional:
                if random.random() < 0.4:
                    self._send(producer, [self._record(now)], codec, True)
                marker = Marker(random.random() < 0.5, 0)
                self.append(build_marker(marker, producer, 0, now))
        self.log.roll()
        self.append(build_batch([Record(b"end", b"x", now)]))
        self.log.update_high_watermark(self.log.log_end_offset)
        trio.run(self.log.flush_for_good)

    def _record(self, now: int) -> Record:
        random = self.random
        key = None if random.random() < 0.05 else b"key-%d" % random.randrange(40)
        value = None if random.random() < 0.2 else b"%d" % random.getrandbits(60)
        headers = (("h", b"1"),) if random.random() < 0.1 else ()
        return Record(key, value, now - random.randrange(1000), headers)

    def _send(
        self, producer: int, records: list[Record], codec: Compression, transactional: bool
    ) -> None:
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + len(records)
        self.append(
            build_batch(
                records, producer_id=producer, producer_epoch=0, base_sequence=sequence,
                compression=codec, attributes=TRANSACTIONAL if transactional else 0,
            )
        )  # fmt: skip

    def clean(self) -> None:
        async def all_of_it() -> None:
            while await self.cleaner.clean_next():
                pass

        trio.run(all_of_it)
        assert not self.cleaner.uncleanable
        assert self.logs.cleaned_to(self.log) == self.log.segments[-1].base_offset


def _fail(folder: str, error: OSError) -> None:
    raise AssertionError(f"{folder} failed") from error


def kept_in(folder: Path) -> Iterator[Kept]:
    for segment in sorted(folder.glob("*.log")):
        data = segment.read_bytes()
        for header in batches(data):
            yield Kept(
                header.base_offset, header.last_offset, header.attributes,
                (header.producer_id, header.producer_epoch, header.base_sequence),
                header.max_timestamp, tuple(records_of_batch(data, header)),
            )  # fmt: skip


def add_new(source: Path, target: Path, known: set[str]) -> None:
    """Copies the segments that the other side does not have, with their other files."""
    for path in sorted(source.iterdir()):
        if path.name[:20].isdigit() and path.name[:20] not in known:
            shutil.copy(path, target / path.name)
    shutil.copy(source / "leader-epoch-checkpoint", target / "leader-epoch-checkpoint")


def bases(folder: Path) -> list[str]:
    return sorted(path.name[:20] for path in folder.glob("*.log"))


def cleaned_to(data: Path) -> int:
    path = data / CLEANER_OFFSETS
    return decode_offsets(path.read_bytes()).get(TP, 0) if path.exists() else 0


@pytest.fixture
def theirs(tmp_path: Path) -> Iterator[BackgroundCluster]:
    settings = Settings(
        tmp_path / "apache",
        brokers=1,
        program=apache.program(),
        properties={**PROPERTIES, "transaction.partition.verification.enable": "false"},
    )
    with BackgroundCluster.of(settings) as cluster:
        cluster.create_topic(TP.topic, partitions=1, replication_factor=1)
        yield cluster


def test_the_same_batches_are_left(theirs: BackgroundCluster, tmp_path: Path) -> None:
    ours = Ours(tmp_path / "ours")
    ours.log.epochs.assign(0, 0)
    mine = Path(ours.log.dir)
    data = theirs.folder / "broker-1" / "data"
    folder = data / str(TP)
    dropped = 0
    for number in range(ROUNDS):
        known = set(bases(mine)[:-1])
        ours.write(60)
        theirs.stop(1)
        for path in folder.glob(f"{bases(folder)[-1]}*"):
            path.unlink()  # its active segment, of which ours has more
        add_new(mine, folder, known)
        before = list(kept_in(folder))
        assert before == list(kept_in(mine)), "both begin with the same"
        theirs.start(1)
        target = ours.log.segments[-1].base_offset
        deadline = time.monotonic() + 90
        while cleaned_to(data) < target:
            assert time.monotonic() < deadline, (
                f"round {number}: Apache Kafka cleaned to {cleaned_to(data)} of {target}\n"
                + (theirs.folder / "broker-1" / "output.log").read_text()[-3000:]
            )
            time.sleep(0.05)
        ours.clean()
        left, expected = list(kept_in(mine)), list(kept_in(folder))
        for our, their in zip(left, expected, strict=False):
            assert our == their, f"round {number}"
        assert len(left) == len(expected)
        dropped += len(before) - len(left)
    assert dropped > 50
    kinds: dict[str, Any] = {
        "a tombstone with its horizon": any(
            k.attributes & DELETE_HORIZON and any(r.value is None for r in k.records)
            for k in kept_in(mine)
        ),
        "an empty batch": any(not k.records for k in kept_in(mine)),
    }
    assert all(kinds.values()), kinds
