"""Arguments and results of a log: the small types around `Log`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from highwater.kafka.wire.records import (
    BatchHeader,
    set_base_offset_and_epoch,
    set_max_timestamp,
)
from highwater.world.api import Buffer, File

if TYPE_CHECKING:
    from highwater.broker.log.log import Log


class Origin(Enum):
    """Who made an append's batches, and so how far they are trusted (Kafka's AppendOrigin).

    CLIENT: nothing is trusted; format, CRC, epochs and sequences are checked, duplicates found.
    COORDINATOR: made by this broker (markers, offsets, transactions), without sequence numbers.
    REPLICATION: from the partition's leader, with offsets; the leader has checked the batches, and
    they are not refused here.
    """

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class AppendInfo(NamedTuple):
    """The result of an append."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 unless the topic has LogAppendTime."""
    log_start_offset: int
    duplicate: bool = False
    """A producer's retry: nothing was written, and the offsets are those of the first append."""


class LogSlice(NamedTuple):
    """Whole batches in a file, to be sent from there."""

    file: File
    position: int
    size: int
    base_offset: int
    """The offset requested (the first batch may begin before it)."""
    next_offset: int
    available: int = 0
    """Bytes from `position` to the limit, or to the segment's end if that comes first."""
    segment: int = 0
    """Base offset of the segment that holds the requested offset."""
    limit_segment: int = 0
    """Base offset of the segment in which the limit lies."""


class UnexpectedOffsetError(Exception):
    """Raised when a follower is given batches below its log end offset."""

    def __init__(self, first_offset: int, log_end_offset: int) -> None:
        super().__init__(f"a batch at offset {first_offset} does not follow {log_end_offset}")
        self.first_offset = first_offset
        self.log_end_offset = log_end_offset


class LogHooks(Protocol):
    """The calls that a log makes to its owner."""

    def before_truncation(self, log: Log, offset: int) -> None:
        """Called before offsets from here on are cut: no checkpoint file may name a higher one."""

    def discard(self, log: Log, files: Sequence[File], paths: Sequence[str]) -> None:
        """Closes and deletes these after file.delete.delay.ms: readers may still send from them."""

    def rolled(self, log: Log) -> None:
        """Called when a segment has become inactive, and should be flushed."""

    def start_moved(self, log: Log) -> None:
        """Called when the log start offset has risen."""

    def jitter_ms(self, limit: int) -> int:
        """A random time from 0 to below the limit; the next segment is rolled earlier by it."""


class NoHooks:
    """The hooks of a log without a manager."""

    def before_truncation(self, log: Log, offset: int) -> None: ...

    def discard(self, log: Log, files: Sequence[File], paths: Sequence[str]) -> None:
        for file in files:
            file.close()
        for path in paths:
            log.disk.remove(path)

    def rolled(self, log: Log) -> None: ...

    def start_moved(self, log: Log) -> None: ...

    def jitter_ms(self, limit: int) -> int:
        return 0


def part_of(view: Buffer, headers: Sequence[BatchHeader]) -> Buffer:
    """The bytes of these batches, which stand one after the other."""
    start, end = headers[0].position, headers[-1].position + headers[-1].size
    if start == 0 and end == len(view):
        return view
    return memoryview(view)[start:end]


def assign_offsets(
    view: memoryview | bytearray,
    headers: Sequence[BatchHeader],
    offset: int,
    leader_epoch: int,
    append_time: int,
) -> tuple[int, int]:
    """Sets the batches' offsets in place; returns the next offset and the largest timestamp.

    `append_time` is -1 unless the topic has LogAppendTime.
    """
    largest = -1
    for header in headers:
        if append_time >= 0:
            set_max_timestamp(view, header, append_time, append_time=True)
        set_base_offset_and_epoch(view, header, offset, leader_epoch)
        offset += header.last_offset_delta + 1
        if header.max_timestamp > largest:
            largest = header.max_timestamp
    return offset, largest


def split_by_segment(
    headers: Sequence[BatchHeader], used: int, room: int
) -> list[Sequence[BatchHeader]]:
    """Splits batches into runs that each go into one segment: mostly there is one run.

    The active segment holds `used` bytes of `room`; a batch larger than that gets one of its own.
    """
    size = headers[-1].position + headers[-1].size - headers[0].position
    if used + size <= room:
        return [headers]
    runs: list[Sequence[BatchHeader]] = []
    run: list[BatchHeader] = []
    for header in headers:
        if used + header.size > room:
            if run:
                runs.append(run)
            run, used = [], 0
        run.append(header)
        used += header.size
    runs.append(run)
    return runs
