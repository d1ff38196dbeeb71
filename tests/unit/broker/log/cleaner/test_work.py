"""A cleaning keeps the last record of each key, tombstones for a while, and whatever producers and
transactions still need.

It is checked on real files, and against a model for random logs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from highwater.base.metrics import Registry, exposition
from highwater.broker.log.cleaner.cleaner import LogCleaner
from highwater.broker.log.cleaner.cleaner_metrics import register_cleaner_metrics
from highwater.broker.log.cleaner.offset_map import ENTRY_BYTES, OffsetMap
from highwater.broker.log.cleaner.plan import inspect
from highwater.broker.log.log import Log
from highwater.broker.log.log_config import LogConfig
from highwater.broker.log.log_manager import LogManager
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
    check_crc,
    records_of_batch,
)
from highwater.world.real.disk import RealDisk
from tests.unit.broker.log.conftest import OWN, START_MS, FakeClock, check_indexes, headers_of, lead

TP = TopicPartition("compacted", 0)
COMPACT = LogConfig(
    cleanup_policy="compact", segment_bytes=600, index_interval_bytes=100,
    min_cleanable_dirty_ratio=0.0, delete_retention_ms=1000,
)  # fmt: skip
Item = tuple[bytes | None, bytes | None]
Kept = tuple[int, bytes | None, bytes | None]


class Cleaned:
    """A log manager with one compacted log, and its cleaner."""

    def __init__(self, folder: str, config: LogConfig = COMPACT, **properties: object) -> None:
        self.disk, self.clock = RealDisk(), FakeClock()
        self.config = Config(log_dirs=(folder,), **properties)  # type: ignore[arg-type]
        self.failures: list[OSError] = []
        self.logs = LogManager(
            self.disk, self.clock, [folder], self.config, lambda _, e: self.failures.append(e),
            lambda tp: self.log.high_watermark,
        )  # fmt: skip
        self.log = self.logs.get_or_create(TP, config)
        self.log.config = config
        self.whole = True
        self.cleaner = LogCleaner(
            self.logs, self.disk, self.clock, self.config, all_in_sync=lambda _: self.whole
        )

    def add(self, items: Sequence[Item], **options: object) -> int:
        """Adds one batch; returns its base offset."""
        records = [
            Record(key, value, self.clock.now_ms + n) for n, (key, value) in enumerate(items)
        ]
        data = build_batch(records, **options)  # type: ignore[arg-type]
        return lead(self.log, data, origin=OWN).base_offset

    def mark(self, commit: bool, producer_id: int, epoch: int = 0) -> int:
        data = build_marker(Marker(commit, 0), producer_id, epoch, self.clock.now_ms)
        return lead(self.log, data, origin=OWN).base_offset

    def all_committed(self) -> None:
        """Replicates everything; the last segment gets one more record, and stays active."""
        self.log.roll()
        lead(
            self.log,
            build_batch([Record(b"last", b"x", self.clock.now_ms)]),
            origin=OWN,
        )
        self.log.update_high_watermark(self.log.log_end_offset)

    async def clean(self) -> bool:
        return await self.cleaner.clean_next()

    def records(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """(offset, key, value) of all records, markers left out."""
        return list(records_in(self.log))


def records_in(log: Log) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    for segment in log.segments:
        data = segment.file.read(0, segment.size)
        for header in batches(data):
            assert check_crc(data, header)
            if not header.is_control:
                for record in records_of_batch(data, header):
                    yield record.offset, record.key, record.value


@pytest.fixture
def cleaned(tmp_path: Path) -> Cleaned:
    return Cleaned(str(tmp_path))


async def test_the_last_record_of_each_key_stays_with_its_offset(cleaned: Cleaned) -> None:
    for n in range(40):
        cleaned.add([(b"k%d" % (n % 4), b"v%d" % n), (b"only-%d" % n, b"x" * 20)])
    cleaned.all_committed()
    before = cleaned.records()
    assert await cleaned.clean()
    expected = [r for r in before if r[1] not in (b"k0", b"k1", b"k2", b"k3")]
    expected += [r for r in before if r[2] in (b"v36", b"v37", b"v38", b"v39")]
    assert cleaned.records() == sorted(expected)
    check_indexes(cleaned.log)
    assert cleaned.logs.cleaned_to(cleaned.log) == cleaned.log.segments[-1].base_offset
    assert not await cleaned.clean(), "nothing is dirty any more"


async def test_small_segments_become_one(cleaned: Cleaned) -> None:
    for _ in range(40):
        cleaned.add([(b"same", b"x" * 50)])
    cleaned.all_committed()
    assert len(cleaned.log.segments) > 5
    await cleaned.clean()
    before = len(cleaned.log.segments)
    cleaned.add([(b"same", b"y")])
    cleaned.all_committed()
    await cleaned.clean()
    assert len(cleaned.log.segments) < before
    assert [value for _, key, value in cleaned.records() if key == b"same"] == [b"y"]


async def test_the_last_batch_stays_while_the_active_segment_is_empty(cleaned: Cleaned) -> None:
    """A copy of the log could not reach its end otherwise."""
    cleaned.add([(b"k", b"v")])
    cleaned.add([(None, b"no key")])
    cleaned.log.roll()
    cleaned.log.update_high_watermark(cleaned.log.log_end_offset)
    await cleaned.clean()
    assert [value for _, _, value in cleaned.records()] == [b"v"]
    last = headers_of(cleaned.log)[-1]
    assert (last.base_offset, last.last_offset, last.record_count) == (1, 1, 0)
    assert cleaned.log.read(1, 1 << 20, cleaned.log.log_end_offset)
    cleaned.add([(b"later", b"w")])
    cleaned.all_committed()
    await cleaned.clean()
    assert [h.base_offset for h in headers_of(cleaned.log)] == [0, 2, 3]


async def test_records_without_a_key_go(cleaned: Cleaned) -> None:
    cleaned.add([(None, b"no key"), (b"k", b"v")])
    cleaned.all_committed()
    await cleaned.clean()
    assert [key for _, key, _ in cleaned.records()] == [b"k", b"last"]


async def test_a_batch_keeps_offsets_and_producer_when_it_loses_records(cleaned: Cleaned) -> None:
    cleaned.add(
        [(b"a", b"1"), (b"b", b"1"), (b"a", b"2")], producer_id=7, producer_epoch=3,
        base_sequence=5, compression=Compression.LZ4,
    )  # fmt: skip
    cleaned.add([(b"b", b"2")])
    cleaned.all_committed()
    await cleaned.clean()
    header = headers_of(cleaned.log)[0]
    assert (header.base_offset, header.last_offset, header.record_count) == (0, 2, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 5)
    assert header.compression == Compression.LZ4
    assert cleaned.records()[:2] == [(2, b"a", b"2"), (3, b"b", b"2")]


async def test_the_last_committed_batch_of_a_producer_stays_too(cleaned: Cleaned) -> None:
    """The one after it may be cut off, and its sequence would not be found then."""
    cleaned.add([(b"k", b"1")], producer_id=7, producer_epoch=0, base_sequence=0)
    cleaned.add([(b"k", b"2")])
    cleaned.all_committed()
    committed = cleaned.log.log_end_offset
    cleaned.add([(b"k", b"3")], producer_id=7, producer_epoch=0, base_sequence=1)
    assert await cleaned.clean()
    cleaned.log.truncate_to(committed)
    assert [h.base_sequence for h in headers_of(cleaned.log) if h.producer_id == 7] == [0]


async def test_the_last_batch_of_a_producer_stays_empty_for_its_sequence(cleaned: Cleaned) -> None:
    for n in range(3):
        cleaned.add([(b"k", b"%d" % n)], producer_id=7, producer_epoch=0, base_sequence=n)
    cleaned.add([(b"k", b"other")])
    cleaned.all_committed()
    await cleaned.clean()
    mine = [h for h in headers_of(cleaned.log) if h.producer_id == 7]
    assert [(h.base_offset, h.last_sequence, h.record_count) for h in mine] == [(2, 2, 0)]
    reopened = Cleaned(cleaned.log.dir.rpartition("/")[0])
    entry = reopened.log.producers.get(7)
    assert entry is not None
    assert entry.last_sequence == 2


async def test_a_tombstone_stays_until_its_horizon(cleaned: Cleaned) -> None:
    cleaned.add([(b"gone", b"v"), (b"there", b"v")])
    tombstone = cleaned.add([(b"gone", None)])
    cleaned.all_committed()
    await cleaned.clean()
    assert cleaned.records()[:2] == [(1, b"there", b"v"), (tombstone, b"gone", None)]
    header = next(h for h in headers_of(cleaned.log) if h.base_offset == tombstone)
    assert header.attributes & DELETE_HORIZON
    assert header.base_timestamp == START_MS + 1000
    data = cleaned.log.segments[0].file.read(header.position, header.size)
    (record,) = records_of_batch(data, header, header.position)
    assert record.timestamp == START_MS

    async def again(now_ms: int) -> list[bytes | None]:
        cleaned.clock.now_ms = now_ms
        cleaned.add([(b"more", b"v")])
        cleaned.all_committed()
        assert await cleaned.clean()
        return [key for _, key, _ in cleaned.records()]

    assert b"gone" in await again(START_MS + 999)
    cleaned.whole = False
    assert b"gone" in await again(START_MS + 1000), "a replica is away, and must hear of it"
    cleaned.whole = True
    assert b"gone" not in await again(START_MS + 1000)


async def test_aborted_records_go_at_once_and_their_marker_later(cleaned: Cleaned) -> None:
    options = {"producer_id": 1, "producer_epoch": 0, "attributes": TRANSACTIONAL}
    cleaned.add([(b"k", b"committed")], base_sequence=0, **options)
    cleaned.mark(True, 1)
    cleaned.add([(b"k", b"aborted"), (b"j", b"aborted")], base_sequence=1, **options)
    cleaned.mark(False, 1)
    cleaned.add([(b"z", b"1")], base_sequence=3, **options)
    cleaned.mark(True, 1)
    cleaned.all_committed()
    assert [len(s.txn_index) for s in cleaned.log.segments] == [1, 0]
    await cleaned.clean()
    assert [value for _, _, value in cleaned.records()] == [b"committed", b"1", b"x"]
    markers = [h.base_offset for h in headers_of(cleaned.log) if h.is_control]
    assert markers == [1, 4, 6], "the aborted batch was met in this pass"
    assert len(cleaned.log.segments[0].txn_index) == 1

    cleaned.add([(b"more", b"v")])
    cleaned.all_committed()
    await cleaned.clean()  # meets no batch of the aborted one: its marker gets a horizon
    assert not any(len(s.txn_index) for s in cleaned.log.segments)
    horizons = [h.attributes & DELETE_HORIZON for h in headers_of(cleaned.log) if h.is_control]
    assert horizons == [0, DELETE_HORIZON, 0]
    cleaned.clock.now_ms += 1000
    for cleaned.whole, left in ((False, [1, 4, 6]), (True, [1, 6])):
        cleaned.add([(b"more", b"w")])
        cleaned.all_committed()
        await cleaned.clean()
        markers = [h.base_offset for h in headers_of(cleaned.log) if h.is_control]
        assert markers == left


async def test_nothing_at_or_above_the_last_stable_offset_is_cleaned(cleaned: Cleaned) -> None:
    cleaned.add([(b"k", b"1")])
    cleaned.log.roll()
    cleaned.add(
        [(b"k", b"2")], producer_id=1, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL
    )
    cleaned.all_committed()
    assert inspect(cleaned.log, None, START_MS).end == 1
    await cleaned.clean()
    assert [value for _, _, value in cleaned.records()] == [b"1", b"2", b"x"]


async def test_min_compaction_lag(cleaned: Cleaned) -> None:
    cleaned.log.config = replace(COMPACT, min_compaction_lag_ms=5000)
    cleaned.add([(b"k", b"1")])
    cleaned.log.roll()
    cleaned.clock.now_ms += 1000
    cleaned.add([(b"k", b"2")])
    cleaned.all_committed()
    assert not await cleaned.clean()
    cleaned.clock.now_ms = START_MS + 5001
    assert inspect(cleaned.log, None, cleaned.clock.now_ms).end == 1
    cleaned.clock.now_ms = START_MS + 6000
    assert inspect(cleaned.log, None, cleaned.clock.now_ms).end == 2


async def test_max_compaction_lag_beats_the_dirty_ratio(cleaned: Cleaned) -> None:
    cleaned.log.config = replace(
        COMPACT, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=10_000
    )
    cleaned.add([(b"k", b"1"), (b"k", b"2")])
    cleaned.all_committed()
    assert not await cleaned.clean()
    cleaned.clock.now_ms += 10_002
    assert await cleaned.clean()
    assert cleaned.log.config.roll_ms == 10_000


async def test_the_dirty_ratio_decides(cleaned: Cleaned) -> None:
    cleaned.log.config = replace(COMPACT, min_cleanable_dirty_ratio=0.5)
    for n in range(20):
        cleaned.add([(b"k%d" % n, b"v" * 30)])
    cleaned.all_committed()
    assert await cleaned.clean()
    cleaned.add([(b"k1", b"w")])
    cleaned.all_committed()
    assert not await cleaned.clean()
    for n in range(30):
        cleaned.add([(b"k%d" % n, b"w" * 30)])
    cleaned.all_committed()
    assert await cleaned.clean()


async def test_a_small_buffer_takes_several_rounds(tmp_path: Path) -> None:
    small = Cleaned(str(tmp_path), log_cleaner_dedupe_buffer_size=4 * ENTRY_BYTES)
    large = Cleaned(str(tmp_path / "other"))
    for one in (small, large):
        for n in range(60):
            one.add([(b"k%d" % (n * 7 % 11), b"v%d" % n)])
        one.all_committed()
    rounds = 0
    while await small.clean():
        rounds += 1
        assert small.cleaner.last[0].buffer_utilization <= 1
    await large.clean()
    assert rounds > 5
    assert small.records() == large.records()


def test_the_map_stops_where_it_is_full() -> None:
    offsets = OffsetMap(2, 0)
    data = build_batch([Record(key, b"v", 0) for key in (b"a", b"b", b"c", b"d")])
    (header,) = batches(data)
    assert not offsets.load(bytes(data[61:]), header)
    assert (len(offsets), offsets.latest) == (2, 1)


async def test_a_damaged_batch_makes_the_log_uncleanable(cleaned: Cleaned) -> None:
    cleaned.add([(b"k", b"1"), (b"k", b"2")])
    cleaned.all_committed()
    file = cleaned.log.segments[0].file
    file.write_at(file.size - 2, b"\xff")
    before = file.read(0, file.size)
    assert not await cleaned.clean()
    assert "CRC" in cleaned.cleaner.uncleanable[TP]
    assert cleaned.cleaner.uncleanable_bytes(cleaned.logs.dir_of(cleaned.log)) == len(before)
    assert cleaned.log.segments[0].file.read(0, file.size) == before
    assert not cleaned.failures
    cleaned.logs.delete(TP)
    assert not await cleaned.clean()
    assert not cleaned.cleaner.uncleanable


async def test_the_metrics_page_tells(cleaned: Cleaned) -> None:
    metrics = Registry()
    folder = cleaned.logs.dir_of(cleaned.log)
    register_cleaner_metrics(metrics, cleaned.cleaner, (folder,), cleaned.clock)
    for n in range(10):
        cleaned.add([(b"k", b"%d" % n)])
    cleaned.all_committed()
    await cleaned.clean()
    cleaned.cleaner.uncleanable[TP] = "tested"
    cleaned.clock.now_ms += 1500
    page = exposition(metrics.families(0))
    assert "kafka_log_logcleanermanager_max_dirty_percent 100" in page
    assert "kafka_log_logcleanermanager_time_since_last_run_ms 1500" in page
    assert f'uncleanable_partitions_count{{logDirectory="{folder}"}} 1' in page
    assert "kafka_log_logcleaner_cleaner_recopy_percent 10" in page


async def test_a_log_cut_meanwhile_is_not_touched(cleaned: Cleaned) -> None:
    cleaned.add([(b"k", b"1"), (b"k", b"2")])
    cleaned.all_committed()
    candidate = inspect(cleaned.log, None, START_MS)
    run = cleaned.disk.run

    async def cut_and_run(work):  # type: ignore[no-untyped-def]
        result = await run(work)
        if cleaned.log.log_end_offset > 2:
            cleaned.log.truncate_to(2)
        return result

    cleaned.disk.run = cut_and_run  # type: ignore[method-assign]
    assert not await cleaned.cleaner.clean(candidate)
    assert [offset for offset, _, _ in cleaned.records()] == [0, 1]
    assert not [name for name in cleaned.disk.list(cleaned.log.dir) if name.endswith(".cleaned")]


@pytest.mark.thorough
async def test_a_large_log_is_cleaned_by_another_process(cleaned: Cleaned) -> None:
    cleaned.log.config = replace(COMPACT, segment_bytes=100_000)
    for n in range(60):
        cleaned.add([(b"key-%06d" % (n * i % 700), b"v" * 100) for i in range(100)])
    cleaned.all_committed()
    last = {key: offset for offset, key, _ in cleaned.records()}
    assert await cleaned.clean()
    assert cleaned.cleaner.last[0].bytes_read > 256 << 10
    assert [offset for offset, _, _ in cleaned.records()] == sorted(last.values())


@pytest.mark.thorough
async def test_another_process_tells_of_a_damaged_batch(cleaned: Cleaned) -> None:
    cleaned.log.config = replace(COMPACT, segment_bytes=1_000_000)
    for _ in range(30):
        cleaned.add([(b"key-%d" % n, b"v" * 100) for n in range(100)])
    cleaned.all_committed()
    file = cleaned.log.segments[0].file
    file.write_at(file.size - 2, b"\xff")
    assert not await cleaned.clean()
    assert "CRC" in cleaned.cleaner.uncleanable[TP]


def at_work() -> list[psutil.Process]:
    """The cleaner's processes; the test runner may have others."""
    return [c for c in psutil.Process().children() if "world.real.apart" in " ".join(c.cmdline())]


