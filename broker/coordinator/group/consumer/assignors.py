"""The coordinator's assignors: `uniform` and `range` give each member its target.

`uniform` gives each member as many partitions as any other, and lets members keep what they have
where that allows it.  `range` gives each member of a topic a run of its partitions, so that members
get the same numbers of topics with as many partitions; members are taken in the order of their
instance ids and then of their member ids, so that a static member gets the same runs again.

Where all members have subscribed to the same topics, the partitions that a member keeps and the
numbers are Kafka's.  Where they have not, Kafka's own search for a balance is not repeated: here a
partition moves from the member with most to one with at least two fewer, until there is no such.

Source: UniformAssignor, UniformHomogeneousAssignmentBuilder, RangeAssignor of Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from highwater.broker.coordinator.group.consumer.members import Partitions

Place = tuple[bytes, int]
Target = dict[bytes, set[int]]


class Subscribed(NamedTuple):
    """What an assignor knows of a member."""

    instance_id: str | None
    topic_ids: frozenset[bytes]
    """The topics that exist."""
    target: Partitions
    """Its target so far."""


Members = Mapping[str, Subscribed]
Assignor = Callable[[Members, Mapping[bytes, int]], dict[str, Partitions]]


def uniform(members: Members, counts: Mapping[bytes, int]) -> dict[str, Partitions]:
    """The targets by member; `counts` has the number of partitions of each topic."""
    kept: dict[str, Target] = {}
    if len({member.topic_ids for member in members.values()}) <= 1:
        quotas = _quotas(members, counts)
        for member_id, member in members.items():
            kept[member_id] = _kept(member, counts, quotas[member_id])
        free = iter(_free(counts, members, kept))
        for member_id, target in kept.items():
            for _ in range(quotas[member_id] - _size(target)):
                topic_id, number = next(free)
                target.setdefault(topic_id, set()).add(number)
    else:
        for member_id, member in members.items():
            kept[member_id] = _kept(member, counts, sum(counts.values()))
        _share_out(members, counts, kept)
    return _frozen(kept)


def _quotas(members: Members, counts: Mapping[bytes, int]) -> dict[str, int]:
    """The size of each member's target; where it is one more, that goes to those that have most."""
    if not members:
        return {}
    ordered = sorted(members, key=lambda m: (-sum(map(len, members[m].target.values())), m))
    topic_ids = next(iter(members.values())).topic_ids
    each, more = divmod(sum(counts[topic_id] for topic_id in topic_ids), len(members))
    return {member_id: each + (n < more) for n, member_id in enumerate(ordered)}


def _kept(member: Subscribed, counts: Mapping[bytes, int], quota: int) -> Target:
    """What a member keeps of its target: partitions that exist, and no more than its quota."""
    kept: Target = {}
    for topic_id, numbers in member.target.items():
        if topic_id not in member.topic_ids:
            continue
        some = [number for number in sorted(numbers) if number < counts[topic_id]][:quota]
        quota -= len(some)
        if some:
            kept[topic_id] = set(some)
    return kept


def _free(counts: Mapping[bytes, int], members: Members, kept: Mapping[str, Target]) -> list[Place]:
    taken = {(topic, n) for t in kept.values() for topic, numbers in t.items() for n in numbers}
    wanted = {topic_id for member in members.values() for topic_id in member.topic_ids}
    return [
        (topic_id, number)
        for topic_id, count in counts.items()
        if topic_id in wanted
        for number in range(count)
        if (topic_id, number) not in taken
    ]


def _share_out(members: Members, counts: Mapping[bytes, int], kept: dict[str, Target]) -> None:
    """Gives what is free to the member with least, and then moves what makes targets more equal."""
    readers: dict[bytes, list[str]] = {
        topic_id: [m for m, member in members.items() if topic_id in member.topic_ids]
        for topic_id in counts
    }
    sizes = {member_id: _size(target) for member_id, target in kept.items()}
    free = _free(counts, members, kept)
    for topic_id, number in sorted(free, key=lambda place: len(readers[place[0]])):
        least = min(readers[topic_id], key=lambda m: sizes[m])
        kept[least].setdefault(topic_id, set()).add(number)
        sizes[least] += 1
    moved = True
    while moved:
        moved = False
        for most in sorted(sizes, key=lambda m: -sizes[m]):
            for topic_id in list(kept[most]):
                least = min(readers[topic_id], key=lambda m: sizes[m])
                while sizes[most] - sizes[least] > 1 and kept[most].get(topic_id):
                    number = max(kept[most][topic_id])
                    kept[most][topic_id].discard(number)
                    kept[least].setdefault(topic_id, set()).add(number)
                    sizes[most] -= 1
                    sizes[least] += 1
                    moved = True
                    least = min(readers[topic_id], key=lambda m: sizes[m])


def ranges(members: Members, counts: Mapping[bytes, int]) -> dict[str, Partitions]:
    """The targets by member, of the assignor `range`."""

    def place(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, member_id if instance_id is None else instance_id

    ordered = sorted(members, key=place)
    targets: dict[str, Target] = {member_id: {} for member_id in members}
    for topic_id, count in counts.items():
        readers = [m for m in ordered if topic_id in members[m].topic_ids]
        if not readers:
            continue
        each, more = divmod(count, len(readers))
        begin = 0
        for n, member_id in enumerate(readers):
            end = begin + each + (n < more)
            if begin < end:
                targets[member_id][topic_id] = set(range(begin, end))
            begin = end
    return _frozen(targets)


def _size(target: Target) -> int:
    return sum(map(len, target.values()))


def _frozen(targets: Mapping[str, Target]) -> dict[str, Partitions]:
    return {
        member_id: {topic_id: frozenset(n) for topic_id, n in target.items() if n}
        for member_id, target in targets.items()
    }


ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": uniform, "range": ranges}
"""By the names that members ask for."""


def preferred(votes: Mapping[str, int], default: str) -> str:
    """The assignor that most members ask for."""
    return max(votes, key=lambda name: votes[name]) if votes else default


def names(configured: str) -> tuple[str, ...]:
    """The names in group.consumer.assignors, where a class of Kafka's may stand for one."""
    classes = {
        "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
        "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
    }
    asked = (name.strip() for name in configured.split(",") if name.strip())
    return tuple(dict.fromkeys(classes.get(name, name) for name in asked))
