"""One batch in the cleaner: dropped, kept as it is, or rewritten with fewer records.

A record stays if no later one has its key; a record without a key does not stay in a compacted log.
A tombstone (a key without a value) stays for delete.retention.ms after the first cleaning that met
it, so that a reader that began before sees the deletion, and until all replicas are in the ISR.
The end of that time, the *delete horizon*, takes the place of the batch's base timestamp, and a bit
in its attributes says so (KIP-534).

The identity of a batch does not change: base offset, last offset, producer, epoch and sequence stay
the same, however many records are left.  Some batches stay even without a record.  One is the last
batch of each producer that the log remembers: its sequence number must be found when the log is
read again.  One is that producer's last batch below the high watermark, as a cut may take those
above.  One is the last batch of the log while the active segment is empty (after a cut, say): a
copy of the log, in a follower or in another directory, could not reach its end otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from highwater.broker.log.cleaner.compacted_records import (
    Scanned,
    key_id,
    scan,
    with_timestamp_delta,
)
from highwater.broker.log.cleaner.offset_map import OffsetMap
from highwater.broker.log.cleaner.transaction_filter import CleanedTransactions
from highwater.broker.log.producer_entry import ProducerEntry
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.wire.compression import Compression, compress
from highwater.kafka.wire.records import (
    CONTROL,
    CRC_START,
    DELETE_HORIZON,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    check_crc,
    crc32c,
    marker_of,
    payload_of,
)

_LENGTH = Struct(">i")
_CRC_AND_ATTRIBUTES = Struct(">Ih")
_TIMES = Struct(">qq")
_COUNT = Struct(">i")
_CRC_AT, _TIMES_AT, _COUNT_AT = 17, 27, 57


class LastRecord(NamedTuple):
    """The batches that must stay for a producer that the log still remembers."""

    last_offset: int
    """The end of its last batch of data; -1 if only a marker of it is known."""
    epoch: int
    committed: int = -1
    """The end of its last batch of data below the high watermark, as far as that is remembered."""
    unsure: bool = False
    """Whether a cut may take all its remembered batches; its last one is then not known."""


def last_record(entry: ProducerEntry, high_watermark: int) -> LastRecord:
    """What must stay of a producer; Kafka keeps only the last batch, though a cut may take it."""
    ends = [batch.last_offset for batch in entry.batches]
    committed = max((end for end in ends if end < high_watermark), default=-1)
    unsure = committed < 0 and entry.last_offset >= high_watermark
    return LastRecord(ends[-1] if ends else -1, entry.epoch, committed, unsure)


@dataclass(slots=True)
class Filter:
    """Decides about batches in one cleaning of one log."""

    offsets: OffsetMap
    transactions: CleanedTransactions
    producers: Mapping[int, LastRecord]
    now_ms: int
    delete_retention_ms: int
    all_in_sync: bool
    log_end: int
    """The log's end: the batch that ends just below it stays."""

    def clean(self, view: Buffer, header: BatchHeader) -> Buffer | None:
        """The batch for the cleaned segment; None drops it.

        `view` holds this batch alone.  Raises ApiError(CORRUPT_MESSAGE).
        """
        control = bool(header.attributes & CONTROL)
        if control:
            marker = marker_of(view, header, header.position)
            discard = unneeded = self.transactions.control(header, marker)
            discard = discard and self._expired(header)
        else:
            discard, unneeded = self.transactions.batch(header), False
        if discard or not header.record_count:
            return self._emptied(view, header)
        if not control and self.offsets.all_superseded(header):
            return self._emptied(view, header)
        _check(view, header)
        payload = payload_of(view, header, header.position)
        kept = list(scan(payload, header.record_count))
        if not control:
            kept = [record for record in kept if self._stays(header, record)]
            if not kept:
                return self._emptied(view, header)
        if horizon_of(header) is None and (unneeded or any(r.tombstone for r in kept)):
            return rebuild(view, header, payload, kept, self.now_ms + self.delete_retention_ms)
        if len(kept) == header.record_count:
            return view
        return rebuild(view, header, payload, kept)

    def _stays(self, header: BatchHeader, record: Scanned) -> bool:
        offset = header.base_offset + record.offset_delta
        if offset > self.offsets.latest:
            return True
        if record.key is None or offset < self.offsets.get(key_id(record.key)):
            return False
        if not record.tombstone:
            return True
        return not self._expired(header)

    def _expired(self, header: BatchHeader) -> bool:
        """Whether tombstones (or the marker) of this batch may be removed now."""
        horizon = horizon_of(header)
        return horizon is not None and horizon <= self.now_ms and self.all_in_sync

    def _emptied(self, view: Buffer, header: BatchHeader) -> Buffer | None:
        """An empty batch, if it is the last one of its producer or of the log."""
        if header.last_offset + 1 == self.log_end:
            return empty_batch(view, header)
        if header.producer_id < 0:
            return None
        last = self.producers.get(header.producer_id)
        if last is None:
            return None
        if last.unsure:
            needed = True  # until a later cleaning
        elif last.last_offset >= 0:
            needed = header.last_offset in (last.last_offset, last.committed)
        else:
            needed = header.is_control and header.producer_epoch == last.epoch
        return empty_batch(view, header) if needed else None


def horizon_of(header: BatchHeader) -> int | None:
    """The time after which tombstones (or the marker) of this batch may be removed."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON else None


def _check(view: Buffer, header: BatchHeader) -> None:
    """Checks a batch first: its new CRC must not make a damaged batch valid."""
    if not check_crc(view, header, header.position):
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch at offset {header.base_offset} does not match its CRC",
        )


def rebuild(
    view: Buffer,
    header: BatchHeader,
    payload: bytes,
    kept: list[Scanned],
    horizon_ms: int | None = None,
) -> bytearray:
    """The batch with only these records; `horizon_ms`, if given, becomes its base timestamp."""
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if horizon_ms is None:
        records = b"".join([payload[record.start : record.end] for record in kept])
    else:
        shift = base_timestamp - horizon_ms
        records = b"".join(
            [with_timestamp_delta(payload, r, r.timestamp_delta + shift) for r in kept]
        )
        attributes |= DELETE_HORIZON
    largest = header.max_timestamp
    if not attributes & LOG_APPEND_TIME:
        largest = base_timestamp + max(record.timestamp_delta for record in kept)
    if horizon_ms is not None:
        base_timestamp = horizon_ms
    batch = bytearray(memoryview(view)[:HEADER_SIZE])
    batch += compress(Compression(header.compression), records)
    return _finish(batch, attributes, base_timestamp, largest, len(kept))


def empty_batch(view: Buffer, header: BatchHeader) -> bytearray:
    """A batch's header alone: offsets and producer, without a record."""
    batch = bytearray(memoryview(view)[:HEADER_SIZE])
    attributes = header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
    return _finish(batch, attributes, -1, header.max_timestamp, 0)


def _finish(
    batch: bytearray, attributes: int, base_timestamp: int, max_timestamp: int, count: int
) -> bytearray:
    _LENGTH.pack_into(batch, LENGTH_END - 4, len(batch) - LENGTH_END)
    _TIMES.pack_into(batch, _TIMES_AT, base_timestamp, max_timestamp)
    _COUNT.pack_into(batch, _COUNT_AT, count)
    _CRC_AND_ATTRIBUTES.pack_into(batch, _CRC_AT, 0, attributes)
    crc = crc32c(memoryview(batch)[CRC_START:])
    _CRC_AND_ATTRIBUTES.pack_into(batch, _CRC_AT, crc, attributes)
    return batch
