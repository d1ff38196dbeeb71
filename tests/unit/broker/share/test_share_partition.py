"""The share-partition's machine, by examples; `test_in_flight_model` compares it with a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from highwater.broker.share.acquisition import Acquired, Fetched, LogBatch, Wanted
from highwater.broker.share.in_flight import RecordState
from highwater.broker.share.persister import StateBatch
from highwater.broker.share.share_partition import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Acknowledgement,
    Limits,
    SharePartition,
    Write,
)
from highwater.kafka.errors import ApiError, ErrorCode

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = RecordState
LIMITS = Limits(max_locks=200, max_deliveries=5)
LOCK_MS = 30_000


def fresh(start: int = 0, stored: Iterable[Any] = (), limits: Limits = LIMITS) -> SharePartition:
    return SharePartition(start, [StateBatch(*b) for b in stored], limits)


def acquire(
    partition: SharePartition,
    *log: tuple[int, int] | tuple[int, int, bool],
    member: str = "m",
    most: int = 500,
    size: int = 500,
    record_limit: bool = False,
    until: int = LOCK_MS,
) -> list[Acquired]:
    offset = partition.next_fetch_offset
    read = [LogBatch(*b) for b in log if b[1] >= offset]
    wanted = Wanted(member, most, size, record_limit, until)
    return partition.acquire(Fetched(offset, read), wanted)


def acknowledge(
    partition: SharePartition, *acks: tuple[int, int, int | list[int]], member: str = "m"
) -> Any:
    return partition.acknowledge(
        member,
        [Acknowledgement(a, b, t if isinstance(t, list) else [t]) for a, b, t in acks],
        2 * LOCK_MS,
    )


def store(partition: SharePartition, stored: bool = True) -> Write:
    write = partition.next_write()
    assert write is not None
    partition.written(stored)
    return write


def each(states: list[StateBatch]) -> dict[int, int]:
    """By offset, the state."""
    return {o: b[2] for b in states for o in range(b.first_offset, b.last_offset + 1)}


def refused(partition: SharePartition, *acks: Any, member: str = "m") -> tuple[ErrorCode, str]:
    before = partition.states()
    with pytest.raises(ApiError) as e:
        acknowledge(partition, *acks, member=member)
    assert partition.next_write() is None
    assert each(partition.states()) == each(before)
    return e.value.code, str(e.value)


def test_what_is_acknowledged_moves_the_start_once_it_is_stored() -> None:
    p = fresh()
    assert acquire(p, (0, 9), (10, 19)) == [(0, 19, 1)]
    assert (p.in_flight_count, p.next_fetch_offset) == (20, 20)
    acknowledge(p, (0, 9, ACCEPT))
    write = p.next_write()
    assert write == Write(0, 10, (StateBatch(0, 9, ACKNOWLEDGED, 1),))
    assert p.start_offset == 0
    assert len(p.written(True)) == 1
    assert (p.start_offset, p.end_offset) == (10, 20)
    acknowledge(p, (10, 19, REJECT))
    assert store(p).batches == (StateBatch(10, 19, ARCHIVED, 1),)
    assert (p.start_offset, p.end_offset, p.in_flight_count, p.at_rest) == (20, 20, 0, True)


def test_what_is_not_stored_never_was() -> None:
    p = fresh()
    acquire(p, (0, 9))
    change = acknowledge(p, (0, 4, ACCEPT), (5, 9, RELEASE))
    assert p.next_fetch_offset == 10
    assert p.next_write() is not None
    assert p.written(False) == [change]
    assert p.states() == [StateBatch(0, 9, ACQUIRED, 1)]
    acknowledge(p, (0, 9, ACCEPT))
    store(p)
    assert p.start_offset == 10


def test_a_later_change_waits_for_the_one_that_is_being_stored_and_those_go_together() -> None:
    p = fresh()
    acquire(p, (0, 9))
    first = acknowledge(p, (0, 2, ACCEPT))
    assert p.next_write() is not None
    second, third = acknowledge(p, (3, 5, ACCEPT)), acknowledge(p, (6, 8, REJECT))
    assert p.next_write() is None
    assert p.written(True) == [first]
    write = p.next_write()
    assert write is not None
    assert write.start_offset == 3
    assert write.batches == (StateBatch(3, 5, ACKNOWLEDGED, 1), StateBatch(6, 8, ARCHIVED, 1))
    assert p.written(True) == [second, third]
    assert p.start_offset == 9


def test_released_records_come_again_with_a_higher_count_and_go_at_the_limit() -> None:
    p = fresh(limits=Limits(200, 2))
    assert acquire(p, (0, 9)) == [(0, 9, 1)]
    acknowledge(p, (0, 9, RELEASE))
    assert store(p).batches == (StateBatch(0, 9, AVAILABLE, 1),)
    assert acquire(p, (0, 9), member="n") == [(0, 9, 2)]
    acknowledge(p, (0, 9, RELEASE), member="n")
    assert store(p).batches == (StateBatch(0, 9, ARCHIVED, 2),)
    assert p.start_offset == 10


def test_one_type_for_each_record() -> None:
    p = fresh()
    acquire(p, (0, 4))
    acknowledge(p, (0, 4, [ACCEPT, RELEASE, REJECT, GAP, ACCEPT]))
    assert store(p).batches == (
        StateBatch(0, 0, ACKNOWLEDGED, 1),
        StateBatch(1, 1, AVAILABLE, 1),
        StateBatch(2, 3, ARCHIVED, 1),
        StateBatch(4, 4, ACKNOWLEDGED, 1),
    )
    assert (p.start_offset, p.next_fetch_offset) == (1, 1)
    assert acquire(p, (0, 4), (5, 9)) == [(1, 1, 2), (5, 9, 1)]


def test_a_lock_ends_and_the_record_is_available_at_once() -> None:
    p = fresh(limits=Limits(200, 2))
    acquire(p, (0, 9))
    acquire(p, (10, 19), until=2 * LOCK_MS)
    assert p.next_lock_end_ms == LOCK_MS
    assert p.end_locks(LOCK_MS - 1) is None
    assert p.end_locks(LOCK_MS) is not None
    assert p.next_lock_end_ms == 2 * LOCK_MS
    assert acquire(p, (0, 9), member="n", until=3 * LOCK_MS) == [(0, 9, 2)]
    assert store(p, stored=False).batches == (StateBatch(0, 9, AVAILABLE, 1),)
    p.end_locks(3 * LOCK_MS)
    assert store(p).batches == (StateBatch(0, 9, ARCHIVED, 2), StateBatch(10, 19, AVAILABLE, 1))
    assert p.start_offset == 10


def test_the_start_waits_until_the_end_of_the_last_delivery_is_stored() -> None:
    p = fresh(limits=Limits(200, 2))
    acquire(p, (0, 4))
    p.end_locks(LOCK_MS)
    store(p)
    acquire(p, (0, 4), (5, 9), until=2 * LOCK_MS)
    acknowledge(p, (5, 9, ACCEPT))
    assert p.next_write() is not None
    assert p.end_locks(2 * LOCK_MS) is not None
    p.written(True)
    acquire(p, (10, 14))
    assert p.start_offset == 0
    with pytest.raises(ApiError) as late:
        acknowledge(p, (0, 4, ACCEPT))
    assert late.value.code is ErrorCode.INVALID_RECORD_STATE
    store(p)
    assert p.start_offset == 10


def test_a_lock_that_ends_while_its_acknowledgement_is_stored() -> None:
    p = fresh()
    acquire(p, (0, 9))
    acknowledge(p, (0, 9, ACCEPT))
    assert p.next_write() is not None
    assert p.end_locks(LOCK_MS) is None
    assert p.next_fetch_offset == 10
    p.written(False)
    assert p.next_lock_end_ms == LOCK_MS
    assert p.end_locks(LOCK_MS) is not None
    assert p.next_fetch_offset == 0


def test_a_renewal_is_not_stored() -> None:
    p = fresh()
    acquire(p, (0, 9))
    assert acknowledge(p, (0, 4, RENEW)) is None
    assert p.next_write() is None
    p.end_locks(LOCK_MS)
    assert p.states() == [StateBatch(0, 4, ACQUIRED, 1), StateBatch(5, 9, AVAILABLE, 1)]
    assert p.next_lock_end_ms == 2 * LOCK_MS


def test_a_member_goes_and_what_it_had_is_available() -> None:
    p = fresh()
    acquire(p, (0, 9))
    acquire(p, (10, 19), member="n")
    acknowledge(p, (0, 4, ACCEPT))
    p.release("m")
    assert store(p).batches == (StateBatch(0, 4, ACKNOWLEDGED, 1), StateBatch(5, 9, AVAILABLE, 1))
    assert p.states()[-1] == StateBatch(10, 19, ACQUIRED, 1)
    assert p.release("m") is None


@pytest.mark.parametrize(
    ("acks", "member", "code", "why"),
    [
        ([(0, 9, ACCEPT)], "n", "INVALID_RECORD_STATE", "Member is not the owner of batch record"),
        ([(10, 19, ACCEPT)], "m", "INVALID_RECORD_STATE", "The batch is not in the acquired state"),
        ([(25, 25, ACCEPT)], "m", "INVALID_REQUEST", "The first offset in request is past"),
        ([(0, 9, ACCEPT), (20, 25, ACCEPT)], "m", "INVALID_REQUEST", "The last offset in request"),
        ([(0, 3, ACCEPT), (2, 5, ACCEPT)], "m", "INVALID_RECORD_STATE", "could not be completed"),
        ([(0, 12, ACCEPT)], "m", "INVALID_RECORD_STATE", "The batch is not in the acquired state"),
    ],
)
def test_a_wrong_acknowledgement_changes_nothing(
    acks: list[Any], member: str, code: str, why: str
) -> None:
    p = fresh()
    acquire(p, (0, 9))
    acquire(p, (10, 19))
    acquire(p, (20, 24))
    acknowledge(p, (10, 19, RELEASE))
    store(p)
    found, told = refused(p, *acks, member=member)
    assert found.name == code
    assert why in told


def test_below_the_start_an_acknowledgement_is_repeated_in_peace() -> None:
    p = fresh()
    acquire(p, (0, 9))
    acknowledge(p, (0, 9, ACCEPT))
    store(p)
    assert acknowledge(p, (0, 9, ACCEPT)) is None
    assert refused(p, (10, 12, ACCEPT))[0] is ErrorCode.INVALID_RECORD_STATE


def test_batches_stay_whole_beyond_the_number_of_records() -> None:
    p = fresh()
    assert acquire(p, (0, 9), (10, 19), (20, 29), most=15) == [(0, 19, 1)]
    assert acquire(p, (0, 9), (10, 19), (20, 29), (30, 39), most=15, size=5) == [
        (20, 29, 1),
        (30, 39, 1),
    ]


def test_record_limit_leaves_the_rest_of_the_batch_available() -> None:
    p = fresh()
    assert acquire(p, (0, 9), most=4, record_limit=True) == [(0, 3, 1)]
    assert (p.next_fetch_offset, p.in_flight_count) == (4, 10)
    assert acquire(p, (0, 9), (10, 19), most=8, record_limit=True) == [(4, 9, 1), (10, 11, 1)]


def test_no_new_records_at_the_limit_but_released_ones() -> None:
    p = fresh(limits=Limits(20, 5))
    acquire(p, (0, 14))
    assert acquire(p, (15, 29), (30, 44)) == [(15, 29, 1)]  # to the batch's end
    assert not p.can_acquire()
    assert acquire(p, (30, 44)) == []
    acknowledge(p, (5, 9, RELEASE))
    store(p)
    assert p.can_acquire()
    assert acquire(p, (0, 14), (15, 29), (30, 44)) == [(5, 9, 2)]
    acknowledge(p, (0, 14, ACCEPT))
    store(p)
    assert p.can_acquire()


def test_a_slow_coordinator_stops_acquisition() -> None:
    p = fresh(limits=Limits(2, 100))
    acquire(p, (0, 0))
    acquire(p, (1, 1))
    acknowledge(p, (0, 0, RELEASE))
    assert p.next_write() is not None
    for n in range(1, 3):
        p.end_locks(n * LOCK_MS)
        assert p.can_acquire()
        assert acquire(p, (0, 0), (1, 1), until=(n + 1) * LOCK_MS) == [(1, 1, n + 1)]
    p.end_locks(3 * LOCK_MS)
    assert not p.can_acquire()
    assert acquire(p, (0, 0), (1, 1)) == []
    p.written(True)
    assert p.next_write() is not None
    assert p.can_acquire()


def test_what_was_delivered_often_comes_in_smaller_parts_and_at_last_alone() -> None:
    p = fresh(limits=Limits(2000, 5))
    log = (0, 99)
    seen: list[list[Acquired]] = []
    for n in range(4):
        got = acquire(p, log, until=n)
        seen.append(got)
        p.end_locks(n)
        store(p)
    assert seen[:3] == [[(0, 99, 1)], [(0, 99, 2)], [(0, 99, 3)]]
    assert seen[3] == [(0, 49, 4)]
    assert acquire(p, log) == [(0, 0, 5)]
    assert acquire(p, log) == [(1, 1, 5)]


def test_a_throttled_batch_is_not_delivered_with_others() -> None:
    p = fresh(stored=[(0, 9, AVAILABLE, 1), (10, 19, AVAILABLE, 3)])
    assert acquire(p, (0, 9), (10, 19), (20, 29)) == [(0, 9, 2)]
    assert acquire(p, (10, 19), (20, 29)) == [(10, 14, 4)]
    assert acquire(p, (10, 19), (20, 29)) == [(15, 19, 4)]


def test_aborted_records_are_archived() -> None:
    p = fresh()
    assert acquire(p, (0, 9), (10, 19, True), (20, 29)) == [(0, 9, 1), (20, 29, 1)]
    assert p.states()[1] == StateBatch(10, 19, ARCHIVED, 1)
    q = fresh()
    assert acquire(q, (0, 9, True)) == []
    assert (q.start_offset, q.in_flight_count) == (10, 0)


def test_records_that_compaction_removed_are_archived() -> None:
    p = fresh()
    acquire(p, (0, 9), size=1)
    acquire(p, (10, 19))
    acquire(p, (20, 29))
    acknowledge(p, (0, 29, RELEASE))
    store(p)
    assert acquire(p, (20, 29)) == [(20, 29, 2)]
    assert p.start_offset == 20


def test_holes_of_the_log_are_passed_over() -> None:
    p = fresh()
    assert acquire(p, (3, 9), (20, 29)) == [(3, 29, 1)]  # the client reports the gap
    assert acquire(p, (40, 49)) == [(40, 49, 1)]
    acknowledge(p, (3, 29, ACCEPT))
    store(p)
    assert p.start_offset == 40


def test_the_log_starts_later() -> None:
    p = fresh()
    acquire(p, (0, 9))
    acquire(p, (10, 19))
    acknowledge(p, (0, 9, RELEASE))
    store(p)
    p.log_starts_at(15)
    assert (p.start_offset, p.next_fetch_offset) == (15, 20)
    acknowledge(p, (10, 19, RELEASE))
    assert store(p).batches == (StateBatch(15, 19, AVAILABLE, 1),)
    assert p.end_locks(LOCK_MS) is not None
    assert store(p).batches == (StateBatch(10, 14, ARCHIVED, 1),)
    assert p.states()[1:] == [StateBatch(15, 19, AVAILABLE, 1)]
    p.log_starts_at(30)
    assert (p.start_offset, p.end_offset, p.next_fetch_offset) == (30, 30, 30)
    p.log_starts_at(10)
    assert p.start_offset == 30


def test_a_leader_goes_on_from_the_stored_state() -> None:
    p = fresh(5, [(10, 14, ACKNOWLEDGED, 1), (20, 24, AVAILABLE, 2), (30, 34, ARCHIVED, 1)])
    assert (p.start_offset, p.end_offset, p.next_fetch_offset) == (5, 35, 5)
    assert acquire(p, (0, 9), (10, 19)) == [(5, 9, 1), (15, 19, 1)]
    assert acquire(p, (20, 29), (30, 39)) == [(20, 24, 3), (25, 29, 1), (35, 39, 1)]
    acknowledge(p, (5, 9, ACCEPT))
    store(p)
    assert p.start_offset == 15


def test_ended_records_of_the_stored_state_move_the_start() -> None:
    p = fresh(0, [(0, 9, ACKNOWLEDGED, 1), (10, 19, ARCHIVED, 3)])
    assert (p.start_offset, p.end_offset, p.in_flight_batches) == (20, 20, 0)


@pytest.mark.parametrize(
    "stored",
    [
        [(0, 4, AVAILABLE, 1)],
        [(10, 14, AVAILABLE, 1), (14, 15, AVAILABLE, 1)],
        [(10, 9, AVAILABLE, 1)],
    ],
)
def test_a_stored_state_that_cannot_be(stored: list[Any]) -> None:
    with pytest.raises(ValueError, match="stored state"):
        fresh(5, stored)
