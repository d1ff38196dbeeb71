"""A Fetch answer as a consumer reads it: the visible records, and the next position.

A broker sends whole batches, so the first may begin before the offset that was asked for, and the
last may be cut.  Control batches are skipped but count as positions.  Under read_committed the
answer lists the aborted transactions of its range (producer id and first offset), and the consumer
leaves out their records: from that offset on, until the producer's abort marker.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.records import (
    BatchHeader,
    add_to_sequence,
    batches,
    check_crc,
    marker_of,
    records_of_batch,
)


class ConsumedRecord(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    sequence: int


@dataclass(slots=True)
class PartitionFetch:
    """One partition of one answer."""

    tp: TopicPartition
    error: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    leader: int
    leader_epoch: int
    """The epoch that was sent; the broker would have refused another."""
    position: int
    """The position of the next fetch."""
    records: list[ConsumedRecord] = field(default_factory=list)


class CorruptBatch(Exception):
    """A batch whose CRC does not match."""


def visible(
    data: memoryview,
    position: int,
    aborted: Iterable[tuple[int, int]] | None,
    *,
    verify: bool = True,
) -> tuple[list[ConsumedRecord], int]:
    """The visible records from `position` on, and the position after all of them.

    `aborted` holds (producer id, first offset); None under read_uncommitted.
    """
    found: list[ConsumedRecord] = []
    coming = sorted(aborted or (), key=lambda entry: entry[1])
    open_: set[int] = set()
    for header in batches(data):
        if header.last_offset < position:
            continue
        if verify and not check_crc(data, header):
            raise CorruptBatch(f"the batch at offset {header.base_offset} fails its CRC")
        while coming and coming[0][1] <= header.last_offset:
            open_.add(coming.pop(0)[0])
        if header.is_control:
            marker = marker_of(data, header)
            if marker is not None and not marker.commit:
                open_.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_):
            found += _records(data, header, position)
        position = header.last_offset + 1
    return found, position


def _records(data: memoryview, header: BatchHeader, position: int) -> Iterable[ConsumedRecord]:
    for record in records_of_batch(data, header):
        if record.offset >= position:
            delta = record.offset - header.base_offset
            sequence = header.base_sequence
            yield ConsumedRecord(
                record.offset,
                record.key,
                record.value,
                record.timestamp,
                record.headers,
                header.partition_leader_epoch,
                header.producer_id,
                header.producer_epoch,
                add_to_sequence(sequence, delta) if sequence >= 0 else -1,
            )
