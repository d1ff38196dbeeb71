"""A consumer's view of a Fetch answer."""

from __future__ import annotations

import pytest

from highwater.kafka.client.fetched import CorruptBatch, visible
from highwater.kafka.wire.records import TRANSACTIONAL, Marker, Record, build_batch, build_marker


def batch(offset: int, *values: bytes, producer: int = -1, transactional: bool = False) -> bytes:
    return bytes(
        build_batch(
            [Record(None, value, 1000) for value in values], base_offset=offset,
            partition_leader_epoch=3, producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1, base_sequence=10 if producer >= 0 else -1,
            attributes=TRANSACTIONAL if transactional else 0,
        )
    )  # fmt: skip


def marker(offset: int, producer: int, *, commit: bool) -> bytes:
    data = build_marker(Marker(commit, 0), producer, 0, 1000)
    data[0:8] = offset.to_bytes(8, "big")
    return bytes(data)


def seen(
    data: bytes, position: int = 0, aborted: list[tuple[int, int]] | None = None
) -> tuple[list[bytes | None], int]:
    records, end = visible(memoryview(data), position, aborted)
    return [record.value for record in records], end


def test_records_before_the_position_are_left_out() -> None:
    data = batch(10, b"a", b"b", b"c", producer=5) + batch(13, b"d")
    records, end = visible(memoryview(data), 11, None)
    assert [(r.offset, r.value, r.sequence) for r in records] == [
        (11, b"b", 11),
        (12, b"c", 12),
        (13, b"d", -1),
    ]
    assert {r.leader_epoch for r in records} == {3}
    assert end == 14


def test_a_batch_that_was_cut_is_read_next_time() -> None:
    data = batch(0, b"a") + batch(1, b"b" * 100)[:80]
    assert seen(data) == ([b"a"], 1)
    assert seen(b"") == ([], 0)


def test_control_batches_move_the_position_only() -> None:
    data = batch(0, b"a", producer=1, transactional=True) + marker(1, 1, commit=True)
    assert seen(data) == ([b"a"], 2)
    assert seen(data, aborted=[]) == ([b"a"], 2)


def test_aborted_records_are_left_out_until_their_marker() -> None:
    data = (
        batch(0, b"kept", producer=1, transactional=True)
        + batch(1, b"aborted", producer=2, transactional=True)
        + batch(2, b"plain", producer=2)
        + marker(3, 1, commit=True)
        + batch(4, b"aborted too", producer=2, transactional=True)
        + marker(5, 2, commit=False)
        + batch(6, b"next", producer=2, transactional=True)
        + marker(7, 2, commit=True)
    )
    assert seen(data, aborted=[(2, 1)]) == ([b"kept", b"plain", b"next"], 8)
    assert len(seen(data)[0]) == 5


def test_a_flipped_bit_is_noticed() -> None:
    data = bytearray(batch(0, b"abc"))
    data[-1] ^= 1
    with pytest.raises(CorruptBatch):
        visible(memoryview(data), 0, None)
