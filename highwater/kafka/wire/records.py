"""Record batches, magic v2: the unit in which records are sent, stored, replicated and fetched.

A batch is a header of 61 bytes and a payload, which the broker looks into before it appends a
client's batch (`broker/log/validation.py`), and never afterwards, but for compaction and searches
by time:

    baseOffset            int64    set by the leader, in place        } outside the CRC, so that
    batchLength           int32    the bytes that follow this field   } the leader can set them
    partitionLeaderEpoch  int32    set by the leader, in place        } without computing it
    magic                 int8     2                                  } again
    crc                   uint32   CRC-32C of everything after this field
    attributes            int16    0-2 codec, 3 timestamp type, 4 transactional, 5 control
    lastOffsetDelta       int32    the batch stands for baseOffset .. baseOffset + lastOffsetDelta
    baseTimestamp         int64
    maxTimestamp          int64
    producerId            int64    -1: not idempotent
    producerEpoch         int16
    baseSequence          int32
    recordCount           int32    fewer than lastOffsetDelta + 1 after compaction

So one `struct.unpack_from` gives all that produce, fetch, replication and recovery need, and the
bytes from the socket go to the disk and out again unchanged.  Offsets inside the payload are
deltas, so they need no patching.

The lower half of this module looks into payloads, for clients, tools and transaction markers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from fastcrc.crc32 import iscsi as _crc32c

from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.wire.compression import Compression, compress, decompress
from highwater.kafka.wire.record_codec import NO_TIMESTAMP as NO_TIMESTAMP
from highwater.kafka.wire.record_codec import Record as Record
from highwater.kafka.wire.record_codec import decode_records, encode_record

Buffer = bytes | bytearray | memoryview

HEADER_SIZE = 61
LENGTH_END = 12
"""batchLength counts the bytes after it: the whole batch is 12 bytes longer."""
CRC_AT = 17
CRC_START = 21
MAGIC_OFFSET = 16
MAGIC = 2

NO_SEQUENCE = -1
NO_PRODUCER_ID = -1
MAX_SEQUENCE = 2**31 - 1

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
"""The base timestamp is the time at which tombstones go (KIP-534)."""

_HEADER = Struct(">qiibIhiqqqhii")
_OFFSET = Struct(">q")
_EPOCH = Struct(">i")
_LENGTH = Struct(">qi")
_CRC_AND_ATTRIBUTES = Struct(">Ih")
_unpack = _HEADER.unpack_from
_new = tuple.__new__


class BatchHeader(NamedTuple):
    """The header of one batch; `position` is its start in the buffer (or file) that it was read
    from.
    """

    position: int
    size: int
    base_offset: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        return add_to_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int:
        """0 CreateTime, 1 LogAppendTime."""
        return (self.attributes & LOG_APPEND_TIME) >> 3


def add_to_sequence(sequence: int, delta: int) -> int:
    """Adds to a sequence number; 0 comes after 2^31-1."""
    total = sequence + delta
    return total if total <= MAX_SEQUENCE else total - MAX_SEQUENCE - 1


def parse_header(view: Buffer, position: int = 0, base: int = 0) -> BatchHeader:
    """The header at `position`, which the caller knows to be whole; `base` is added to the position
    it reports.
    """
    offset, length, epoch, magic, crc, attributes, delta, t0, t1, pid, pepoch, seq, count = _unpack(
        view, position
    )
    return _new(
        BatchHeader,
        (
            base + position,
            length + LENGTH_END,
            offset,
            epoch,
            magic,
            crc,
            attributes,
            delta,
            t0,
            t1,
            pid,
            pepoch,
            seq,
            count,
        ),
    )


def batches(view: Buffer) -> Iterator[BatchHeader]:
    """The whole batches of a buffer, in order.  A partial one at the end is left out, as a fetch
    may cut there.

    Raises ApiError(CORRUPT_MESSAGE) for a length that no batch can have, and
    UNSUPPORTED_FOR_MESSAGE_FORMAT for the formats before v2.
    """
    position, end = 0, len(view)
    while end - position >= HEADER_SIZE:
        header = parse_header(view, position)
        if header.magic != MAGIC:
            _refuse_magic(header)
        if header.size < HEADER_SIZE:
            raise ApiError(
                ErrorCode.CORRUPT_MESSAGE, f"a record batch cannot have {header.size} bytes"
            )
        if header.size > end - position:
            return
        yield header
        position += header.size


def _old_format(magic: int) -> str:
    return f"message format v{magic} is not supported: use a client that writes record batches (v2)"


def _refuse_magic(header: BatchHeader) -> None:
    if header.magic in (0, 1):
        raise ApiError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, _old_format(header.magic))
    raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"magic {header.magic} is no message format")


def crc32c(view: Buffer) -> int:
    """CRC-32C (Castagnoli) of a buffer, which is not copied."""
    return _crc32c(view)


def check_crc(view: Buffer, header: BatchHeader, base: int = 0) -> bool:
    """Whether the CRC matches the batch; `base` as in `parse_header`."""
    start = header.position - base
    return crc32c(memoryview(view)[start + CRC_START : start + header.size]) == header.crc


def set_base_offset_and_epoch(
    view: memoryview | bytearray, header: BatchHeader, offset: int, epoch: int
) -> None:
    """Sets a leader's fields before it writes a batch; the CRC covers neither of them."""
    position = header.position
    _OFFSET.pack_into(view, position, offset)
    _EPOCH.pack_into(view, position + LENGTH_END, epoch)


