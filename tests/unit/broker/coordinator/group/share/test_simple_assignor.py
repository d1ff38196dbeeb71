"""Partitions shared out among the members of a share group."""

from __future__ import annotations

import random

import pytest

from highwater.broker.coordinator.group.consumer.members import Partitions
from highwater.broker.coordinator.group.share.simple_assignor import assign

T, U = b"t" * 16, b"u" * 16


def of(parts: Partitions, topic: bytes = T) -> list[int]:
    return sorted(parts.get(topic, ()))


def test_a_member_has_all_and_two_have_half_each() -> None:
    four = {T: frozenset(range(4))}
    one = assign({"a": frozenset({T})}, four, {})
    assert of(one["a"]) == [0, 1, 2, 3]
    two = assign({m: frozenset({T}) for m in "ab"}, four, one)
    assert of(two["a"]) == [0, 1], "it keeps what it may"
    assert of(two["b"]) == [2, 3]
    assert assign({"b": frozenset({T})}, four, two)["b"] == four


def test_more_members_than_partitions_share_them() -> None:
    five = assign({m: frozenset({T}) for m in "abcde"}, {T: frozenset({0, 1})}, {})
    counts = [sum(number in of(parts) for parts in five.values()) for number in (0, 1)]
    assert counts == [3, 3]
    assert sorted(len(of(parts)) for parts in five.values()) == [1, 1, 1, 1, 2]


def test_only_what_is_assignable_and_subscribed() -> None:
    found = assign(
        {"a": frozenset({T}), "b": frozenset({T, U}), "c": frozenset()},
        {T: frozenset({1}), U: frozenset({0, 1})},
        {"c": {T: frozenset({0})}},
    )
    assert found == {
        "a": {T: frozenset({1})}, "b": {T: frozenset({1}), U: frozenset({0, 1})}, "c": {},
    }  # fmt: skip
    assert assign({"a": frozenset({T})}, {}, {}) == {"a": {}}
    assert assign({}, {}, {}) == {}


@pytest.mark.parametrize("seed", range(40))
def test_each_partition_has_about_as_many_members(seed: int) -> None:
    drawn = random.Random(seed)
    members = [f"m{i}" for i in range(drawn.randrange(1, 12))]
    assignable = {T: frozenset(range(drawn.randrange(1, 9))), U: frozenset(range(3))}
    mixed = drawn.random() < 0.5
    before: dict[str, Partitions] = {}
    for _ in range(3):
        subscribed = {
            m: frozenset({T, U} if not mixed or drawn.random() < 0.5 else {drawn.choice((T, U))})
            for m in members
        }
        found = assign(subscribed, assignable, before)
        for topic, numbers in assignable.items():
            counts = [sum(n in of(parts, topic) for parts in found.values()) for n in numbers]
            if any(topic in asked for asked in subscribed.values()):
                assert min(counts) >= 1
            assert max(counts) - min(counts) <= 1
        assert all(set(parts) <= subscribed[m] for m, parts in found.items())
        if not mixed:
            assert all(found.values()), "nobody is idle"
        assert assign(subscribed, assignable, found) == found, "it is stable"
        before = {m: found[m] for m in members if drawn.random() < 0.8}
        members = [m for m in members if drawn.random() < 0.8] or members
