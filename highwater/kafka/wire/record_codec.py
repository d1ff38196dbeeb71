"""One record inside a batch of magic v2, and the varints in it.

length          varint   of the bytes that follow
attributes      int8     none is defined
timestampDelta  varlong  to the batch's baseTimestamp
offsetDelta     varint   to the batch's baseOffset
key, value      varint length (-1: null) and bytes
headers         varint count, then name and value as above
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from highwater.kafka.errors import ApiError, ErrorCode

NO_TIMESTAMP = -1


class Record(NamedTuple):
    """One record, as a producer gives it or a consumer gets it."""

    key: bytes | None
    value: bytes | None
    timestamp: int = NO_TIMESTAMP
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int = -1


def encode_varint(value: int) -> bytes:
    """Zigzag, then seven bits a byte, the low ones first."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value, shift = byte & 0x7F, 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise ApiError(
                ErrorCode.CORRUPT_MESSAGE, "a variable-length number is longer than 64 bits"
            )


def too_short() -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, "a record ends too early")


def _sized(data: bytes | None) -> bytes:
    return encode_varint(-1) if data is None else encode_varint(len(data)) + data


def encode_record(record: Record, offset_delta: int, timestamp_delta: int) -> bytes:
    """One record as it stands in a payload, its length first."""
    body = b"".join(
        (
            b"\x00",
            encode_varint(timestamp_delta),
            encode_varint(offset_delta),
            _sized(record.key),
            _sized(record.value),
            encode_varint(len(record.headers)),
            *(_sized(name.encode()) + _sized(value) for name, value in record.headers),
        )
    )
    return encode_varint(len(body)) + body


def decode_records(
    data: bytes, count: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> Iterator[Record]:
    """The records of a decompressed payload; `append_time`, where set, counts for all of them."""
    position = 0
    try:
        for _ in range(count):
            length, position = read_varint(data, position)
            end = position + length
            if length < 0 or end > len(data):
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, "a record is longer than its batch")
            timestamp_delta, position = read_varint(data, position + 1)
            offset_delta, position = read_varint(data, position)
            key, position = _read_sized(data, position)
            value, position = _read_sized(data, position)
            header_count, position = read_varint(data, position)
            headers: tuple[tuple[str, bytes | None], ...] = ()
            if header_count:
                headers = _read_headers(data, position, header_count)
            timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
            yield Record(key, value, timestamp, headers, base_offset + offset_delta)
            position = end
    except IndexError as error:
        raise too_short() from error


def _read_sized(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        return None, position
    return data[position : position + length], position + length


def _read_headers(data: bytes, position: int, count: int) -> tuple[tuple[str, bytes | None], ...]:
    headers = []
    for _ in range(count):
        name, position = _read_sized(data, position)
        value, position = _read_sized(data, position)
        headers.append(((name or b"").decode(errors="replace"), value))
    return tuple(headers)
