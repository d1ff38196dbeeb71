"""Finds an offset by timestamp (ListOffsets): time index, offset index, batch headers, one batch.

Only the batch that must hold the record is decompressed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from highwater.broker.log.segment import Segment
from highwater.kafka.wire.records import BatchHeader, Record, records_of_batch

Found = tuple[int, int, int]
"""Timestamp, offset, leader epoch (-1: unknown)."""


def _records(segment: Segment, header: BatchHeader) -> Iterator[Record]:
    data = segment.file.read(header.position, header.size)
    return records_of_batch(data, header, header.position)


def find_timestamp(segments: Sequence[Segment], timestamp: int, start_offset: int) -> Found | None:
    """The first record at or after `start_offset` whose timestamp is at least `timestamp`."""
    for segment in segments:
        if segment.size and segment.largest_timestamp >= timestamp:
            found = _find_in_segment(segment, timestamp, start_offset)
            if found is not None:
                return found
    return None


def _find_in_segment(segment: Segment, timestamp: int, start_offset: int) -> Found | None:
    relative = max(segment.time_index.lookup(timestamp), start_offset - segment.base_offset)
    for header in segment.walk(segment.offset_index.lookup(relative)):
        if header.max_timestamp < timestamp or header.last_offset < start_offset:
            continue
        for record in _records(segment, header):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return record.timestamp, record.offset, header.partition_leader_epoch
    return None


def find_max_timestamp(segments: Sequence[Segment]) -> Found | None:
    """The first record with the largest timestamp of all."""
    latest: Segment | None = None
    for segment in segments:
        if segment.size and (latest is None or segment.max_timestamp > latest.max_timestamp):
            latest = segment
    if latest is None or latest.max_timestamp < 0:
        return None
    timestamp = latest.max_timestamp
    for header in latest.walk(latest.locate(latest.max_timestamp_offset)):
        if header.max_timestamp == timestamp:
            for record in _records(latest, header):
                if record.timestamp == timestamp:
                    return timestamp, record.offset, header.partition_leader_epoch
    return None
