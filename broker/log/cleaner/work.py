"""The heavy part of a cleaning: two passes over the files of a log, in steps.

1. The first pass reads the keys of the dirty section (`OffsetMap`), from the first dirty offset to
   the first that must not be cleaned.  If the map is full before, this cleaning ends there.
2. The second pass reads all segments up to there again, and rewrites them, several small ones into
   one where they fit.  Each such group gives one `.cleaned` file with its indexes.

Nothing here changes the log: the caller of a step flushes the files and swaps them in
(`replacement`) before the next step, so that no more than one group's copy takes up disk space.

A job is plain data, because on a real machine a separate process does the work (`Disk.apart`).
That process loads this module and its imports, and no other part of a broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from highwater.broker.log.cleaner.offset_map import OffsetMap
from highwater.broker.log.cleaner.record_filter import Filter, LastRecord
from highwater.broker.log.cleaner.transaction_filter import CleanedTransactions
from highwater.broker.log.segment import MAX_RELATIVE_OFFSET, SUFFIXES, Segment
from highwater.broker.log.txnindex import AbortedTransaction
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.wire.records import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    Buffer,
    check_crc,
    marker_of,
    parse_header,
    payload_of,
)
from highwater.world.api import Disk, File, Pace

CLEANED, SWAP = ".cleaned", ".swap"
SMALLEST_READ = 64 << 10


@dataclass(frozen=True, slots=True)
class Source:
    """One segment, as it was at the start of the cleaning."""

    base_offset: int
    path: str
    size: int
    next_base: int
    """The base offset of the segment after it."""
    index_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanJob:
    """All inputs of a cleaning."""

    folder: str
    sources: tuple[Source, ...]
    """All segments from the first to the last that may be cleaned."""
    first_dirty: int
    end: int
    """The first offset that must not be cleaned."""
    log_end: int
    map_capacity: int
    io_bytes: int
    now_ms: int
    delete_retention_ms: int
    all_in_sync: bool
    """Whether tombstones and markers may be removed after `delete_retention_ms`."""
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    producers: dict[int, LastRecord] = field(default_factory=dict)
    aborted: tuple[AbortedTransaction, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """The first step: how far this cleaning goes."""

    end_offset: int
    """The first offset that it does not clean."""
    keys: int
    utilization: float
    bytes_read: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Each further step: old segments, and the one that will replace them."""

    base_offset: int
    """The base offset of the new segment and of the first old one."""
    replaced: tuple[int, ...]
    """Base offsets of the old segments."""
    suffixes: tuple[str, ...]
    """The suffixes of its files; CLEANED follows each."""
    bytes_read: int
    bytes_written: int
    records_read: int
    records_written: int


def clean_log(disk: Disk, job: CleanJob, pace: Pace) -> Iterator[Mapped | Group]:
    """The steps of a cleaning.  Raises ApiError(CORRUPT_MESSAGE) and OSError."""
    offsets = OffsetMap(job.map_capacity, job.first_dirty)
    read = _map_keys(disk, job, offsets, pace)
    end = offsets.latest + 1
    yield Mapped(
        end_offset=end,
        keys=len(offsets),
        utilization=offsets.utilization,
        bytes_read=read,
    )
    rule = Filter(
        offsets,
        CleanedTransactions(job.aborted),
        job.producers,
        job.now_ms,
        job.delete_retention_ms,
        job.all_in_sync,
        job.log_end,
    )
    sources = [source for source in job.sources if source.base_offset < end]
    for group in group_by_size(sources, job.segment_bytes, job.segment_index_bytes):
        yield _clean_group(disk, job, group, rule, pace)


def _map_keys(disk: Disk, job: CleanJob, offsets: OffsetMap, pace: Pace) -> int:
    transactions = CleanedTransactions(
        entry for entry in job.aborted if entry.last_offset >= job.first_dirty
    )
    read = 0
    for source in job.sources:
        if source.next_base <= job.first_dirty:
            continue
        file = disk.open(source.path)
        try:
            for header, view in read_batches(file, source.size, job.io_bytes, pace):
                read += header.size
                if header.last_offset < job.first_dirty:
                    continue
                if header.is_control:
                    transactions.control(header, marker_of(view, header, header.position))
                elif not transactions.batch(header) and header.record_count:
                    if not check_crc(view, header, header.position):
                        raise _corrupt(file, header.position, "a batch does not match its CRC")
                    if not offsets.load(payload_of(view, header, header.position), header):
                        return read
                offsets.reach(header.last_offset)
        finally:
            file.close()
        # compaction may have removed the last records of the segment
        offsets.reach(min(source.next_base, job.end) - 1)
    return read


