"""A member's next step towards its target.

    STABLE                 has come to its target; a new one begins the way again
    UNREVOKED_PARTITIONS   keeps its epoch until its heartbeat no longer names what it must give up
    UNRELEASED_PARTITIONS  is at the target's epoch, and waits for partitions of others

A member is told at once what it must give up, and gets nothing new before it has done so.  So no
partition ever has two owners.

Source: CurrentAssignmentBuilder of Kafka's group coordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from highwater.broker.coordinator.group.consumer.members import (
    Current,
    MemberState,
    Partitions,
    overlap,
)
from highwater.kafka.errors import ApiError, ErrorCode

Free = Callable[[bytes, int], bool]
"""Whether no member has a partition."""


def next_step(
    current: Current,
    target: tuple[int, Partitions],
    owned: Partitions | None,
    is_free: Free,
    subscribed: frozenset[bytes] | None,
) -> Current:
    """The member's next epoch and partitions; the same if it cannot go on.

    `target` is its epoch and the member's part; `owned` is what the member says it has, None if it
    does not say.  `subscribed` is given if the subscription has just changed: topics that it no
    longer names are given up at once.  Raises FENCED_MEMBER_EPOCH where the state is unknown.
    """
    match current.state:
        case MemberState.STABLE:
            if current.epoch != target[0]:
                return _towards(current, target, owned, is_free, subscribed)
            return current if subscribed is None else _without(current, owned, subscribed)
        case MemberState.UNREVOKED_PARTITIONS:
            if owned is None or overlap(owned, current.revoking):
                return current if subscribed is None else _without(current, owned, subscribed)
        case MemberState.UNKNOWN if owned is None or any(owned.values()):
            raise ApiError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "the member's state is of a newer version; give up all partitions and join again",
            )
    return _towards(current, target, owned, is_free, subscribed)


def _without(current: Current, owned: Partitions | None, subscribed: frozenset[bytes]) -> Current:
    """The member without the topics that it has left."""
    left = {t: numbers for t, numbers in current.assigned.items() if t not in subscribed}
    if not left:
        return current
    assigned = {t: numbers for t, numbers in current.assigned.items() if t in subscribed}
    revoking = dict(current.revoking)
    for topic_id, numbers in left.items():
        revoking[topic_id] = revoking.get(topic_id, frozenset()) | numbers
    if owned is None or overlap(owned, revoking):
        unrevoked = MemberState.UNREVOKED_PARTITIONS
        return replace(
            current, previous_epoch=current.epoch, state=unrevoked, assigned=assigned,
            revoking=revoking,
        )  # fmt: skip
    return replace(current, previous_epoch=current.epoch, assigned=assigned)


def _towards(
    current: Current,
    target: tuple[int, Partitions],
    owned: Partitions | None,
    is_free: Free,
    subscribed: frozenset[bytes] | None,
) -> Current:
    epoch, wanted = target
    assigned: dict[bytes, frozenset[int]] = {}
    revoking: dict[bytes, frozenset[int]] = {}
    coming: dict[bytes, frozenset[int]] = {}
    waits = False
    for topic_id in dict.fromkeys((*wanted, *current.assigned)):
        of_target = wanted.get(topic_id, frozenset())
        if subscribed is not None and topic_id not in subscribed:
            of_target = frozenset()
        has = current.assigned.get(topic_id, frozenset())
        new = of_target - has
        free = frozenset(number for number in new if is_free(topic_id, number))
        waits = waits or len(free) < len(new)
        for found, numbers in ((assigned, has & of_target), (revoking, has - of_target),
                               (coming, free)):  # fmt: skip
            if numbers:
                found[topic_id] = numbers
    if revoking and (owned is None or overlap(owned, revoking)):
        return Current(
            current.epoch, current.epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoking
        )
    for topic_id, numbers in coming.items():
        assigned[topic_id] = assigned.get(topic_id, frozenset()) | numbers
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return Current(epoch, current.epoch, state, assigned)
