"""The state of one producer in one partition, and the file that keeps it.

A `.snapshot` holds the producers of a log at one offset, which is its name:

    version  int16 = 1
    crc      uint32, CRC-32C of everything after it
    count    int32
    entries  producerId int64, epoch int16, lastSequence int32, lastOffset int64, offsetDelta int32,
             timestamp int64, coordinatorEpoch int32, currentTxnFirstOffset int64 (-1: none)

An entry holds only the last batch: its last sequence and offset, and how far its first is below.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from highwater.kafka.wire.records import MAX_SEQUENCE, crc32c

NO_EPOCH = -1
VERSION = 1
_HEAD = Struct(">hIi")
_CRC_END = 6
_ENTRY = Struct(">qhiqiqiq")


class Batch(NamedTuple):
    """The remembered part of one append."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry(NamedTuple):
    """One producer id in one partition."""

    producer_id: int
    epoch: int = NO_EPOCH
    coordinator_epoch: int = -1
    last_timestamp: int = -1
    txn_first_offset: int = -1
    batches: tuple[Batch, ...] = ()
    last_offset: int = -1
    """The last offset that this id wrote, markers included (not in a snapshot)."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1


class CorruptSnapshotError(ValueError):
    """Raised for an unusable snapshot; the log is read instead."""


def encode_snapshot(entries: Sequence[ProducerEntry]) -> bytes:
    data = bytearray(_HEAD.size)
    for entry in entries:
        if entry.batches:
            batch = entry.batches[-1]
            last = batch.last_sequence, batch.last_offset, batch.last_offset - batch.first_offset
        else:
            last = -1, -1, 0
        data += _ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            *last,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.txn_first_offset,
        )
    _HEAD.pack_into(data, 0, VERSION, 0, len(entries))
    _HEAD.pack_into(data, 0, VERSION, crc32c(memoryview(data)[_CRC_END:]), len(entries))
    return bytes(data)


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """Raises CorruptSnapshotError."""
    if len(data) < _HEAD.size:
        raise CorruptSnapshotError(f"it has only {len(data)} bytes")
    version, crc, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshotError(f"version {version} is unknown")
    if crc32c(data[_CRC_END:]) != crc:
        raise CorruptSnapshotError("its CRC does not match")
    if len(data) != _HEAD.size + count * _ENTRY.size:
        raise CorruptSnapshotError(f"{count} entries do not make {len(data)} bytes")
    entries = []
    for fields in _ENTRY.iter_unpack(data[_HEAD.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn = fields
        batches: tuple[Batch, ...] = ()
        if offset >= 0:
            first = sequence - delta
            if first < 0 <= sequence:
                first += MAX_SEQUENCE + 1
            batches = (Batch(first, sequence, offset - delta, offset, timestamp),)
        entries.append(
            ProducerEntry(producer_id, epoch, coordinator_epoch, timestamp, txn, batches, offset)
        )
    return entries