def set_max_timestamp(
    view: memoryview | bytearray, header: BatchHeader, timestamp: int, *, append_time: bool
) -> None:
    """Sets maxTimestamp and the timestamp's type, and the CRC; with `append_time`, for
    message.timestamp.type=LogAppendTime, maxTimestamp counts for all records of the batch.

    Unused bits of the attributes are cleared, as DefaultRecordBatch.setMaxTimestamp does.
    """
    position = header.position
    _OFFSET.pack_into(view, position + 35, timestamp)
    attributes = header.attributes & (COMPRESSION_MASK | TRANSACTIONAL | CONTROL | DELETE_HORIZON)
    _seal(view, position, header.size, attributes | (LOG_APPEND_TIME if append_time else 0))


def _seal(view: memoryview | bytearray, position: int, size: int, attributes: int) -> None:
    """Sets the attributes and the CRC of the batch at `position`."""
    _CRC_AND_ATTRIBUTES.pack_into(view, position + CRC_AT, 0, attributes)
    crc = crc32c(memoryview(view)[position + CRC_START : position + size])
    _CRC_AND_ATTRIBUTES.pack_into(view, position + CRC_AT, crc, attributes)


def validate_produce(view: Buffer, max_batch_bytes: int, *, zstd: bool = True) -> BatchHeader:
    """The one batch that a client may send for a partition.  Its header and CRC are checked.

    The codes and their order are those of ProduceRequest.validateRecords,
    UnifiedLog.analyzeAndValidateRecords and LogValidator.validateBatch.  Bytes after the batch are
    refused; Kafka drops them.

    Raises ApiError: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, UNKNOWN_SERVER_ERROR (no
    such codec), and UNSUPPORTED_COMPRESSION_TYPE where the request is too old for `zstd`.
    """
    size = _one_batch(view, zstd)
    if size < HEADER_SIZE:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"a record batch cannot have {size} bytes")
    header = parse_header(view)
    if header.base_offset:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"the batch says that it begins at offset {header.base_offset}: a client says 0",
        )
    if size > max_batch_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {size} bytes, and max.message.bytes is {max_batch_bytes}",
        )
    if not check_crc(view, header):
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "the batch does not match its CRC")
    if size < len(view):
        raise ApiError(ErrorCode.INVALID_RECORD, _ONE_BATCH)
    if header.compression > Compression.ZSTD:
        detail = f"compression codec {header.compression} does not exist"
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, detail)
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"the batch says it has {header.record_count} records, "
            f"and offsets for {header.last_offset_delta + 1}",
        )
    if header.attributes & CONTROL:
        raise ApiError(ErrorCode.INVALID_RECORD, "clients are not allowed to write control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"producer {header.producer_id} sent no sequence number ({header.base_sequence})",
        )
    return header


_ONE_BATCH = "a produce request must hold exactly one record batch for a partition"
_LEAST_LENGTH = 14
"""No format has a batch with a smaller length field (LegacyRecord.RECORD_OVERHEAD_V0)."""


def _one_batch(view: Buffer, zstd: bool) -> int:
    """The size of the only whole batch in a partition's records (ByteBufferLogInputStream)."""
    size = _size_at(view, 0)
    if size is None or size > len(view):
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"a produce request must hold a record batch for a partition, and {len(view)} bytes "
            + ("are none" if size is None else f"are not the {size} that it says it has"),
        )
    if view[MAGIC_OFFSET] != MAGIC:
        raise ApiError(ErrorCode.INVALID_RECORD, _old_format(view[MAGIC_OFFSET]))
    if (
        not zstd
        and size >= HEADER_SIZE
        and view[CRC_START + 1] & COMPRESSION_MASK == Compression.ZSTD
    ):
        detail = "zstd is for Produce v7 and later"
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, detail)
    following = _size_at(view, size)
    if following is not None and following <= len(view) - size:
        raise ApiError(ErrorCode.INVALID_RECORD, _ONE_BATCH)
    return size


