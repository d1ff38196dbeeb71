"""The records of share groups against bytes of Apache Kafka 4.2's own classes."""

from __future__ import annotations

import pytest

from highwater.broker.coordinator.group.consumer.members import Current, MemberState, Subscription
from highwater.broker.coordinator.group.consumer.records import GroupEpoch
from highwater.broker.coordinator.group.records import BadRecordError, decode, encode
from highwater.broker.coordinator.group.share.records import (
    CurrentRecord,
    EpochRecord,
    MemberRecord,
    ShareRecord,
    StateRecord,
    StateTopics,
    TargetEpochRecord,
    TargetRecord,
)

A = bytes.fromhex("00000000000000010000000000000002")
B = bytes.fromhex("00000000000000030000000000000004")
PARTS = {A: frozenset({0, 2}), B: frozenset({1})}
GROUP, MEMBER = "000167", "00016700016d"
TOLD = (
    "03" + A.hex() + "030000000000000002" + "00" + B.hex() + "0200000001" + "00"
)  # two topics with their partitions
STATE = StateTopics({A: PARTS[A]}, {B: PARTS[B]}, frozenset({B}), {A: "a", B: "b"})
RECORDS: list[tuple[ShareRecord, str, str | None]] = [
    (MemberRecord("g", "m", Subscription(None, "r", "c", "/h", ("a", "b"))), "000a" + MEMBER,
     "000002720263032f68030261026200"),
    (MemberRecord("g", "m", Subscription(None, None, "c", "/h", ("a",))), "000a" + MEMBER,
     "0000000263032f6802026100"),
    (MemberRecord("g", "m", None), "000a" + MEMBER, None),
    (EpochRecord("g", GroupEpoch(7, -9)), "000b" + GROUP, "000000000007fffffffffffffff700"),
    (EpochRecord("g", None), "000b" + GROUP, None),
    (TargetEpochRecord("g", 7), "000c" + GROUP, "00000000000700"),
    (TargetEpochRecord("g", None), "000c" + GROUP, None),
    (TargetRecord("g", "m", PARTS), "000d" + MEMBER, "0000" + TOLD + "00"),
    (TargetRecord("g", "m", None), "000d" + MEMBER, None),
    (CurrentRecord("g", "m", Current(5, 4, MemberState.STABLE, PARTS)), "000e" + MEMBER,
     "0000" + "000000050000000400" + TOLD + "00"),
    (CurrentRecord("g", "m", None), "000e" + MEMBER, None),
    (StateRecord("g", STATE), "000f" + GROUP,
     "0000" + "02" + A.hex() + "026103000000000000000200" + "02" + B.hex() + "0262020000000100"
     + "02" + B.hex() + "026200" + "00"),
    (StateRecord("g", None), "000f" + GROUP, None),
]  # fmt: skip


@pytest.mark.parametrize(("record", "key", "value"), RECORDS)
def test_kafkas_bytes(record: ShareRecord, key: str, value: str | None) -> None:
    data = bytes.fromhex(key), None if value is None else bytes.fromhex(value)
    assert encode(record) == data
    assert decode(*data) == record


def test_what_is_damaged_or_newer() -> None:
    key, value = encode(RECORDS[0][0])
    assert value is not None
    for broken in (b"\0\1" + value[2:], value[:5], b""):
        with pytest.raises(BadRecordError):
            decode(key, broken)
