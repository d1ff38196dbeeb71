"""Checks a client's batch before it is appended, as Kafka's LogValidator does.

First the header and the CRC are checked, then the inside: the payload can be decompressed, it holds
as many records as the header counts, each as long as it says, and the topic takes them
(`record_walk`).  So a batch that is acknowledged can be read.  If a topic's compression.type names
a codec, the batch is compressed again with that codec.  `highwater.produce.validation=headers`, for
benchmarks, skips the inside unless the topic needs it (compaction, limits of timestamps, a codec).

`examine` works in steps.  A small batch takes one.  A large one is walked in slices of half a
millisecond, between which the broker's loop does other things; it is decompressed part by part in a
worker thread, because the C libraries release the interpreter's lock, and the walk would not.  The
append, which must be one step, comes after the last of these.

Deviations: bytes after the batch or after a compressed stream, a wrong record length in a
compressed batch, and wrong offset deltas are refused; a batch that decompresses to more than 64 MiB
and to 16 times its size is MESSAGE_TOO_LARGE.  Kafka stores these; most make consumers fail.

Source: org.apache.kafka.storage.internals.log.LogValidator, UnifiedLog.analyzeAndValidateRecords.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

from highwater.broker.log.log_config import LogConfig
from highwater.broker.log.parts import Origin
from highwater.kafka.config import LONG_MAX
from highwater.kafka.errors import ApiError, ErrorCode, RecordsRefused
from highwater.kafka.wire.compiled import compiled
from highwater.kafka.wire.compression import (
    Compression,
    Compressor,
    DecompressionError,
    TooLarge,
    opened,
)
from highwater.kafka.wire.record_walk import (
    MORE,
    NAMED,
    NO_KEY,
    RecordWalk,
)
from highwater.kafka.wire.records import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    BatchHeader,
    batches,
    parse_header,
    set_max_timestamp,
    validate_produce,
    with_payload,
)

CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
"""compression.type, except `producer`, which leaves batches unchanged."""
ZSTD_VERSION = 7
SLICE = 4096 if compiled() else 256
"""The number of records, or headers, in one step of a walk: up to half a millisecond."""
_PART, _PLAIN_PART = 1 << 18, 1 << 14
_SMALL, _SMALL_PART = 4096, 1 << 14
"""The first part of a compressed batch of up to _SMALL bytes is opened in the loop."""
_LONG_MIN = -LONG_MAX - 1

Work = Callable[[], None]
"""Work for a worker thread."""


class Examined(NamedTuple):
    """A batch that can be appended: the client's own, or a new one in its place."""

    view: memoryview
    header: BatchHeader


Examination = Generator[Work | None, None, Examined]
"""Yields work that a thread must do before the next step, or None at the end of a slice."""


def checked(
    view: memoryview, config: LogConfig, origin: Origin, wall_ms: int
) -> tuple[memoryview, list[BatchHeader]]:
    """The batches of a leader's append, examined at once as their origin requires.

    Raises ApiError, as `examine` does.
    """
    if origin is not Origin.CLIENT:
        return view, list(batches(view))
    steps = examine(view, config, wall_ms)
    try:
        while True:
            work = next(steps)
            if work is not None:
                work()
    except StopIteration as end:
        examined: Examined = end.value
        return examined.view, [examined.header]


def examine(
    view: memoryview, config: LogConfig, wall_ms: int, version: int = ZSTD_VERSION
) -> Examination:
    """Examines the one batch that a client may send for a partition; corrects its max timestamp.

    Raises RecordsRefused (INVALID_RECORD, INVALID_TIMESTAMP), and ApiError: CORRUPT_MESSAGE,
    INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE, and
    UNKNOWN_SERVER_ERROR if the payload is not compressed as the header says.
    """
    header = validate_produce(view, config.max_message_bytes, zstd=version >= ZSTD_VERSION)
    times = _Times(config, header, wall_ms)
    if config.produce_validation == "headers" and not config.looks_inside:
        if times.refusal is not None:
            raise times.refusal
        return _corrected(view, header, header.max_timestamp)
    walk = RecordWalk(
        header.record_count, header.base_timestamp, config.compacts, times.oldest, times.latest
    )
    target = CODECS.get(config.compression_type, header.compression)
    walk.budget = SLICE
    payload = None
    if header.compression or target != header.compression:
        payload = yield from _opened(view, header, walk, config, Compression(target))
    else:
        for start in range(HEADER_SIZE, max(header.size, HEADER_SIZE + 1), _PLAIN_PART):
            end = min(start + _PLAIN_PART, header.size)
            walk.feed(bytes(view[start:end]), end == header.size)
            while walk.walk() == MORE:
                yield None
                walk.budget = SLICE
    if times.refusal is not None and walk.refusals < header.record_count:
        raise times.refusal
    if walk.refusals:
        raise _refused(walk, times)
    if payload is not None:
        view = memoryview(with_payload(view, header, Compression(target), payload))
        header = parse_header(view)
    return _corrected(view, header, walk.max_timestamp if times.given is None else times.given)


def _corrected(view: memoryview, header: BatchHeader, max_timestamp: int) -> Examined:
    """The batch with the largest timestamp of its records, and without the bit LogAppendTime of its
    producer; the append sets both if the topic has LogAppendTime.
    """
    if max_timestamp != header.max_timestamp or header.attributes & LOG_APPEND_TIME:
        set_max_timestamp(view, header, max_timestamp, append_time=False)
        header = parse_header(view)
    return Examined(view, header)


