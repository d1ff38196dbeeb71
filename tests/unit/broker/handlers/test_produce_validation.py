"""Produce on topics that limit timestamps or name a codec, as Kafka's LogValidator treats it."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from struct import pack
from typing import Any

import pytest
import trio

from highwater.broker.handlers import produce
from highwater.broker.log.log_config import LogConfig
from highwater.broker.log.validation import SLICE, examine
from highwater.broker.replica.partition_states import StopReplica
from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire.codec import decode_response, encode_request
from highwater.kafka.wire.compression import Compression, Compressor, compress
from highwater.kafka.wire.record_codec import encode_record, encode_varint
from highwater.kafka.wire.records import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Record,
    batches,
    build_batch,
    check_crc,
    crc32c,
    parse_header,
    records_of,
)
from tests.unit.broker.handlers.conftest import in_broker
from tests.unit.broker.handlers.test_records import error_of, lead, produced

HOUR = 3_600_000


async def send(b: Any, version: int, records: bytes) -> Any:
    body = memoryview(bytearray(encode_request(produced(records), version)))
    reply: Any = produce.handle(b.context(produce, version), body)
    if hasattr(reply, "__await__"):
        reply = await reply
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
async def test_a_payload_that_is_not_what_its_codec_says_is_refused(b: Any) -> None:
    partition = await lead(b)
    plain = build_batch([Record(b"k", b"v", 1)])
    for codec in range(1, 8):
        answer = await send(b, 9, changed(plain, attributes=codec))
        assert error_of(answer) == "UNKNOWN_SERVER_ERROR"
    for kind in list(Compression)[1:]:
        cut = build_batch([Record(b"k", b"v" * 900, 1)], compression=kind)[:-9]
        assert error_of(await send(b, 9, changed(cut))) == "UNKNOWN_SERVER_ERROR", kind
    assert partition.log.log_end_offset == 0


def changed(data: bytes | bytearray, payload: bytes | None = None, **fields: int) -> bytes:
    """The batch with other fields of its header, and its length and CRC right again."""
    header = parse_header(data)._replace(**fields)
    body = bytes(data[HEADER_SIZE:]) if payload is None else payload
    rest = pack(">hiqqqhii", *header[6:]) + body
    return (
        pack(">qiib", header.base_offset, 49 + len(body), header.partition_leader_epoch, 2)
        + crc32c(rest).to_bytes(4, "big")
        + rest
    )


RECORD = encode_record(Record(b"k", b"v", 0), 0, 0)


@pytest.mark.parametrize(
    ("payload", "fields"),
    [
        (None, {"record_count": 4, "last_offset_delta": 3}),
        (None, {"record_count": 2, "last_offset_delta": 1}),
        (None, {"base_offset": 5}),
        (RECORD + b"zzzz", {"record_count": 1, "last_offset_delta": 0}),
        (RECORD[:-1], {"record_count": 1, "last_offset_delta": 0}),
        (b"\x00" + RECORD[1:], {"record_count": 1, "last_offset_delta": 0}),
        (b"\x01" + RECORD[1:], {"record_count": 1, "last_offset_delta": 0}),
        (b"\x06" + RECORD[1:], {"record_count": 1, "last_offset_delta": 0}),
        (b"\x80\x02" + RECORD[1:], {"record_count": 1, "last_offset_delta": 0}),
    ],
)
@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize(
    "config", [{}, {"cleanup_policy": "compact"}, {"compression_type": "lz4"}], ids=str
)
@in_broker()
async def test_a_header_that_lies_about_its_records_is_refused(
    b: Any, config: dict[str, str], codec: Compression, payload: bytes | None, fields: Any
) -> None:
    partition = await lead(b, **config)
    three = build_batch([Record(b"k", b"v", t) for t in range(3)])
    body = compress(codec, bytes(three[HEADER_SIZE:]) if payload is None else payload)
    data = changed(three, body, attributes=codec, **fields)
    assert error_of(await send(b, 9, data)) == "INVALID_RECORD"
    assert partition.log.log_end_offset == 0


@in_broker()
async def test_the_max_timestamp_is_that_of_the_records(b: Any) -> None:
    partition = await lead(b)
    for header in (0, 7, 99, -1):
        assert error_of(await send(b, 9, changed(batch(5, 9, 7), max_timestamp=header))) == "NONE"
    stored = content(partition.log)
    assert [h.max_timestamp for h in batches(stored)] == [9] * 4
    assert all(check_crc(stored, h) for h in batches(stored))


@in_broker()
async def test_a_producers_log_append_time(b: Any) -> None:
    """On other topics the bit is cleared; what is wrong with the records is told before it."""
    partition = await lead(b)
    for header, stored in ((77, 77), (-2, -1)):
        data = changed(batch(5, 9), attributes=LOG_APPEND_TIME, max_timestamp=header)
        assert error_of(await send(b, 9, data)) == "NONE"
        *_, last = batches(content(partition.log))
        assert (last.timestamp_type, last.max_timestamp) == (0, stored)
    partition.log.config = replace(partition.log.config, message_timestamp_type="LogAppendTime")
    assert error_of(await send(b, 9, data)) == "INVALID_TIMESTAMP"
    lie = changed(data, record_count=4, last_offset_delta=3)
    assert error_of(await send(b, 9, lie)) == "INVALID_RECORD"


@in_broker()
async def test_headers_alone_are_checked_where_that_is_asked(b: Any) -> None:
    partition = await lead(b)
    lie = changed(batch(1), record_count=4, last_offset_delta=3)
    assert error_of(await send(b, 9, lie)) == "INVALID_RECORD"
    partition.log.config = replace(partition.log.config, produce_validation="headers")
    assert error_of(await send(b, 9, lie)) == "NONE"
    assert partition.log.log_end_offset == 4
    partition.log.config = replace(partition.log.config, cleanup_policy="compact")
    assert error_of(await send(b, 9, lie)) == "INVALID_RECORD"


@pytest.mark.thorough
@pytest.mark.parametrize(("size", "error"), [(60 << 20, "NONE"), (1 << 30, "MESSAGE_TOO_LARGE")])
@in_broker()
async def test_a_batch_is_looked_into_in_little_memory_whatever_it_opens_to(
    b: Any, size: int, error: str
) -> None:
    await lead(b, max_message_bytes=str(8 << 20))
    head = b"\0\0\0\x01" + encode_varint(size)  # one record: no key, and `size` zeros
    parts = [encode_varint(len(head) + size + 1) + head, *[bytes(1 << 20)] * (size >> 20), b"\0"]
    for codec in (Compression.GZIP, Compression.LZ4, Compression.ZSTD):
        compressor = Compressor(codec)
        payload = b"".join([compressor.add(part) for part in parts] + [compressor.end()])
        data = changed(batch(1), payload, attributes=codec)
        tracemalloc.start()
        try:
            answer = await send(b, 9, data)
            grown = tracemalloc.get_traced_memory()[1] - 4 * len(data)
        finally:
            tracemalloc.stop()
        assert error_of(answer) == error
        assert grown < 4 << 20, (codec, grown)


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


@in_broker()
async def test_records_of_a_transaction_need_the_transactional_id(b: Any) -> None:
    partition = await lead(b)
    good, identity = batch(1), {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0}
    for more in ({}, identity):
        request = produced(batch(1, attributes=TRANSACTIONAL, **more))
        request.topic_data[0].partition_data.append(
            type(request.topic_data[0].partition_data[0])(index=1, records=good)
        )
        body = memoryview(bytearray(encode_request(request, 9)))
        reply: Any = produce.handle(b.context(produce, 9), body)
        answer: Any = decode_response(0, 9, b"".join(reply.parts))
        codes = [p.error_code for p in answer.responses[0].partition_responses]
        assert codes == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
        request.acks = 0
        body = memoryview(bytearray(encode_request(request, 9)))
        closed: Any = produce.handle(b.context(produce, 9), body)
        assert closed.close
    assert partition.log.log_end_offset == 0


@in_broker()
async def test_too_small_an_isr_is_told_before_what_is_wrong_with_the_batch(b: Any) -> None:
    partition = await lead(b)
    partition.min_insync_replicas, partition.replicas = 2, (1, 2)
    request = produced(changed(batch(1), record_count=4, last_offset_delta=3))
    request.acks = -1
    body = memoryview(bytearray(encode_request(request, 9)))
    reply: Any = produce.handle(b.context(produce, 9), body)
    answer: Any = decode_response(0, 9, b"".join(reply.parts))
    assert error_of(answer) == "NOT_ENOUGH_REPLICAS"


@pytest.mark.parametrize("codec", list(Compression))
def test_a_large_batch_is_looked_into_in_short_steps(codec: Compression) -> None:
    """The loop does other things between them; payloads are opened in a thread."""
    count = 10_000
    records = [Record(b"key%05d" % n, b"v" * 85, n) for n in range(count)]
    data = build_batch(records, compression=codec)
    slices, work = 0, 0
    steps = examine(memoryview(data), LogConfig(max_message_bytes=2 << 20), 0)
    for step in steps:
        if step is None:
            slices += 1
        else:
            step()
            work += 1
    assert slices >= count // SLICE
    assert (work > 0) == (codec is not Compression.NONE)


@pytest.mark.parametrize("codec", list(Compression))
@in_broker()
async def test_others_do_not_wait_for_a_large_batch(b: Any, codec: Compression) -> None:
    """Of two requests on two connections, the small one that comes later is answered first."""
    await lead(b, max_message_bytes=str(4 << 20))
    large = bytes(
        build_batch([Record(b"k", b"v" * 90, n) for n in range(20_000)], compression=codec)
    )
    answered = []

    async def ask(name: str, data: bytes) -> None:
        assert error_of(await send(b, 9, data)) == "NONE"
        answered.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, "large", large)
        await trio.lowlevel.checkpoint()
        nursery.start_soon(ask, "small", batch(1))
    assert answered == ["small", "large"]
