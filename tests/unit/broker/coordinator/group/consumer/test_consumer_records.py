"""The records of consumer groups, byte by byte, and what comes of damaged ones."""

from __future__ import annotations

import pytest

from highwater.broker.coordinator.group.consumer.members import (
    Classic,
    Current,
    MemberState,
    Resolved,
    Subscription,
)
from highwater.broker.coordinator.group.consumer.records import (
    ConsumerRecord,
    CurrentRecord,
    EpochRecord,
    GroupEpoch,
    MemberRecord,
    RegexRecord,
    TargetEpochRecord,
    TargetRecord,
    TopicsRecord,
)
from highwater.broker.coordinator.group.records import BadRecordError, decode, encode

T = bytes(range(16))
RECORDS: list[ConsumerRecord] = [
    EpochRecord("g", GroupEpoch(7)),
    EpochRecord("g", GroupEpoch(7, -5)),
    EpochRecord("g", None),
    TopicsRecord("g"),
    MemberRecord("g", "m", Subscription("i", "r", "c", "/h", ("a", "b"), "x.*", 5000, "range")),
    MemberRecord("g", "m", Subscription()),
    MemberRecord("g", "m", Subscription(classic=Classic(30_000, (("range", b"\0\1"), ("b", b""))))),
    MemberRecord("g", "m", None),
    TargetEpochRecord("g", 3),
    TargetEpochRecord("g", None),
    TargetRecord("g", "m", {T: frozenset((1, 2))}),
    TargetRecord("g", "m", {}),
    TargetRecord("g", "m", None),
    CurrentRecord("g", "m", Current(4, 3, MemberState.UNREVOKED_PARTITIONS, {T: frozenset((1,))},
                                    {T: frozenset((2,))})),
    CurrentRecord("g", "m", None),
    RegexRecord("g", "x.*", Resolved(("xa",), 12, 13)),
    RegexRecord("g", "x.*", None),
]  # fmt: skip


@pytest.mark.parametrize("record", RECORDS)
def test_each_record_is_read_as_it_was_written(record: ConsumerRecord) -> None:
    assert decode(*encode(record)) == record


def test_the_bytes_are_kafkas() -> None:
    assert encode(EpochRecord("g", GroupEpoch(7))) == (b"\0\3\0\1g", b"\0\0\0\0\0\7\0")
    _, hashed = encode(EpochRecord("g", GroupEpoch(7, 1)))
    assert hashed == b"\0\0\0\0\0\7\1\0\x08" + b"\0" * 7 + b"\1"
    key, value = encode(TargetRecord("g", "m", {T: frozenset((2, 1))}))
    assert key == b"\0\7\0\1g\0\1m"
    assert value == b"\0\0\2" + T + b"\3\0\0\0\1\0\0\0\2\0\0"
    assert encode(RegexRecord("g", "x", None))[0] == b"\0\x10\0\1g\0\1x"


def test_a_topics_record_of_an_older_version_is_known_by_its_key() -> None:
    assert decode(b"\0\4\0\1g", b"\0\0\1\0") == TopicsRecord("g", b"\0\0\1\0")


def test_unknown_tags_and_states_are_taken() -> None:
    assert decode(b"\0\6\0\1g", b"\0\0\0\0\0\3\1\x05\2ab") == TargetEpochRecord("g", 3)
    key, value = encode(CurrentRecord("g", "m", Current(4)))
    assert value is not None
    record = decode(key, value[:10] + b"\x63" + value[11:])
    assert isinstance(record, CurrentRecord)
    assert record.value is not None
    assert record.value.state is MemberState.UNKNOWN


@pytest.mark.parametrize("record", [r for r in RECORDS if r.value is not None])
def test_damaged_values_are_named(record: ConsumerRecord) -> None:
    key, value = encode(record)
    assert value is not None
    for size in range(len(value) - 1):
        with pytest.raises(BadRecordError):
            decode(key, value[:size])
    with pytest.raises(BadRecordError, match="v99"):
        decode(key, b"\0\x63" + value[2:])
    with pytest.raises(BadRecordError):
        decode(key[:4], value)