class _Times:
    """The bounds of a batch's timestamps.  `given` is the timestamp of all its records, if the
    producer has set the bit LogAppendTime.
    """

    def __init__(self, config: LogConfig, header: BatchHeader, wall_ms: int) -> None:
        self.oldest, self.latest = _LONG_MIN, LONG_MAX
        self.given: int | None = None
        self.refusal: RecordsRefused | None = None
        """The refusal of all records; errors in their form are reported first."""
        if header.attributes & LOG_APPEND_TIME:
            self.given = max(header.max_timestamp, NO_TIMESTAMP)
            if config.message_timestamp_type == "LogAppendTime" or header.max_timestamp == -1:
                self._refuse_all(header, "must not say LogAppendTime: that is for the broker")
        if not limits_timestamps(config):
            return
        oldest = wall_ms - config.oldest_ms if config.oldest_ms != LONG_MAX else _LONG_MIN
        latest = wall_ms + config.latest_ms if config.latest_ms != LONG_MAX else LONG_MAX
        if self.given is None:
            self.oldest, self.latest = oldest, latest
        elif not oldest <= header.max_timestamp <= latest:
            told = f"has timestamp {header.max_timestamp}, not {oldest} to {latest}"
            self._refuse_all(header, told)

    def _refuse_all(self, header: BatchHeader, text: str) -> None:
        count = header.record_count
        named = tuple((index, f"the record {text}") for index in range(min(count, NAMED)))
        self.refusal = RecordsRefused(
            ErrorCode.INVALID_TIMESTAMP, f"{count} records are refused; each {text}", named
        )


def limits_timestamps(config: LogConfig) -> bool:
    limited = config.oldest_ms != LONG_MAX or config.latest_ms != LONG_MAX
    return limited and config.message_timestamp_type == "CreateTime"


def _refused(walk: RecordWalk, times: _Times) -> RecordsRefused:
    """The error of refused records: INVALID_TIMESTAMP if any timestamp is out of its limits."""
    named: list[tuple[int, str]] = []
    code = ErrorCode.INVALID_RECORD
    for index, reason, timestamp in walk.refused:
        if reason == NO_KEY:
            named.append((index, "a compacted topic takes only records with a key"))
        else:
            within = f"{times.oldest} to {times.latest}"
            named.append((index, f"timestamp {timestamp} is not within {within}"))
            code = ErrorCode.INVALID_TIMESTAMP
    detail = (
        f"{walk.refusals} records are refused; the first is number {named[0][0]}: {named[0][1]}"
    )
    return RecordsRefused(code, detail, tuple(named))


def _opened(
    view: memoryview, header: BatchHeader, walk: RecordWalk, config: LogConfig, target: Compression
) -> Generator[Work | None, None, bytes | None]:
    """Walks over the records of a payload that is compressed, or will be stored with another codec;
    returns the payload to store, or None to keep the client's.
    """
    opening = _Opening(view, header, config, target)
    fed = 0
    while True:
        if opening.small and fed < 2:  # the first part, and most often the end
            opening.proceed()
        else:
            yield opening.proceed
        error = opening.error
        if error is not None:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            if isinstance(error, TooLarge):
                code = ErrorCode.MESSAGE_TOO_LARGE
            raise ApiError(code, str(error))
        walk.feed(opening.part, opening.ended)
        fed += 1
        while walk.walk() == MORE:
            yield None
            walk.budget = SLICE
        if opening.ended:
            return opening.result


class _Opening:
    """A payload that is opened part by part, and compressed again on the way if `target` is
    another codec.
    """

    def __init__(
        self, view: memoryview, header: BatchHeader, config: LogConfig, target: Compression
    ) -> None:
        source = bytes(view[HEADER_SIZE : header.size])
        again = target != header.compression
        self.small = header.size <= _SMALL and not again
        self.part = b""
        self.ended = False
        self.error: DecompressionError | None = None
        self._parts: Iterator[bytes]
        if header.compression:
            self._parts = opened(header.compression, source, _SMALL_PART if self.small else _PART)
        else:
            self._parts = (source[at : at + _PART] for at in range(0, len(source), _PART))
        self._compressor: Compressor | None = None
        if again:
            self._compressor = Compressor(target, config.compression_level(target))
        self._out: list[bytes] = []
        self._room = config.max_message_bytes - HEADER_SIZE
        self._most = config.max_message_bytes

    def proceed(self) -> None:
        """Opens the next part, in the thread."""
        try:
            part = next(self._parts, None)
        except DecompressionError as error:
            part, self.error = None, error
        self.part, self.ended = part or b"", part is None
        compressor = self._compressor
        if compressor is not None:
            made = compressor.end() if part is None else compressor.add(part)
            self._room -= len(made)
            if self._room >= 0:
                self._out.append(made)
            elif self.error is None:
                self.ended, self.error = (
                    True,
                    TooLarge(
                        f"under the topic's codec the batch has more than {self._most} bytes, "
                        "its max.message.bytes"
                    ),
                )

    @property
    def result(self) -> bytes | None:
        return b"".join(self._out) if self._compressor is not None else None
