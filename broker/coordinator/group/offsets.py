"""Offsets of one group: commit, fetch, delete and expiry.

A commit counts when it is committed in __consumer_offsets, not when it is appended.  Until then
OffsetFetch does not show it, so that no consumer starts from an offset that a new coordinator would
not know.  A request for stable offsets waits for the commits on their way at that moment, and not
for later ones: in a group that commits all the time there is always one on its way (KAFKA-14499).
Members may commit while a rebalance is prepared (that is their last chance), but not between its
two barriers.  A group without members takes commits from any client that sends no generation, as
consumers do that assign partitions themselves.

Offsets expire offsets.retention.minutes after the group became empty.  The time runs from their
commit if the group never had members, or if a consumer group has left the topic (KIP-211).

Source: kafka.coordinator.group.GroupCoordinator, GroupMetadata.removeExpiredOffsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from highwater.broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from highwater.broker.coordinator.group.consumer.embedded import CONSUMER
from highwater.broker.coordinator.group.group import (
    SESSION,
    Group,
    Outcome,
    State,
    Ticket,
    Write,
    one_less,
    one_more,
)
from highwater.broker.coordinator.group.records import (
    NO_TIMESTAMP,
    CommittedOffset,
    GroupLogRecord,
    GroupRecord,
    OffsetRecord,
)
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import TopicPartition

_COMMIT_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


def commit_error(error: ErrorCode) -> ErrorCode:
    """The error for a client whose commit could not be written (or verified)."""
    return _COMMIT_ERRORS.get(error, error)


def commit(
    group: Group,
    member_id: str,
    instance_id: str | None,
    generation: int,
    offsets: Mapping[TopicPartition, CommittedOffset],
    ticket: Ticket,
) -> tuple[ErrorCode, Outcome]:
    """Returns one error for all partitions; after NONE, the ticket gets an error code later."""
    out = Outcome()
    error = _may_commit(group, member_id, instance_id, generation)
    if error is not ErrorCode.NONE:
        return error, out
    member = group.members.get(member_id)
    if member is not None:
        out.timers[SESSION, member_id] = member.session_timeout_ms
    for tp in offsets:
        one_more(group.pending_offsets, tp)

    def then(error: ErrorCode) -> Outcome:
        for tp in offsets:
            one_less(group.pending_offsets, tp)
        return Outcome(answers=[(ticket, _COMMIT_ERRORS.get(error, error))])

    records = tuple(OffsetRecord(group.group_id, tp, value) for tp, value in offsets.items())
    out.writes.append(Write(records, then))
    return ErrorCode.NONE, out


def commit_in_transaction(
    group: Group,
    member_id: str,
    instance_id: str | None,
    generation: int,
    producer: tuple[int, int],
    offsets: Mapping[TopicPartition, CommittedOffset],
    ticket: Ticket,
) -> tuple[ErrorCode, Outcome]:
    """Like `commit`; the offsets count once the producer's transaction is committed."""
    out = Outcome()
    error = _may_commit(group, member_id, instance_id, generation, in_transaction=True)
    if error is not ErrorCode.NONE:
        return error, out

    def then(error: ErrorCode) -> Outcome:
        return Outcome(answers=[(ticket, _COMMIT_ERRORS.get(error, error))])

    records = tuple(OffsetRecord(group.group_id, tp, value) for tp, value in offsets.items())
    out.writes.append(Write(records, then, producer))
    return ErrorCode.NONE, out


def _may_commit(
    group: Group,
    member_id: str,
    instance_id: str | None,
    generation: int,
    *,
    in_transaction: bool = False,
) -> ErrorCode:
    if group.state is State.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if group.consumer is not None:
        no_member = in_transaction and generation == -1 and not member_id and instance_id is None
        error = ErrorCode.NONE if no_member else by_epoch(group.consumer, member_id, generation)
        stale = error is ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.ILLEGAL_GENERATION if stale and in_transaction else error
    if group.is_fenced(member_id, instance_id):
        return ErrorCode.FENCED_INSTANCE_ID
    if generation < 0 and group.state is State.EMPTY:
        return ErrorCode.NONE
    if in_transaction and generation < 0 and not member_id and instance_id is None:
        return ErrorCode.NONE  # producers before KIP-447 do not say for which member they act
    if member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is State.COMPLETING_REBALANCE and not in_transaction:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def by_epoch(
    group: ConsumerGroup, member_id: str, epoch: int, *, anybody: bool = True
) -> ErrorCode:
    """Whether a member of a consumer group has this epoch (or generation).

    Without members, a group takes commits of clients that name no epoch (`anybody`).
    """
    if anybody and epoch < 0 and not group.members:
        return ErrorCode.NONE
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.current.epoch == epoch:
        return ErrorCode.NONE
    is_classic = member.subscription.classic is not None
    return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH


def fetch(
    group: Group | None,
    tps: Iterable[TopicPartition] | None,
    require_stable: bool,
    *,
    timed_out: bool = False,
) -> dict[TopicPartition, CommittedOffset | ErrorCode | None]:
    """The committed offsets, or None where there is none; of all partitions if `tps` is None.

    If stable offsets are required, UNSTABLE_OFFSET_COMMIT says that an open transaction may change
    the offset, or (`timed_out`) that a commit is still on its way after the wait.
    """
    if group is None or group.state is State.DEAD:
        return dict.fromkeys(tps or ())
    asked = group.offsets if tps is None else tps

    def unstable(tp: TopicPartition) -> bool:
        return tp in group.open_offsets or (timed_out and tp in group.pending_offsets)

    return {
        tp: ErrorCode.UNSTABLE_OFFSET_COMMIT
        if require_stable and unstable(tp)
        else group.offsets.get(tp)
        for tp in asked
    }


def on_their_way(group: Group, tps: Iterable[TopicPartition] | None) -> bool:
    """Whether a commit for any of these partitions is appended but not yet committed."""
    pending = group.pending_offsets
    return bool(pending) if tps is None else any(tp in pending for tp in tps)


def delete(
    group: Group, tps: Iterable[TopicPartition], ticket: Ticket
) -> tuple[ErrorCode, dict[TopicPartition, ErrorCode], Outcome]:
    """Returns the group's error or each partition's; the ticket is answered on commit."""
    out = Outcome()
    errors = dict.fromkeys(tps, ErrorCode.NONE)
    if group.state is State.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND, {}, out
    if not group.is_empty:
        if group.consumer is None and group.protocol_type != CONSUMER:
            return ErrorCode.NON_EMPTY_GROUP, {}, out
        topics = group.subscribed()
        for tp in errors:
            if topics is None or tp.topic in topics:
                errors[tp] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    gone = [tp for tp, error in errors.items() if error is ErrorCode.NONE and tp in group.offsets]

    def then(error: ErrorCode) -> Outcome:
        return Outcome(answers=[(ticket, _COMMIT_ERRORS.get(error, error))])

    records = tombstones(group, gone)
    if group.consumer is not None:  # which only expiry deletes
        records = records[: len(gone)]
    out.writes.append(Write(records, then))
    return ErrorCode.NONE, errors, out


def delete_group(group: Group, ticket: Ticket) -> tuple[ErrorCode, Outcome]:
    """Deletes a group without members; the ticket is answered on commit."""
    out = Outcome()
    if group.state is State.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND, out
    if not group.is_empty:
        return ErrorCode.NON_EMPTY_GROUP, out
    records: list[GroupLogRecord] = [OffsetRecord(group.group_id, tp, None) for tp in group.offsets]
    if group.generation > 0:
        records.append(GroupRecord(group.group_id, None))
    if group.consumer is not None:
        records += group.consumer.tombstones()
    group.state = State.DEAD

    def then(error: ErrorCode) -> Outcome:
        if error is not ErrorCode.NONE:
            group.state = State.EMPTY
        return Outcome(answers=[(ticket, _COMMIT_ERRORS.get(error, error))])

    out.writes.append(Write(tuple(records), then))
    return ErrorCode.NONE, out


def tombstones(group: Group, gone: list[TopicPartition]) -> tuple[GroupLogRecord, ...]:
    """The records that delete these offsets and, with its last offset, an empty group."""
    records: list[GroupLogRecord] = [OffsetRecord(group.group_id, tp, None) for tp in gone]
    if (
        group.is_empty
        and (group.generation > 0 or group.consumer is not None)
        and not (group.pending_members or group.pending_writes)
        and len(gone) == len(group.offsets)
    ):
        if group.consumer is None or group.generation > 0:
            records.append(GroupRecord(group.group_id, None))
        if group.consumer is not None:
            records += group.consumer.tombstones()
    return tuple(records)


def remove(group: Group, gone: Iterable[TopicPartition]) -> Outcome:
    """Removes offsets of deleted topics."""
    return _drop(group, [tp for tp in gone if tp in group.offsets])


def expire(group: Group, now_ms: int, retention_ms: int) -> Outcome:
    """Deletes offsets that were not needed for offsets.retention.minutes."""
    if group.state is State.DEAD:
        return Outcome()
    return _drop(group, _expired(group, now_ms, retention_ms), even_if_none=True)


def _expired(group: Group, now_ms: int, retention_ms: int) -> list[TopicPartition]:
    kept: frozenset[str] = frozenset()
    since_empty = NO_TIMESTAMP
    if group.consumer is not None:
        kept = group.subscribed() or kept
    elif group.protocol_type is not None:
        if group.state is State.EMPTY:
            since_empty = group.state_ms
        else:
            topics = group.subscribed()
            if topics is None:
                return []
            kept = topics
    gone = []
    for tp, value in group.offsets.items():
        if tp.topic in kept or tp in group.pending_offsets or tp in group.open_offsets:
            continue
        if value.expire_ms != NO_TIMESTAMP:
            if now_ms >= value.expire_ms:
                gone.append(tp)
        elif now_ms - (since_empty if since_empty >= 0 else value.commit_ms) >= retention_ms:
            gone.append(tp)
    return gone


def _drop(group: Group, gone: list[TopicPartition], *, even_if_none: bool = False) -> Outcome:
    """Deletes offsets; with `even_if_none`, an empty group without offsets, too."""
    if not gone and not (even_if_none and not group.offsets):
        return Outcome()
    records = tombstones(group, gone)
    return Outcome(writes=[Write(records, lambda _: Outcome())]) if records else Outcome()
