"""Placement of replicas.  The expected placements are those of Kafka's AdminUtils from the same
start."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from highwater.broker.admin.assignment import assign_replicas, check_assignment, rack_alternated
from highwater.kafka.errors import ApiError, ErrorCode

FIVE: dict[int, str | None] = dict.fromkeys(range(5))
SIX_IN_THREE: dict[int, str | None] = {
    0: "rack1", 1: "rack2", 2: "rack2", 3: "rack3", 4: "rack3", 5: "rack1",
}  # fmt: skip


def test_without_racks() -> None:
    # the table in the comment of AdminUtils: five brokers, ten partitions, three replicas
    assert assign_replicas(FIVE, 10, 3, Random(0), start_index=0) == {
        0: (0, 1, 2), 1: (1, 2, 3), 2: (2, 3, 4), 3: (3, 4, 0), 4: (4, 0, 1),
        5: (0, 2, 3), 6: (1, 3, 4), 7: (2, 4, 0), 8: (3, 0, 1), 9: (4, 1, 2),
    }  # fmt: skip


def test_with_racks() -> None:
    assert rack_alternated(SIX_IN_THREE) == [0, 1, 3, 5, 2, 4]
    assert assign_replicas(SIX_IN_THREE, 7, 3, Random(0), start_index=0) == {
        0: (0, 1, 3), 1: (1, 3, 5), 2: (3, 5, 2), 3: (5, 2, 4), 4: (2, 4, 0), 5: (4, 0, 1),
        6: (0, 2, 4),
    }  # fmt: skip


@given(
    brokers=st.integers(1, 8), racks=st.integers(0, 4), factor=st.integers(1, 8),
    partitions=st.integers(1, 40), seed=st.integers(0, 999),
)  # fmt: skip
def test_replicas_differ_and_are_spread(
    brokers: int, racks: int, factor: int, partitions: int, seed: int
) -> None:
    factor = min(factor, brokers)
    known = {b: f"r{b % racks}" if racks else None for b in range(brokers)}
    assignment = assign_replicas(known, partitions, factor, Random(seed))
    check_assignment(assignment)
    leaders = Counter(replicas[0] for replicas in assignment.values())
    assert max(leaders.values()) - min(leaders[b] for b in range(brokers)) <= 1
    for replicas in assignment.values():
        used = {known[b] for b in replicas}
        assert len(used) == min(factor, len(set(known.values())))


def test_one_seed_one_placement() -> None:
    assert assign_replicas(FIVE, 9, 3, Random(7)) == assign_replicas(FIVE, 9, 3, Random(7))


def test_added_partitions_continue() -> None:
    whole = assign_replicas(FIVE, 10, 3, Random(0), start_index=0)
    later = assign_replicas(FIVE, 4, 3, Random(0), start_index=0, first_partition=1)
    assert {p: whole[p] for p in range(1, 5)} == later


@pytest.mark.parametrize(
    ("partitions", "factor", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 6, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_impossible_numbers(partitions: int, factor: int, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as caught:
        assign_replicas(FIVE, partitions, factor, Random(0))
    assert caught.value.code is code


def test_some_racks_missing() -> None:
    with pytest.raises(ApiError, match=r"broker\.rack"):
        assign_replicas({1: "a", 2: None}, 1, 1, Random(0))


@pytest.mark.parametrize("assignment", [{1: (0,)}, {0: ()}, {0: (1, 1)}, {0: (1,), 1: (1, 2)}, {}])
def test_bad_assignments(assignment: dict[int, tuple[int, ...]]) -> None:
    with pytest.raises(ApiError) as caught:
        check_assignment(assignment)
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_with_racks_from_another_start() -> None:
    later = assign_replicas(SIX_IN_THREE, 4, 4, Random(0), start_index=2, first_partition=5)
    assert later == {5: (1, 5, 4, 0), 6: (3, 1, 5, 2), 7: (5, 3, 2, 4), 8: (2, 5, 4, 0)}
