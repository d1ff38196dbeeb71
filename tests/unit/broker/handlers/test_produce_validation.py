"""Produce on topics that limit timestamps or name a codec, as Kafka's LogValidator treats it."""

from __future__ import annotations

from typing import Any

import pytest

from highwater.broker.handlers import produce
from highwater.broker.replica.partition_states import StopReplica
from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire.codec import decode_response, encode_request
from highwater.kafka.wire.compression import Compression, compress
from highwater.kafka.wire.records import (
    CRC_START,
    Record,
    batches,
    build_batch,
    check_crc,
    crc32c,
    records_of,
)
from tests.unit.broker.handlers.conftest import in_broker
from tests.unit.broker.handlers.test_records import error_of, lead, produced

HOUR = 3_600_000


async def send(b: Any, version: int, records: bytes) -> Any:
    body = memoryview(bytearray(encode_request(produced(records), version)))
    reply = await produce.handle(b.context(produce, version), body)  # type: ignore[misc]
    return decode_response(0, version, b"".join(reply.parts))


def batch(*timestamps: int, **more: Any) -> bytes:
    records = [Record(b"k", b"value " * 50, t) for t in timestamps]
    return bytes(build_batch(records, **more))


def content(log: Any) -> bytes:
    return b"".join(s.file.read(0, s.size) for s in log.segments)


@pytest.mark.parametrize(
    ("limit", "off_ms", "error"),
    [
        ("message_timestamp_before_max_ms", -HOUR - 1000, "INVALID_TIMESTAMP"),
        ("message_timestamp_before_max_ms", -HOUR + 1000, "NONE"),
        ("message_timestamp_before_max_ms", 2 * HOUR, "NONE"),
        ("message_timestamp_after_max_ms", HOUR + 1000, "INVALID_TIMESTAMP"),
        ("message_timestamp_after_max_ms", HOUR - 1000, "NONE"),
        ("message_timestamp_after_max_ms", -2 * HOUR, "NONE"),
        ("message_timestamp_difference_max_ms", -HOUR - 1000, "INVALID_TIMESTAMP"),
        ("message_timestamp_difference_max_ms", HOUR + 1000, "INVALID_TIMESTAMP"),
        ("message_timestamp_difference_max_ms", HOUR - 1000, "NONE"),
    ],
)
@in_broker()
async def test_timestamps_have_limits(b: Any, limit: str, off_ms: int, error: str) -> None:
    partition = await lead(b, **{limit: str(HOUR)})
    now = b.services.world.clock.wall_ms()
    answer = await send(b, 9, batch(now, now + off_ms, now))
    assert error_of(answer) == error
    place = answer.responses[0].partition_responses[0]
    refused = [(e.batch_index, e.batch_index_error_message) for e in place.record_errors]
    if error == "NONE":
        assert refused == []
        assert partition.log.log_end_offset == 3
    else:
        assert [index for index, _ in refused] == [1]
        assert str(now + off_ms) in refused[0][1]
        assert partition.log.log_end_offset == 0


@in_broker()
async def test_records_without_a_timestamp_have_no_limit(b: Any) -> None:
    await lead(b, message_timestamp_before_max_ms="1")
    assert error_of(await send(b, 9, batch(-1))) == "NONE"


@in_broker()
async def test_the_brokers_own_time_has_no_limit(b: Any) -> None:
    limits = {"message_timestamp_before_max_ms": "1", "message_timestamp_type": "LogAppendTime"}
    await lead(b, **limits)
    body = memoryview(bytearray(encode_request(produced(batch(7)), 9)))
    reply = produce.handle(b.context(produce, 9), body)
    answer = decode_response(0, 9, b"".join(reply.parts))  # type: ignore[union-attr, arg-type]
    assert error_of(answer) == "NONE"


@pytest.mark.parametrize("sent", list(Compression))
@pytest.mark.parametrize(
    ("kept", "codec"),
    [
        ("uncompressed", Compression.NONE), ("gzip", Compression.GZIP),
        ("snappy", Compression.SNAPPY), ("lz4", Compression.LZ4), ("zstd", Compression.ZSTD),
    ],
)  # fmt: skip
@in_broker()
async def test_a_log_holds_its_topics_codec(
    b: Any, sent: Compression, kept: str, codec: Compression
) -> None:
    partition = await lead(b, compression_type=kept)
    now = b.services.world.clock.wall_ms()
    data = batch(now, now - 5, now + 7, compression=sent, producer_id=9, producer_epoch=2,
                 base_sequence=4)  # fmt: skip
    if sent == codec:
        body = memoryview(bytearray(encode_request(produced(data), 9)))
        assert not hasattr(produce.handle(b.context(produce, 9), body), "__await__")
    else:
        assert error_of(await send(b, 9, data)) == "NONE"
    assert partition.log.log_end_offset == 3
    stored = content(partition.log)
    (header,) = batches(stored)
    assert header.compression == codec
    assert check_crc(stored, header)
    (want,) = batches(data)
    same = ("record_count", "last_offset_delta", "base_timestamp", "max_timestamp",
            "producer_id", "producer_epoch", "base_sequence")  # fmt: skip
    for name in same:
        assert getattr(header, name) == getattr(want, name), name
    assert [r._replace(offset=0) for r in records_of(stored)] == [
        r._replace(offset=0) for r in records_of(data)
    ]