@pytest.mark.thorough
async def test_a_process_that_is_killed_is_no_fault_of_the_log(cleaned: Cleaned) -> None:
    cleaned.log.config = replace(COMPACT, segment_bytes=1_000_000)
    for _ in range(60):
        cleaned.add([(b"key-%d" % n, b"v" * 100) for n in range(100)])
    cleaned.all_committed()
    # slow enough to be seen at work
    cleaned.cleaner._config = replace(cleaned.config, log_cleaner_io_max_bytes_per_second=1e5)
    before = cleaned.records()

    async with trio.open_nursery() as nursery:

        async def kill() -> None:
            with trio.fail_after(20):
                while not (found := at_work()):
                    await trio.sleep(0.01)
            found[0].kill()

        nursery.start_soon(kill)
        assert not await cleaned.clean()
    assert not cleaned.cleaner.uncleanable
    assert not cleaned.failures
    assert cleaned.records() == before
    cleaned.cleaner._config = cleaned.config
    assert await cleaned.clean()


async def test_a_read_goes_over_what_compaction_removed(cleaned: Cleaned) -> None:
    for _ in range(30):
        cleaned.add([(b"k", b"x" * 40)])
    cleaned.all_committed()
    await cleaned.clean()
    end = cleaned.log.log_end_offset
    for offset in range(end):
        found = cleaned.log.read(offset, 1 << 20, end)
        assert found.size, f"offset {offset} finds the next batch"
        (header, *_) = batches(found.file.read(found.position, found.size))
        assert header.last_offset >= offset


