"""The stored formats, byte for byte, and the partition of a group."""

from __future__ import annotations

import pytest

from highwater.broker.coordinator.group.records import (
    BadRecordError,
    CommittedOffset,
    GroupRecord,
    OffsetRecord,
    StoredGroup,
    StoredMember,
    decode,
    encode,
    subscribed_topics,
)
from highwater.broker.coordinator.shard import java_hash, partition_for
from highwater.kafka.types import TopicPartition

TP = TopicPartition("t", 7)
MEMBER = StoredMember("m", None, "c", "/h", 60000, 10000, b"sub", b"as")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("\U0001f600", 1772899),  # two UTF-16 code units
    ],
)
def test_hash_is_javas(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_the_smallest_hash_has_no_absolute_value() -> None:
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("hello", 50) == 22


@pytest.mark.parametrize(
    "record",
    [
        OffsetRecord("g", TP, CommittedOffset(5, 3, "note", 1000)),
        OffsetRecord("g", TP, CommittedOffset(5, -1, "", 1000, 2000)),
        OffsetRecord("g", TP, None),
        GroupRecord("g", StoredGroup("consumer", 4, "range", "m", 99, (MEMBER,))),
        GroupRecord("g", StoredGroup("consumer", 5, None, None, 99, ())),
        GroupRecord("g", None),
    ],
)
def test_what_is_written_is_read(record: GroupRecord | OffsetRecord) -> None:
    assert decode(*encode(record)) == record


def test_bytes_of_an_offset() -> None:
    key, value = encode(OffsetRecord("g", TP, CommittedOffset(5, 3, "n", 9)))
    assert key == b"\0\1\0\1g\0\1t\0\0\0\7"
    assert value == b"\0\3\0\0\0\0\0\0\0\5\0\0\0\3\0\1n\0\0\0\0\0\0\0\x09"


def test_bytes_of_a_group() -> None:
    stored = StoredGroup("p", 1, "r", "m", 2, (MEMBER,))
    key, value = encode(GroupRecord("g", stored))
    assert key == b"\0\2\0\1g"
    assert value == (
        b"\0\3\0\1p\0\0\0\1\0\1r\0\1m\0\0\0\0\0\0\0\2\0\0\0\1"
        b"\0\1m\xff\xff\0\1c\0\2/h\0\0\xea\x60\0\0\x27\x10\0\0\0\3sub\0\0\0\2as"
    )


def test_values_of_older_brokers() -> None:
    key, _ = encode(OffsetRecord("g", TP, None))
    number = (5).to_bytes(8, "big")
    for version in (0, 2):
        value = version.to_bytes(2, "big") + number + b"\0\1n" + number
        found = decode(key, value)
        assert isinstance(found, OffsetRecord)
        assert found.value == CommittedOffset(5, -1, "n", 5)
    group = b"\0\0\0\1p\0\0\0\1\0\1r\0\1m\0\0\0\1\0\1m\0\1c\0\1h\0\0\0\5\0\0\0\0\0\0\0\0"
    found = decode(b"\0\2\0\1g", group)
    assert isinstance(found, GroupRecord)
    assert found.value is not None
    assert found.value.members == (StoredMember("m", None, "c", "h", 5, 5, b"", b""),)


def test_newer_keys_are_passed_over_and_garbage_is_named() -> None:
    assert decode(b"\0\x11\0\1g", b"whatever") is None
    with pytest.raises(BadRecordError):
        decode(b"\0\1\0\5g", None)
    with pytest.raises(BadRecordError):
        decode(b"\0\2\0\1g", b"\0\x63")
    with pytest.raises(BadRecordError):
        decode(None, None)


def test_subscribed_topics() -> None:
    assert subscribed_topics(b"\0\1\0\0\0\2\0\1a\0\1b\xff\xff\xff\xff") == ("a", "b")
    assert subscribed_topics(b"\0\1\0\0\0\2\0\1a") is None