@in_broker()
async def test_a_batch_that_grows_too_large_is_refused(b: Any) -> None:
    partition = await lead(b, compression_type="uncompressed", max_message_bytes="1000")
    data = batch(*[5] * 20, compression=Compression.GZIP)
    assert len(data) < 1000
    assert error_of(await send(b, 9, data)) == "MESSAGE_TOO_LARGE"
    assert partition.log.log_end_offset == 0


@in_broker()
async def test_a_payload_that_is_no_zip_is_corrupt(b: Any) -> None:
    await lead(b, compression_type="uncompressed")
    data = build_batch([Record(b"k", b"v", 1)])
    data[22] |= Compression.GZIP
    data[17:21] = crc32c(memoryview(data)[CRC_START:]).to_bytes(4, "big")
    assert error_of(await send(b, 9, bytes(data))) == "CORRUPT_MESSAGE"


@in_broker()
async def test_an_older_client_may_write_where_zstd_is_kept(b: Any) -> None:
    partition = await lead(b, compression_type="zstd")
    assert error_of(await send(b, 3, batch(1))) == "NONE"
    (header,) = batches(content(partition.log))
    assert header.compression == Compression.ZSTD
    zipped = batch(1, compression=Compression.ZSTD)
    body = memoryview(bytearray(encode_request(produced(zipped), 3)))
    reply = produce.handle(b.context(produce, 3), body)
    answer = decode_response(0, 3, b"".join(reply.parts))  # type: ignore[union-attr, arg-type]
    assert ErrorCode(answer.responses[0].partition_responses[0].error_code) == (
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    )


@in_broker()
async def test_a_repeated_batch_is_known_under_another_codec(b: Any) -> None:
    partition = await lead(b, compression_type="gzip")
    data = batch(1, producer_id=9, producer_epoch=0, base_sequence=0)
    for _ in range(2):
        assert error_of(await send(b, 9, data)) == "NONE"
    assert partition.log.log_end_offset == 1


@in_broker()
async def test_which_records_of_a_compacted_topic_have_no_key(b: Any) -> None:
    await lead(b, cleanup_policy="compact")
    records = [Record(b"k", b"v", 1), Record(None, b"v", 1), Record(None, b"w", 1)]
    body = memoryview(bytearray(encode_request(produced(bytes(build_batch(records))), 9)))
    reply = produce.handle(b.context(produce, 9), body)
    answer = decode_response(0, 9, b"".join(reply.parts))  # type: ignore[union-attr, arg-type]
    place = answer.responses[0].partition_responses[0]
    assert error_of(answer) == "INVALID_RECORD"
    assert [e.batch_index for e in place.record_errors] == [1, 2]


@pytest.mark.parametrize(
    ("codec", "low", "high"),
    [(Compression.GZIP, 1, 9), (Compression.LZ4, 1, 12), (Compression.ZSTD, -7, 19)],
)
def test_levels_tell(codec: Compression, low: int, high: int) -> None:
    words = [b"%x " % (i * 2654435761 % 2**32 >> 20) for i in range(60_000)]
    data = b"".join(words)
    assert len(compress(codec, data, low)) > len(compress(codec, data, high))


@in_broker()
async def test_a_partition_that_goes_while_its_batch_is_looked_into_takes_nothing(b: Any) -> None:
    partition = await lead(b, compression_type="gzip")
    body = memoryview(bytearray(encode_request(produced(batch(7)), 9)))
    reply = produce.handle(b.context(produce, 9), body)
    replicas = b.services.replicas
    await replicas.stop_replica([StopReplica(partition.tp, -1, True)], lambda: None)
    found = await reply  # type: ignore[misc]
    answer = decode_response(0, 9, b"".join(found.parts))
    assert error_of(answer) == "NOT_LEADER_OR_FOLLOWER"
    assert partition.log.log_end_offset == 0
