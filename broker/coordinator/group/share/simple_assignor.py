"""The assignor of share groups: each partition has about as many members as any other.

A partition is shared by so many members that each member has something to do: by one where there
are as many partitions as members, by more where there are fewer.  Members keep what they have as
far as that goes.  Where members have subscribed to different topics, each topic is shared out among
its own.

Kafka's `simple` assignor does the same, but in the order of its hash tables: which member gets
which partition may differ.

Source: SimpleAssignor, SimpleHomogeneousAssignmentBuilder, SimpleHeterogeneousAssignmentBuilder of
Apache Kafka 4.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from highwater.broker.coordinator.group.consumer.members import NOTHING, Partitions

NAME: Final = "simple"
_Place = tuple[bytes, int]
"""A topic's id and a partition."""


def assign(
    subscribed: Mapping[str, frozenset[bytes]],
    assignable: Partitions,
    before: Mapping[str, Partitions],
) -> dict[str, Partitions]:
    """The targets of members.  `subscribed` has the topics of each, `assignable` the partitions
    that may be assigned, `before` the targets so far."""
    members = sorted(subscribed)
    held = {m: _places(before.get(m, NOTHING)) for m in members}
    topics = sorted({topic for asked in subscribed.values() for topic in asked})
    found: dict[str, set[_Place]] = {m: set() for m in members}
    if all(asked == subscribed[members[0]] for asked in subscribed.values()):
        shares = [(members, topics)]
    else:
        shares = [([m for m in members if t in subscribed[m]], [t]) for t in topics]
    for sharing, named in shares:
        places = [(t, p) for t in named for p in sorted(assignable.get(t, ()))]
        if places:
            for member, got in _shared(sharing, places, held).items():
                found[member] |= got
    return {member: _partitions(got) for member, got in found.items()}


def _shared(
    members: Sequence[str], places: Sequence[_Place], held: Mapping[str, set[_Place]]
) -> dict[str, set[_Place]]:
    """Shares places among members who may all have any of them."""
    most = -(-len(members) // len(places))
    total = most * len(places)
    ends = [-(-total * i // len(members)) for i in range(len(members) + 1)]
    room = {member: ends[i + 1] - ends[i] for i, member in enumerate(members)}
    found: dict[str, set[_Place]] = {member: set() for member in members}
    count = dict.fromkeys(places, 0)

    def give(member: str, place: _Place) -> None:
        found[member].add(place)
        room[member] -= 1
        count[place] += 1

    for member in members:
        for place in places:
            if place in held[member] and room[member] > 0 and count[place] < most:
                give(member, place)
    for place in places:
        while count[place] < most:
            free = [
                m for m in members if place not in found[m] and (room[m] > 0 or not count[place])
            ]
            if not free:
                break
            give(max(free, key=lambda m: room[m]), place)
    return found


def _places(partitions: Partitions) -> set[_Place]:
    return {(topic, number) for topic, numbers in partitions.items() for number in numbers}


def _partitions(places: Iterable[_Place]) -> Partitions:
    found: dict[bytes, set[int]] = {}
    for topic, number in sorted(places):
        found.setdefault(topic, set()).add(number)
    return {topic: frozenset(numbers) for topic, numbers in found.items()}