ITEMS = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c", b"d" * 30, None]), st.sampled_from([b"v", None])),
    min_size=1,
    max_size=5,
)


@pytest.mark.thorough
@given(
    rounds=st.lists(st.lists(ITEMS, min_size=1, max_size=12), min_size=1, max_size=3),
    codec=st.sampled_from([Compression.NONE, Compression.ZSTD]),
    buffer=st.integers(1, 6),
)
@settings(max_examples=60, deadline=None)
def test_below_the_clean_point_each_key_has_its_last_record(
    rounds: list[list[list[Item]]], codec: Compression, buffer: int
) -> None:
    """Above it everything is unchanged; a tombstone may go or stay."""
    with tempfile.TemporaryDirectory() as folder:
        cleaned = Cleaned(folder, log_cleaner_dedupe_buffer_size=buffer * ENTRY_BYTES * 2)
        written: list[tuple[int, bytes | None, bytes | None]] = []
        for items in rounds:
            for batch in items:
                base = cleaned.add(batch, compression=codec)
                written += [(base + n, *item) for n, item in enumerate(batch)]
            cleaned.all_committed()
            written.append((cleaned.log.log_end_offset - 1, b"last", b"x"))
            trio.run(cleaned.clean)
            point = cleaned.logs.cleaned_to(cleaned.log) or 0
            last = {key: offset for offset, key, _ in written if offset < point}
            must: list[Kept] = []
            may: list[Kept] = []
            for record in written:
                offset, key, value = record
                if offset >= point or (key is not None and last[key] == offset):
                    (may if value is None else must).append(record)
            found = cleaned.records()
            assert [r for r in found if r[2] is not None] == must
            assert not [r for r in found if r[2] is None and r not in may]
            check_indexes(cleaned.log)
