"""Commit, fetch, delete and expiry on one group, without a broker."""

from __future__ import annotations

from typing import Any

from highwater.broker.coordinator.group import offsets
from highwater.broker.coordinator.group.consumer.members import Current
from highwater.broker.coordinator.group.consumer.records import (
    CurrentRecord,
    EpochRecord,
    GroupEpoch,
)
from highwater.broker.coordinator.group.group import REBALANCE, Group, State
from highwater.broker.coordinator.group.records import CommittedOffset, GroupRecord, OffsetRecord
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import TopicPartition

TP = TopicPartition("t", 0)
OTHER = TopicPartition("other", 0)
HOUR = 3_600_000


def shown(group: Group, *, stable: bool = False, timed_out: bool = False) -> Any:
    found = offsets.fetch(group, [TP], stable, timed_out=timed_out)[TP]
    return found.offset if isinstance(found, CommittedOffset) else found


def test_a_commit_is_shown_and_answered_when_it_is_committed(table: Any) -> None:
    assert table.commit("c", 5) is ErrorCode.NONE
    assert shown(table.group) is None
    assert offsets.on_their_way(table.group, [OTHER, TP])
    assert offsets.on_their_way(table.group, None)
    assert not offsets.on_their_way(table.group, [OTHER])
    assert shown(table.group, stable=True, timed_out=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert shown(table.group, timed_out=True) is None
    assert table.answers == {}
    table.committed()
    assert not offsets.on_their_way(table.group, None)
    assert shown(table.group, stable=True) == 5
    assert table.answers == {"c": ErrorCode.NONE}


def test_a_commit_that_failed_is_not_shown(table: Any) -> None:
    table.commit("c", 5)
    table.failed(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert table.answers == {"c": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert not offsets.on_their_way(table.group, None)
    assert shown(table.group, stable=True) is None


def test_who_may_commit(table: Any) -> None:
    (member,) = table.stable(1)
    assert table.commit("a", 1) is ErrorCode.UNKNOWN_MEMBER_ID  # a stranger
    assert table.commit("b", 1, member, 0) is ErrorCode.ILLEGAL_GENERATION
    assert table.commit("c", 1, member, 1) is ErrorCode.NONE
    table.join("new")
    assert table.commit("d", 2, member, 1) is ErrorCode.NONE  # its last chance
    table.join("again", member)
    assert table.group.state is State.COMPLETING_REBALANCE
    assert table.commit("e", 3, member, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    table.committed()
    assert shown(table.group) == 2


def test_who_may_commit_in_a_group_of_the_consumer_protocol() -> None:
    group = Group("g")
    group.replay(EpochRecord("g", GroupEpoch(3)))
    committed = {TP: CommittedOffset(1)}

    def commit(member_id: str, epoch: int) -> tuple[str, str]:
        """The errors without and within a transaction."""
        plain, _ = offsets.commit(group, member_id, None, epoch, committed, "ticket")
        producer = (1, 0)
        within, _ = offsets.commit_in_transaction(
            group, member_id, None, epoch, producer, committed, "ticket"
        )
        return plain.name, within.name

    assert commit("", -1) == ("NONE", "NONE"), "the group has no members"
    group.replay(CurrentRecord("g", "m", Current(3, 2)))
    assert commit("m", 3) == ("NONE", "NONE")
    assert commit("m", 2) == ("STALE_MEMBER_EPOCH", "ILLEGAL_GENERATION")
    assert commit("x", 3) == ("UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID")
    assert commit("", -1) == ("UNKNOWN_MEMBER_ID", "NONE"), "a producer before KIP-447"


def test_offsets_of_a_topic_that_is_read_are_not_deleted(table: Any) -> None:
    (member,) = table.stable(1)
    table.commit("a", 1, member, 1)
    table.commit("b", 1, member, 1, topic="other")
    table.committed()
    code, errors, outcome = offsets.delete(table.group, [TP, OTHER], "d")
    assert (code, errors) == (
        ErrorCode.NONE,
        {TP: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, OTHER: ErrorCode.NONE},
    )
    table.do(outcome)
    table.committed()
    assert list(table.group.offsets) == [TP]


def test_a_group_is_deleted_when_it_is_empty(table: Any) -> None:
    (member,) = table.stable(1)
    table.commit("a", 1, member, 1)
    table.committed()
    assert offsets.delete_group(table.group, "d")[0] is ErrorCode.NON_EMPTY_GROUP
    table.leave(member)
    table.committed()
    code, outcome = offsets.delete_group(table.group, "d")
    assert code is ErrorCode.NONE
    table.do(outcome)
    assert table.commit("late", 2) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    table.committed()
    assert table.log[-2:] == [OffsetRecord("g", TP, None), GroupRecord("g", None)]
    assert table.group.is_unused
    assert table.answers["d"] is ErrorCode.NONE


def expired(table: Any, now_ms: int) -> int:
    """The number of tombstones written."""
    table.now = now_ms
    table.do(offsets.expire(table.group, now_ms, HOUR))
    count = sum(len(write.records) for write in table.writes)
    table.committed()
    return count


def test_a_standalone_consumers_offsets_expire_after_their_commit(table: Any) -> None:
    table.commit("a", 1)
    table.committed()
    assert expired(table, 1000 + HOUR - 1) == 0
    assert expired(table, 1000 + HOUR) == 1
    assert table.group.is_unused


def test_a_groups_offsets_expire_after_it_became_empty(table: Any) -> None:
    (member,) = table.stable(1)
    table.commit("a", 1, member, 1)
    table.committed()
    assert expired(table, 1000 + 5 * HOUR) == 0  # it reads the topic
    table.leave(member)
    table.committed()
    assert expired(table, 1000 + 6 * HOUR - 1) == 0
    assert expired(table, 1000 + 6 * HOUR) == 2  # and the group with it
    assert table.group.is_unused


def test_offsets_of_a_topic_that_is_not_read_any_more_expire(table: Any) -> None:
    (member,) = table.stable(1)
    table.commit("a", 1, member, 1, topic="other")
    table.committed()
    assert expired(table, 1000 + HOUR) == 1
    assert table.group.state is State.STABLE


def test_a_commit_may_say_itself_when_it_expires(table: Any) -> None:
    value = {TP: CommittedOffset(1, commit_ms=1000, expire_ms=3000)}
    _, outcome = offsets.commit(table.group, "", None, -1, value, "a")
    table.do(outcome)
    table.committed()
    assert expired(table, 2999) == 0
    assert expired(table, 3000) == 1


def test_a_tombstone_does_not_take_who_joined_meanwhile(table: Any) -> None:
    (member,) = table.stable(1)
    table.leave(member)
    table.committed()
    table.do(offsets.expire(table.group, 1000 + HOUR, HOUR))
    assert table.writes
    table.join("new")
    table.committed()
    table.fire(REBALANCE)
    assert table.answers["new"].error is ErrorCode.NONE
