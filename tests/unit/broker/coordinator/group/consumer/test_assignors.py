"""The targets that `uniform` and `range` give."""

from __future__ import annotations

import random

import pytest

from highwater.broker.coordinator.group.consumer.assignors import (
    ASSIGNORS,
    Subscribed,
    names,
    preferred,
    ranges,
    uniform,
)
from highwater.broker.coordinator.group.consumer.members import Partitions

T, U = b"t" * 16, b"u" * 16


def member(
    *topics: bytes, target: Partitions | None = None, instance: str | None = None
) -> Subscribed:
    return Subscribed(instance, frozenset(topics), target or {})


def sizes(targets: dict[str, Partitions]) -> list[int]:
    return sorted(sum(map(len, target.values())) for target in targets.values())


def test_ranges_are_runs_in_the_order_of_instances_and_members() -> None:
    members = {"b": member(T, U), "a": member(T), "z": member(T, U, instance="1")}
    found = ranges(members, {T: 4, U: 3})
    assert found["z"] == {T: frozenset((0, 1)), U: frozenset((0, 1))}
    assert found["a"] == {T: frozenset((2,))}
    assert found["b"] == {T: frozenset((3,)), U: frozenset((2,))}


def test_uniform_keeps_what_it_can() -> None:
    before = {"a": member(T, target={T: frozenset(range(5))}), "b": member(T), "c": member(T)}
    found = uniform(before, {T: 5})
    assert sizes(found) == [1, 2, 2]
    assert found["a"][T] == {0, 1}
    after = {m: member(T, target=target) for m, target in found.items()}
    assert uniform(after, {T: 5}) == found, "nothing moves without a reason"
    del after["c"]
    smaller = uniform(after, {T: 5})
    assert all(found[m][T] <= smaller[m][T] for m in after)


def test_uniform_takes_what_is_no_longer_there() -> None:
    gone = {"a": member(T, target={T: frozenset((0, 7)), U: frozenset((0,))})}
    assert uniform(gone, {T: 2}) == {"a": {T: frozenset((0, 1))}}


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("seed", range(30))
def test_each_partition_has_one_reader_that_subscribes_to_it(name: str, seed: int) -> None:
    chance = random.Random(seed)
    counts = {bytes((n,)) * 16: chance.randint(0, 9) for n in range(4)}
    members: dict[str, Subscribed] = {}
    for _ in range(6):
        member_id = f"m{chance.randint(0, 9)}"
        topics = chance.sample(sorted(counts), chance.randint(0, 4))
        members[member_id] = member(*topics)
        targets = ASSIGNORS[name](members, counts)
        assert targets.keys() == members.keys()
        given = [
            (t, n) for target in targets.values() for t, numbers in target.items() for n in numbers
        ]
        assert len(given) == len(set(given))
        wanted = {t for m in members.values() for t in m.topic_ids}
        assert len(given) == sum(counts[t] for t in wanted)
        for m, target in targets.items():
            assert target.keys() <= members[m].topic_ids
        members = {m: found._replace(target=targets[m]) for m, found in members.items()}


def test_uniform_is_balanced_where_subscriptions_differ() -> None:
    members = {"a": member(T, U), "b": member(T), "c": member(U)}
    assert sizes(uniform(members, {T: 6, U: 3})) == [3, 3, 3]


def test_names_and_votes() -> None:
    classes = "org.apache.kafka.coordinator.group.assignor.RangeAssignor, uniform"
    assert names(classes) == ("range", "uniform")
    assert preferred({"a": 1, "b": 2}, "c") == "b"
    assert preferred({}, "c") == "c"