def read_batches(
    file: File, size: int, io_bytes: int, pace: Pace
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches of a file's first `size` bytes, each with a view of its bytes."""
    position, chunk, start = 0, memoryview(b""), 0
    step = max(io_bytes, SMALLEST_READ)
    while position < size:
        at = position - start
        if at + HEADER_SIZE > len(chunk):
            chunk, start, at = _read(file, position, min(step, size - position), pace), position, 0
        if len(chunk) < HEADER_SIZE:
            raise _corrupt(file, position, "the segment ends within a batch")
        header = parse_header(chunk, at, start)
        if header.magic != MAGIC or header.size < HEADER_SIZE:
            raise _corrupt(file, position, "no record batch begins")
        if header.size > size - position:
            raise _corrupt(file, position, "the segment ends within a batch")
        if at + header.size > len(chunk):
            wanted = min(max(step, header.size), size - position)
            chunk, start, at = _read(file, position, wanted, pace), position, 0
            if len(chunk) < header.size:
                raise _corrupt(file, position, "the segment ends within a batch")
        yield header, chunk[at : at + header.size]
        position += header.size


def _read(file: File, position: int, n: int, pace: Pace) -> memoryview:
    data = file.read(position, n)
    pace(len(data))
    return memoryview(data)


def _corrupt(file: File, position: int, what: str) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"{file.path}: {what} at byte {position}")


def group_by_size(
    sources: Sequence[Source], segment_bytes: int, index_bytes: int
) -> Iterator[list[Source]]:
    """Groups neighbours that fit into one segment, by their sizes before the cleaning."""
    group: list[Source] = []
    size = indexes = 0
    for source in sources:
        if group and (
            size + source.size > segment_bytes
            or indexes + source.index_bytes > index_bytes
            or (source.size and source.next_base - 1 - group[0].base_offset > MAX_RELATIVE_OFFSET)
        ):
            yield group
            group, size, indexes = [], 0, 0
        group.append(source)
        size += source.size
        indexes += source.index_bytes
    if group:
        yield group


def _clean_group(
    disk: Disk, job: CleanJob, group: Sequence[Source], rule: Filter, pace: Pace
) -> Group:
    base = group[0].base_offset
    target = _Target(disk, job, base, pace)
    read = records = 0
    try:
        for source in group:
            file = disk.open(source.path)
            try:
                for header, view in read_batches(file, source.size, job.io_bytes, pace):
                    read += header.size
                    records += header.record_count
                    kept = rule.clean(view, header)
                    if kept is not None:
                        target.append(kept)
            finally:
                file.close()
        suffixes = target.finish(rule.transactions.take_retained())
    finally:
        target.close()
    return Group(
        base_offset=base,
        replaced=tuple(source.base_offset for source in group),
        suffixes=suffixes,
        bytes_read=read,
        bytes_written=target.segment.size,
        records_read=records,
        records_written=target.records,
    )


class _Target:
    """A new segment: waiting batches are written together, at the cleaner's pace."""

    def __init__(self, disk: Disk, job: CleanJob, base_offset: int, pace: Pace) -> None:
        self.segment = Segment(
            disk,
            job.folder,
            base_offset,
            job.now_ms,
            job.index_interval_bytes,
            create=True,
            suffix=CLEANED,
        )
        self.records = 0
        self._io_bytes = max(job.io_bytes, SMALLEST_READ)
        self._pace = pace
        self._waiting: list[tuple[Buffer, BatchHeader]] = []
        self._waiting_bytes = 0

    def append(self, batch: Buffer) -> None:
        header = parse_header(batch)
        path = self.segment.file.path
        if header.last_offset - self.segment.base_offset > MAX_RELATIVE_OFFSET:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{path} spans too many offsets")
        self.records += header.record_count
        self._waiting.append((batch, header))
        self._waiting_bytes += header.size
        if self._waiting_bytes >= self._io_bytes:
            self._write()

    def _write(self) -> None:
        if self._waiting:
            batches, headers = zip(*self._waiting, strict=True)
            self.segment.append(b"".join(batches), headers, None)
            self._pace(self._waiting_bytes)
            self._waiting, self._waiting_bytes = [], 0

    def finish(self, aborted: Sequence[AbortedTransaction]) -> tuple[str, ...]:
        """Writes the rest and the indexes; returns the suffixes of the files."""
        self._write()
        for entry in aborted:
            self.segment.txn_index.append(entry)
        self.segment.write_indexes(final=True)
        return SUFFIXES if aborted else SUFFIXES[:-1]

    def close(self) -> None:
        self.segment.close()