def _size_at(view: Buffer, position: int) -> int | None:
    """The size that a batch of any format says it has; None where too few bytes are left."""
    left = len(view) - position
    if left < LENGTH_END:
        return None
    _, length = _LENGTH.unpack_from(view, position)
    if length < _LEAST_LENGTH:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"a record batch cannot have length {length}")
    if left <= MAGIC_OFFSET:
        return None
    magic = view[position + MAGIC_OFFSET]
    if magic > MAGIC:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"magic {magic} is no message format")
    return int(length) + LENGTH_END


def validate_fetched(view: Buffer) -> list[BatchHeader]:
    """The whole batches of another broker's Fetch answer, each with its CRC checked.

    A follower checks the batches that it copies; otherwise one flipped bit on a leader's disk would
    spread to every replica.
    """
    headers = list(batches(view))
    for header in headers:
        if not check_crc(view, header):
            raise ApiError(
                ErrorCode.CORRUPT_MESSAGE,
                f"the batch at offset {header.base_offset} does not match its CRC",
            )
    return headers


# ---------------------------------------------------------------------- what is inside a batch


class Marker(NamedTuple):
    """The end of a producer's transaction in one partition: the only record of a control batch."""

    commit: bool
    coordinator_epoch: int


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    partition_leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    compression: Compression = Compression.NONE,
    attributes: int = 0,
) -> bytearray:
    """A batch of at least one record; `attributes` may add TRANSACTIONAL or CONTROL."""
    items = list(records)
    if not items:
        raise ValueError("a batch holds at least one record")
    base_timestamp = items[0].timestamp
    max_timestamp = max(record.timestamp for record in items)
    payload = b"".join(
        encode_record(record, index, record.timestamp - base_timestamp)
        for index, record in enumerate(items)
    )
    payload = compress(compression, payload)
    batch = bytearray(HEADER_SIZE)
    batch += payload
    _HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LENGTH_END,
        partition_leader_epoch,
        MAGIC,
        0,
        attributes | compression,
        len(items) - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(items),
    )
    crc = crc32c(memoryview(batch)[CRC_START:])
    _CRC_AND_ATTRIBUTES.pack_into(batch, CRC_AT, crc, attributes | compression)
    return batch


_MARKER_KEY = Struct(">hh")
_MARKER_VALUE = Struct(">hi")


def build_marker(
    marker: Marker, producer_id: int, producer_epoch: int, timestamp: int
) -> bytearray:
    """The control batch that ends a transaction.  Its coordinator has one written into each
    partition of the transaction.
    """
    record = Record(
        key=_MARKER_KEY.pack(0, 1 if marker.commit else 0),
        value=_MARKER_VALUE.pack(0, marker.coordinator_epoch),
        timestamp=timestamp,
    )
    return build_batch(
        [record],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=TRANSACTIONAL | CONTROL,
    )


def payload_of(view: Buffer, header: BatchHeader, base: int = 0) -> bytes:
    """The records section of one batch, decompressed."""
    start = header.position - base
    data = bytes(memoryview(view)[start + HEADER_SIZE : start + header.size])
    try:
        return decompress(header.compression, data)
    except ValueError as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


def records_of_batch(view: Buffer, header: BatchHeader, base: int = 0) -> Iterator[Record]:
    """The records of one batch, with their offsets and timestamps made absolute."""
    return decode_records(
        payload_of(view, header, base),
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        header.max_timestamp if header.attributes & LOG_APPEND_TIME else None,
    )


def records_of(view: Buffer) -> Iterator[Record]:
    """All records of a Fetch answer or a segment, control records left out."""
    for header in batches(view):
        if not header.attributes & CONTROL:
            yield from records_of_batch(view, header)


def with_payload(
    view: Buffer, header: BatchHeader, codec: Compression, payload: bytes
) -> bytearray:
    """The same batch with its payload under another codec.  Its records stay as they are, byte by
    byte: offsets and timestamps inside are deltas.  Unused bits of the attributes are cleared.
    """
    start = header.position
    batch = bytearray(memoryview(view)[start : start + HEADER_SIZE])
    batch += payload
    _LENGTH.pack_into(batch, 0, header.base_offset, len(batch) - LENGTH_END)
    kept = header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
    _seal(batch, 0, len(batch), kept | codec)
    return batch


def marker_of(view: Buffer, header: BatchHeader, base: int = 0) -> Marker | None:
    """The marker of a control batch; None for an empty one (compaction) or a kind that ends no
    transaction.
    """
    for record in records_of_batch(view, header, base):
        if record.key is None or len(record.key) < _MARKER_KEY.size:
            return None
        _, kind = _MARKER_KEY.unpack_from(record.key)
        if kind not in (0, 1) or record.value is None or len(record.value) < _MARKER_VALUE.size:
            return None
        _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
        return Marker(kind == 1, coordinator_epoch)
    return None
