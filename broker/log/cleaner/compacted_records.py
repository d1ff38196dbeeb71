"""Reads records for the cleaner: keys, offsets, and the position of each record's bytes.

A value is never decoded.  The first pass needs only keys (`load_keys`), and is written for speed:
a cleaning of 10^7 records spends most of its time there.  The second pass (`scan`) looks at the
batches that may lose records, and copies the records that stay.  Offsets and timestamps are deltas,
so a record may be copied as long as its batch keeps both bases.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import md5
from typing import NamedTuple

from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.wire.record_codec import encode_varint, read_varint, too_short

LONGEST_PLAIN_KEY = 15
"""A longer key is represented by its 16-byte MD5, as in Kafka: this bounds a map entry's memory."""


class Scanned(NamedTuple):
    """One record of a payload."""

    start: int
    end: int
    """The record's bytes in the payload, with its length field."""
    timestamp_delta: int
    offset_delta: int
    rest: int
    """Where its offset delta begins: the bytes from here on stay when the timestamp changes."""
    key: bytes | None
    tombstone: bool


def key_id(key: bytes) -> bytes:
    """The key's identifier in the offset map."""
    return key if len(key) <= LONGEST_PLAIN_KEY else md5(key, usedforsecurity=False).digest()


def beyond_batch(offset: int, last_offset: int) -> ApiError:
    """The error for an offset that, in the map, would make later records of its key be dropped."""
    return ApiError(
        ErrorCode.CORRUPT_MESSAGE,
        f"a record has offset {offset}, and its batch ends at {last_offset}",
    )


def load_keys(
    offsets: dict[bytes, int],
    data: bytes,
    count: int,
    base_offset: int,
    last_offset: int,
    first_offset: int,
) -> None:
    """Notes the last offset of each key in a payload, from `first_offset` on."""
    position, digest, longest = 0, md5, LONGEST_PLAIN_KEY
    try:
        for _ in range(count):
            length = data[position]
            position += 1
            if length < 0x80:
                end = position + (length >> 1)
            else:
                length, position = read_varint(data, position - 1)
                end = position + length
            position += 1  # attributes
            while data[position] > 0x7F:
                position += 1
            delta = data[position + 1]
            position += 2
            if delta < 0x80:
                delta >>= 1
            else:
                delta, position = read_varint(data, position - 1)
            size = data[position]
            position += 1
            if size < 0x80:
                size = (size >> 1) ^ -(size & 1)
            else:
                size, position = read_varint(data, position - 1)
            offset = base_offset + delta
            if offset > last_offset:
                raise beyond_batch(offset, last_offset)
            if size >= 0 and offset >= first_offset:
                key = data[position : position + size]
                if size > longest:
                    key = digest(key, usedforsecurity=False).digest()
                offsets[key] = offset
            position = end
    except IndexError as error:
        raise too_short() from error
    if position > len(data):
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "a record is longer than its batch")


def scan(data: bytes, count: int) -> Iterator[Scanned]:
    """The records of a decompressed payload, one after the other."""
    position = 0
    try:
        for _ in range(count):
            start = position
            length, position = read_varint(data, position)
            end = position + length
            if length < 0 or end > len(data):
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, "a record is longer than its batch")
            timestamp_delta, rest = read_varint(data, position + 1)
            offset_delta, position = read_varint(data, rest)
            size, position = read_varint(data, position)
            key = None
            if size >= 0:
                key = data[position : position + size]
                position += size
            tombstone = read_varint(data, position)[0] < 0
            yield Scanned(start, end, timestamp_delta, offset_delta, rest, key, tombstone)
            position = end
    except IndexError as error:
        raise too_short() from error


def with_timestamp_delta(data: bytes, record: Scanned, delta: int) -> bytes:
    """A record's bytes with another timestamp delta."""
    body = b"\x00" + encode_varint(delta) + data[record.rest : record.end]
    return encode_varint(len(body)) + body
