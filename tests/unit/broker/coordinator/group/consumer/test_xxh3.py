"""The hash that a consumer group's record has, against values of the reference program."""

from __future__ import annotations

import pytest

from highwater.broker.coordinator.group.consumer.subscribed_topics import Topic, group_hash
from highwater.broker.coordinator.group.consumer.xxh3 import xxh3_64
from tests.unit.broker.coordinator.group.consumer.consumer_place import Known


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, 0x2D06800538D394C2), (3, 0x5F4299FC161C9CBB), (7, 0xCD2084A62406B69),
        (12, 0x5ACE6A511C10894B), (100, 0x4E4F921A64BD1C), (200, 0xF42A8864FEAF0703),
        (300, 0xFDDA6967CF021DBC), (2000, 0x8D38FC31DC9D9FAB),
    ],
)  # fmt: skip
def test_the_values_are_those_of_xxhsum(size: int, expected: int) -> None:
    assert xxh3_64(bytes(i % 251 for i in range(size))) == expected


def test_a_hash_tells_each_change_of_a_topic() -> None:
    topics = Known()
    topics.add("abc", 3)
    topic = topics.topic("abc")
    assert topic is not None
    assert group_hash({}, topics) == 0
    found = {group_hash({"abc": topic}, topics)}
    found.add(group_hash({"abc": Topic(topic.topic_id, 4)}, topics))
    found.add(group_hash({"abc": Topic(bytes(16), 3)}, topics))
    found.add(group_hash({"abd": topic}, topics))
    topics.racks_of = (("r1", "r2"), ("r1",))
    found.add(group_hash({"abc": topic}, topics))
    found.add(group_hash({"abc": topic, "abd": topic}, topics))
    assert len(found) == 6
    assert all(-(1 << 63) <= value < 1 << 63 for value in found)
