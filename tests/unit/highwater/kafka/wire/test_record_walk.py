"""The walk over a batch's records: whatever the parts and the steps, it finds the same."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.wire.record_codec import Record, encode_record, encode_varint
from highwater.kafka.wire.record_walk import DONE, FEED, NO_KEY, OUT_OF_TIME, RecordWalk
from highwater.kafka.wire.records import HEADER_SIZE, build_batch

LOW, HIGH = -(1 << 63), (1 << 63) - 1


def walked(
    payload: bytes,
    count: int,
    cuts: list[int] | None = None,
    budget: int = 1 << 30,
    *,
    base: int = 1000,
    keyed: bool = False,
    times: tuple[int, int] = (LOW, HIGH),
) -> tuple[object, ...]:
    """The outcome, the same for each way to cut: the error's code and text, or what was found."""
    walk = RecordWalk(count, base, keyed, *times)
    ends = [0, *sorted(cuts or []), len(payload)]
    try:
        for start, end in pairwise(ends):
            walk.feed(payload[start:end], end == len(payload))
            for _ in range(4 * len(payload) + 8):
                state = walk.walk()
                if state in (FEED, DONE):
                    break
                walk.budget = budget
            else:
                pytest.fail("the walk does not end")
        if state != DONE:
            pytest.fail(f"the walk ends with {state}")
    except ApiError as error:
        return (error.code,)
    return (walk.max_timestamp, walk.refused, walk.refusals)


def payload_of(records: list[Record]) -> bytes:
    return bytes(build_batch(records)[HEADER_SIZE:])


_headers = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=40)
_records = st.lists(
    st.builds(
        Record,
        st.none() | st.binary(max_size=70),
        st.none() | st.binary(max_size=200) | st.sampled_from([bytes(9000), bytes(40_000)]),
        st.integers(-5, 2**40) | st.sampled_from([0, -1, 2**62]),
        _headers.map(tuple),
    ),
    min_size=1,
    max_size=80,
)


@settings(max_examples=60, deadline=None)
@given(_records, st.randoms(use_true_random=False), st.integers(1, 50))
def test_good_records_are_found_whatever_the_parts(
    records: list[Record], chance: Random, budget: int
) -> None:
    payload, base = payload_of(records), records[0].timestamp
    times = (0, 2**40)
    cuts = [chance.randrange(len(payload) + 1) for _ in range(chance.randrange(8))]
    whole = walked(payload, len(records), base=base, keyed=True, times=times)
    assert whole[0] == max(-1, *(record.timestamp for record in records))
    expected = [
        (index, NO_KEY if record.key is None else OUT_OF_TIME, record.timestamp)
        for index, record in enumerate(records)
        if record.key is None or (record.timestamp != -1 and not 0 <= record.timestamp <= 2**40)
    ]
    assert whole[1:] == (expected, len(expected))
    assert walked(
        payload, len(records), cuts, budget, base=base, keyed=True, times=times
    ) == whole  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(_records, st.randoms(use_true_random=False), st.integers(1, 50))
def test_damage_has_one_outcome_whatever_the_parts(
    records: list[Record], chance: Random, budget: int
) -> None:
    payload, count = bytearray(payload_of(records)), len(records)
    for _ in range(chance.randrange(3)):
        payload[chance.randrange(min(len(payload), 300))] = chance.randrange(256)
    if chance.random() < 0.3:
        del payload[chance.randrange(len(payload)) :]
    count += chance.choice([0, 0, 0, 1, -1]) if count > 1 else 0
    cuts = [chance.randrange(len(payload) + 1) for _ in range(chance.randrange(8))]
    data = bytes(payload)
    assert walked(data, count, cuts, budget) == walked(data, count)


def record(body: bytes, length: int | None = None) -> bytes:
    return encode_varint(len(body) if length is None else length) + body


BODY = encode_record(Record(b"k", b"v", 0), 0, 0)[1:]


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        (b"", 1),
        (record(BODY), 2),
        (record(BODY) + b"z", 1),
        (record(BODY) * 2, 2),  # offset delta 0 twice
        *(
            (record(BODY, length), 1)
            for length in (-1, 0, 1, len(BODY) - 1, len(BODY) + 1, 1 << 30)
        ),
        (record(BODY + b"zz"), 1),
        (record(b"\0" + b"\x80" * 10 + b"\x01" + BODY[2:]), 1),  # a timestamp of 11 bytes
        (record(b"\0\0" + b"\x80" * 5 + b"\x01" + BODY[3:]), 1),  # an offset of 6
        (record(b"\0\0\0\xfe\xff\xff\xff\x0f"), 1),  # a key of 2 GiB
        (record(b"\0\0\0\x01\x01\x01"), 1),  # -1 headers
        (record(b"\0\0\0\x01\x01\xfe\xff\xff\xff\x0f"), 1),  # 2^31-1 headers
        (record(b"\0\0\0\x01\x01\x02\x01\x01"), 1),  # a header without a name
    ],
)
def test_what_is_no_record(payload: bytes, count: int) -> None:
    for budget in (1, 1 << 30):
        assert walked(payload, count, budget=budget) == (ErrorCode.INVALID_RECORD,)
        assert walked(payload, count, [1], budget) == (ErrorCode.INVALID_RECORD,)


def test_numbers_are_read_as_kafka_reads_them() -> None:
    long_zero = b"\x80\x80\x80\x80\x00"
    assert walked(record(b"\0\0" + long_zero + b"\x01\x01\0"), 1) == (1000, [], 0)
    dropped = b"\x80\x80\x80\x80\x70"  # bits above the 32nd
    assert walked(record(b"\0\0" + dropped + b"\x01\x01\0"), 1) == (1000, [], 0)
    null = encode_varint(-77)
    assert walked(record(b"\0\0\0" + null + null + b"\0"), 1) == (1000, [], 0)
    wraps = record(b"\0" + encode_varint(HIGH) + b"\0\x01\x01\0")
    assert walked(wraps, 1, base=5) == (-1, [], 0)
    assert walked(wraps, 1, base=-5)[0] == HIGH - 5
    assert walked(wraps, 1, base=HIGH)[0] == -1


def test_a_step_is_bounded_also_in_a_record_of_many_headers() -> None:
    one = Record(b"k", b"v", 1000, tuple((str(n), b"x") for n in range(5000)))
    walk = RecordWalk(1, 1000, False, LOW, HIGH)
    walk.feed(payload_of([one]), True)
    steps = 0
    while walk.walk() != DONE:
        walk.budget = 100
        steps += 1
    assert steps > 50
