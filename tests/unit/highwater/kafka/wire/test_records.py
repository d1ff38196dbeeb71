"""Record batches: built, parsed, checked, patched; kafka-python's decoder is the second opinion."""

from __future__ import annotations

import gzip
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.wire import compression, records
from highwater.kafka.wire.compression import Compression
from highwater.kafka.wire.records import (
    Marker,
    Record,
    batches,
    build_batch,
    build_marker,
    check_crc,
    crc32c,
    marker_of,
    parse_header,
    records_of,
    set_base_offset_and_epoch,
    set_max_timestamp,
    validate_fetched,
    validate_produce,
)

_bytes = st.none() | st.binary(max_size=40)
_records = st.lists(
    st.builds(
        Record, key=_bytes, value=_bytes, timestamp=st.integers(0, 2**45),
        headers=st.lists(st.tuples(st.text(max_size=5), _bytes), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=20,
)  # fmt: skip


def _produce(view: bytes | bytearray, limit: int = 1 << 20) -> ErrorCode:
    try:
        validate_produce(view, limit)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


@pytest.mark.thorough
@settings(deadline=None)
@given(_records, st.sampled_from(list(Compression)), st.integers(0, 2**40))
def test_what_was_built_is_read_again(
    items: list[Record], codec: Compression, base_offset: int
) -> None:
    batch = build_batch(items, base_offset=base_offset, compression=codec)
    expected = [record._replace(offset=base_offset + n) for n, record in enumerate(items)]
    assert list(records_of(batch)) == expected
    assert _produce(build_batch(items, compression=codec)) == ErrorCode.NONE


# kafka-python decompresses snappy only with a package of its own
@pytest.mark.thorough
@settings(deadline=None)
@given(_records, st.sampled_from([c for c in Compression if c is not Compression.SNAPPY]))
def test_kafka_python_reads_the_same(items: list[Record], codec: Compression) -> None:
    batch = build_batch(items, base_offset=7, compression=codec)
    found = [record for part in MemoryRecords(bytes(batch)) for record in part]
    assert [(r.key, r.value, r.timestamp, r.offset) for r in found] == [
        (r.key, r.value, r.timestamp, 7 + n) for n, r in enumerate(items)
    ]


@pytest.mark.thorough
@settings(deadline=None)
@given(st.data())
def test_any_flipped_bit_after_the_crc_is_found(data: st.DataObject) -> None:
    batch = build_batch([Record(b"k", b"value" * 20, 5), Record(None, None, 6)])
    position = data.draw(st.integers(records.CRC_START, len(batch) - 1))
    batch[position] ^= 1 << data.draw(st.integers(0, 7))
    assert _produce(batch) == ErrorCode.CORRUPT_MESSAGE


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(0, 300_000))
def test_crc_of_any_kind_of_buffer(some: bytes, size: int) -> None:
    data = (some + b"x") * (size // (len(some) + 1) + 1)
    assert crc32c(bytearray(data)) == crc32c(memoryview(bytearray(data))) == crc32c(data)


def test_offset_and_epoch_are_outside_the_crc() -> None:
    batch = build_batch([Record(None, b"a", 1), Record(None, b"b", 2)])
    header = validate_produce(batch, 1000)
    set_base_offset_and_epoch(batch, header, 2**40, 9)
    again = parse_header(batch)
    assert (again.base_offset, again.last_offset, again.partition_leader_epoch) == (
        2**40,
        2**40 + 1,
        9,
    )
    assert check_crc(batch, again)


def test_log_append_time_counts_for_every_record() -> None:
    batch = build_batch([Record(None, b"a", 1), Record(None, b"b", 2)])
    set_max_timestamp(batch, parse_header(batch), 777, append_time=True)
    header = parse_header(batch)
    assert header.timestamp_type == 1
    assert header.max_timestamp == 777
    assert check_crc(batch, header)
    assert [record.timestamp for record in records_of(batch)] == [777, 777]


def test_a_partial_batch_at_the_end_is_left_out() -> None:
    one, two = build_batch([Record(None, b"a")]), build_batch([Record(None, b"b")], base_offset=1)
    for cut in range(len(two)):
        assert [h.base_offset for h in batches(bytes(one + two[:cut]))] == [0]
    assert [h.position for h in batches(one + two)] == [0, len(one)]


def test_what_a_client_must_not_send() -> None:
    good = build_batch([Record(None, b"a" * 50)])
    assert _produce(b"") == ErrorCode.INVALID_RECORD
    assert _produce(good[:-1]) == ErrorCode.INVALID_RECORD
    assert _produce(good + good) == ErrorCode.INVALID_RECORD
    assert _produce(good, limit=len(good)) == ErrorCode.NONE
    assert _produce(good, limit=len(good) - 1) == ErrorCode.MESSAGE_TOO_LARGE
    marker = build_marker(Marker(True, 0), 1, 0, 0)
    assert _produce(marker) == ErrorCode.INVALID_RECORD
    without_sequence = build_batch([Record(None, b"a")], producer_id=4, producer_epoch=0)
    assert _produce(without_sequence) == ErrorCode.INVALID_RECORD
    for magic in (0, 1):
        old = bytearray(good)
        old[records.MAGIC_OFFSET] = magic
        assert _produce(old) == ErrorCode.INVALID_RECORD
        assert _produce(old[:30]) == ErrorCode.INVALID_RECORD
    unknown = bytearray(good)
    unknown[records.MAGIC_OFFSET] = 3
    assert _produce(unknown) == ErrorCode.CORRUPT_MESSAGE
    no_length = bytearray(good)
    no_length[8:12] = bytes(4)
    assert _produce(no_length) == ErrorCode.CORRUPT_MESSAGE


def test_record_count_and_offsets_must_agree() -> None:
    batch = build_batch([Record(None, b"a"), Record(None, b"b")])
    batch[57:61] = (3).to_bytes(4, "big")
    crc = crc32c(memoryview(batch)[records.CRC_START :])
    batch[17:21] = crc.to_bytes(4, "big")
    assert _produce(batch) == ErrorCode.INVALID_RECORD


def test_a_follower_checks_what_it_copies() -> None:
    good = build_batch([Record(None, b"a" * 50)])
    assert len(validate_fetched(good + good[:40])) == 1
    bad = bytearray(good)
    bad[-1] ^= 1
    with pytest.raises(ApiError) as caught:
        validate_fetched(good + bad)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("commit", [True, False])
def test_markers(commit: bool) -> None:
    batch = build_marker(Marker(commit, 12), 5, 3, 1000)
    header = parse_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch) == (5, 3)
    assert marker_of(batch, header) == Marker(commit, 12)
    assert list(records_of(batch)) == []


def test_sequences_go_around() -> None:
    assert records.add_to_sequence(5, 3) == 8
    assert records.add_to_sequence(2**31 - 1, 0) == 2**31 - 1
    assert records.add_to_sequence(2**31 - 1, 1) == 0
    assert records.add_to_sequence(2**31 - 2, 5) == 3


def test_damaged_payloads_raise_nothing_else() -> None:
    for codec in list(Compression):
        batch = build_batch([Record(b"key", b"value" * 9, 1)] * 3, compression=codec)
        for position in range(records.HEADER_SIZE, len(batch)):
            bad = bytearray(batch)
            bad[position] ^= 0xFF
            with suppress(ApiError):
                list(records_of(bad))


@pytest.mark.parametrize("codec", ["GZIP", "SNAPPY", "LZ4", "ZSTD"])
def test_what_would_fill_the_memory_is_not_opened(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "OPENED_BYTES", 5 << 20)
    kind, whole = Compression[codec], b"\0" * (5 << 20)
    assert compression.decompress(kind, compression.compress(kind, whole)) == whole
    for data in (compression.compress(kind, whole * 3), compression.compress(kind, whole + b"x")):
        with pytest.raises(compression.DecompressionError, match=r"more than|claims"):
            compression.decompress(kind, data)


def test_a_snappy_block_that_claims_much_gets_no_memory() -> None:
    with pytest.raises(compression.DecompressionError, match="claims 4294967295 bytes"):
        compression.decompress(Compression.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"x" * 20)


def test_gzip_members_are_read_one_after_another() -> None:
    both = gzip.compress(b"one") + gzip.compress(b"two" * 200_000) + b"\0\0"
    assert compression.decompress(Compression.GZIP, both) == b"one" + b"two" * 200_000
    with pytest.raises(compression.DecompressionError, match="ends before"):
        compression.decompress(Compression.GZIP, both[:-20])
