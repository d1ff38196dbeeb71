"""Checks that need the inside of a client's batch, and changes that follow from them.

A broker passes batches on unchanged.  Three properties of a topic ask for more:

* `cleanup.policy=compact`: each record has a key.
* `message.timestamp.before.max.ms` and `.after.max.ms`: no record is older, or further ahead of the
  broker's clock.  The header does not show the oldest record.
* `compression.type`: the log holds its batches under this codec, whatever the producer used.

All of this comes before the append, which stays one step.  Work of more than a millisecond
(`takes_time`) is for a worker thread; the resulting batch is appended instead.

Source: org.apache.kafka.storage.internals.log.LogValidator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from highwater.broker.log.log_config import LogConfig
from highwater.broker.log.parts import Origin
from highwater.kafka.config import LONG_MAX
from highwater.kafka.errors import ErrorCode, RecordsRefused
from highwater.kafka.wire.compression import Compression
from highwater.kafka.wire.record_codec import NO_TIMESTAMP, Record
from highwater.kafka.wire.records import (
    BatchHeader,
    batches,
    recompressed,
    records_of_batch,
    validate_produce,
)

CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
"""compression.type, except `producer`, which leaves batches unchanged."""
NAMED_RECORDS = 100
"""An answer names at most this many of a batch's bad records, and counts them all."""
_LOOKED_AT = 500
_OPENED_BYTES = 4096
"""A compacted topic's batches of at most so many records, or bytes where they are compressed, are
looked at in the append itself."""

Problem = Callable[[Record], str | None]


def checked(
    view: memoryview, config: LogConfig, origin: Origin, *, looked_into: bool = False
) -> list[BatchHeader]:
    """The headers of a leader's append, fully checked.

    A client's one batch is checked by its header and CRC; if the topic is compacted, so are its
    records, unless `validated` has `looked_into` them before.  Raises ApiError: CORRUPT_MESSAGE,
    INVALID_RECORD, MESSAGE_TOO_LARGE.
    """
    if origin is not Origin.CLIENT:
        return list(batches(view))
    headers = validate_produce(view, config.max_message_bytes)
    if config.compacts and not looked_into:
        validated(view, headers[0], config, 0)
    return headers


def takes_time(config: LogConfig, header: BatchHeader) -> bool:
    """Whether a worker thread must treat the batch before it is appended."""
    if limits_timestamps(config) or _target(config, header) is not None:
        return True
    # a small compressed batch can open to many megabytes, and claim any number of records
    large = header.record_count > _LOOKED_AT or (header.compression and header.size > _OPENED_BYTES)
    return config.compacts and bool(large)


def limits_timestamps(config: LogConfig) -> bool:
    limited = config.oldest_ms != LONG_MAX or config.latest_ms != LONG_MAX
    return limited and config.message_timestamp_type == "CreateTime"


def validated(view: memoryview, header: BatchHeader, config: LogConfig, wall_ms: int) -> memoryview:
    """The batch to append: `view`, or another one in its place.

    Raises RecordsRefused (INVALID_RECORD, INVALID_TIMESTAMP), and ApiError(CORRUPT_MESSAGE) if
    the batch cannot be read.
    """
    problems: list[tuple[ErrorCode, Problem]] = []
    if config.compacts:
        problems.append((ErrorCode.INVALID_RECORD, _without_key))
    if limits_timestamps(config):
        oldest = wall_ms - config.oldest_ms
        latest = wall_ms + config.latest_ms
        problems.append((ErrorCode.INVALID_TIMESTAMP, _outside(oldest, latest)))
    if problems:
        _refuse(records_of_batch(view, header), problems)
    target = _target(config, header)
    if target is None:
        return view
    return memoryview(recompressed(view, header, target, config.compression_level(target)))


def _target(config: LogConfig, header: BatchHeader) -> Compression | None:
    """The codec to change to; None if the batch can stay as it is."""
    target = CODECS.get(config.compression_type)
    return None if target is None or target == header.compression else target


def _without_key(record: Record) -> str | None:
    return "a compacted topic takes only records with a key" if record.key is None else None


def _outside(oldest: int, latest: int) -> Problem:
    def problem(record: Record) -> str | None:
        if record.timestamp == NO_TIMESTAMP or oldest <= record.timestamp <= latest:
            return None
        return f"timestamp {record.timestamp} is not within {oldest} to {latest}"

    return problem


def _refuse(records: Iterable[Record], problems: list[tuple[ErrorCode, Problem]]) -> None:
    """Raises RecordsRefused if any record has one of the problems; the first one gives the code."""
    first: ErrorCode | None = None
    found = 0
    named: list[tuple[int, str]] = []
    for index, record in enumerate(records):
        for code, problem in problems:
            if text := problem(record):
                first = first or code
                found += 1
                if len(named) < NAMED_RECORDS:
                    named.append((index, text))
                break
    if first is not None:
        detail = f"{found} records are refused; the first is number {named[0][0]}: {named[0][1]}"
        raise RecordsRefused(first, detail, tuple(named))
