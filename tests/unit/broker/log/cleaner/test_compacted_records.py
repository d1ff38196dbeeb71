"""The cleaner's two readers of a payload: one is fast, one tells all, and both find the same."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from highwater.broker.log.cleaner.compacted_records import key_id, load_keys, scan
from highwater.broker.log.cleaner.offset_map import OffsetMap
from highwater.kafka.errors import ApiError
from highwater.kafka.wire.records import HEADER_SIZE, Record, build_batch, parse_header

BASE = 1000

KEYS = st.one_of(st.none(), st.binary(max_size=3), st.binary(min_size=12, max_size=200))
VALUES = st.one_of(st.none(), st.binary(max_size=200))
RECORDS = st.lists(
    st.builds(Record, KEYS, VALUES, st.integers(0, 1 << 20)), min_size=1, max_size=20
)


def payload(records: list[Record]) -> bytes:
    return bytes(build_batch(records)[61:])


@given(records=RECORDS, skipped=st.integers(0, 25))
@example(records=[Record(b"%d" % n, b"v", 0) for n in range(300)], skipped=63)
@example(records=[Record(b"k" * n, b"v" * n, 0) for n in range(300)], skipped=0)
@settings(deadline=None)
def test_a_keys_offset_is_that_of_its_last_record(records: list[Record], skipped: int) -> None:
    """Lengths and offset deltas of more than 63 take two bytes."""
    data = payload(records)
    found: dict[bytes, int] = {}
    expected: dict[bytes, int] = {}
    for n, record in enumerate(records):
        if record.key is not None and n >= skipped:
            expected[key_id(record.key)] = BASE + n
    load_keys(found, data, len(records), BASE, 1 << 40, BASE + skipped)
    assert found == expected
    scanned = list(scan(data, len(records)))
    assert [(r.key, r.offset_delta, r.tombstone) for r in scanned] == [
        (r.key, n, r.value is None) for n, r in enumerate(records)
    ]


def test_a_record_that_ends_too_early_is_told() -> None:
    data = payload([Record(b"key", b"value", 0)])
    for n in range(1, len(data) - 6):
        with pytest.raises(ApiError):
            list(scan(data[:n], 1))
        with pytest.raises(ApiError):
            load_keys({}, data[:n], 1, 0, 0, 0)


@pytest.mark.parametrize("capacity", [10, 1])
def test_an_offset_beyond_its_batch_does_not_supersede_later_records(capacity: int) -> None:
    """As older versions stored it: the delta of the second record says 2."""
    batch = build_batch([Record(b"a", b"v", 0), Record(b"b", b"v", 0)])
    data = bytearray(batch[HEADER_SIZE:])
    data[len(data) // 2 + 3] = 4
    offsets = OffsetMap(capacity, 0)
    with pytest.raises(ApiError, match="offset 2, and its batch ends at 1"):
        offsets.load(bytes(data), parse_header(batch))
