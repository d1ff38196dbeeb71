"""Chooses the brokers for a new topic's replicas: evenly, over as many racks as there are.

Brokers stand in a ring (with racks: alternating between them).  A partition's first replica, its
preferred leader, is the next broker of the ring from a random start; the others follow at a shift
that grows with each turn of the ring, so that the replicas of one broker's partitions are spread
over all of the others. With racks, a broker is passed over while its rack already holds a replica
and another rack holds none.

Source: org.apache.kafka.admin.AdminUtils (the same ring, so the same placement from the same
start).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from highwater.kafka.errors import ApiError, ErrorCode

Assignment = dict[int, tuple[int, ...]]


class Random(Protocol):
    def randrange(self, stop: int, /) -> int: ...


MOST_AT_ONCE = 10_000
"""The most new partitions in one request: a typing mistake must not hold up the controller.
Apache Kafka has this bound in KRaft mode alone (ReplicationControlManager)."""


def assign_replicas(
    racks: Mapping[int, str | None],
    partitions: int,
    replication_factor: int,
    random: Random,
    *,
    start_index: int = -1,
    first_partition: int = 0,
) -> Assignment:
    """Replicas by partition, for brokers with their racks; raises ApiError.

    `start_index` (in the ring) and `first_partition` let partitions be added to a topic.
    """
    if partitions <= 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, "a topic needs one partition or more")
    if partitions > MOST_AT_ONCE:
        detail = f"{partitions} partitions at once; {MOST_AT_ONCE} are the most, as in KRaft mode"
        raise ApiError(ErrorCode.POLICY_VIOLATION, detail)
    if replication_factor <= 0:
        detail = "the replication factor must be 1 or more"
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, detail)
    if replication_factor > len(racks):
        detail = f"replication factor {replication_factor}, but only {len(racks)} brokers are alive"
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, detail)
    ring = rack_alternated(racks)
    by_rack = {broker: rack for broker, rack in racks.items() if rack is not None}
    if by_rack and len(by_rack) < len(racks):
        detail = "some brokers have a broker.rack and others do not; give all of them one, or none"
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, detail)
    start = start_index if start_index >= 0 else random.randrange(len(ring))
    shift = start_index if start_index >= 0 else random.randrange(len(ring))
    assignment: Assignment = {}
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % len(ring) == 0:
            shift += 1
        first = (partition + start) % len(ring)
        if by_rack:
            assignment[partition] = _over_racks(ring, by_rack, first, shift, replication_factor)
        else:
            others = range(replication_factor - 1)
            assignment[partition] = (ring[first], *(_other(ring, first, shift + j) for j in others))
    return assignment


def rack_alternated(racks: Mapping[int, str | None]) -> list[int]:
    """The brokers, one of each rack in turn; by id where there are no racks."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker] or "", []).append(broker)
    queues = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max((len(q) for q in queues), default=0)
    return [q[i] for i in range(longest) for q in queues if i < len(q)]


def _other(ring: Sequence[int], first: int, shift: int) -> int:
    """The broker at a shift from the first one, which is itself passed over."""
    return ring[(first + 1 + shift % (len(ring) - 1)) % len(ring)]


def _over_racks(
    ring: Sequence[int], racks: Mapping[int, str], first: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    rack_count = len(dict.fromkeys(racks.values()))
    replicas = [ring[first]]
    used_racks = {racks[ring[first]]}
    step = 0
    while len(replicas) < replication_factor:
        broker = _other(ring, first, shift * rack_count + step)
        step += 1
        if broker in replicas:
            continue
        if racks[broker] in used_racks and len(used_racks) < rack_count:
            continue
        replicas.append(broker)
        used_racks.add(racks[broker])
    return tuple(replicas)


def check_assignment(assignment: Mapping[int, Sequence[int]]) -> None:
    """Raises ApiError(INVALID_REPLICA_ASSIGNMENT) for a client's assignment that is impossible."""

    def refuse(detail: str) -> None:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, detail)

    if sorted(assignment) != list(range(len(assignment))):
        refuse(f"partitions must be numbered from 0 without gaps, not {sorted(assignment)}")
    if len({len(replicas) for replicas in assignment.values()}) != 1:
        refuse("all partitions must have the same number of replicas")
    for partition, replicas in sorted(assignment.items()):
        if not replicas:
            refuse(f"partition {partition} has no replica")
        if len(dict.fromkeys(replicas)) != len(replicas):
            refuse(f"partition {partition} names a broker twice: {list(replicas)}")
