"""A living group's move between the protocols: the records, and what becomes of the members.

    to consumers   members keep their ids and partitions; their generation becomes the group epoch
                   and their own; who waits in JoinGroup or SyncGroup has to join again
    to classic     the group epoch becomes the generation; the targets become the assignments

Either move is one write: the tombstones of the one kind of group, and the records of the other.  In
memory the group moves when they are appended, as a consumer group's records are applied then.

Source: GroupMetadataManager.convertToConsumerGroup, convertToClassicGroup,
ConsumerGroup.fromClassicGroup, ClassicGroup.fromConsumerGroup of Kafka.
"""

from __future__ import annotations

from highwater.broker.coordinator.group.consumer import embedded
from highwater.broker.coordinator.group.consumer import subscribed_topics as topic_facts
from highwater.broker.coordinator.group.consumer.classic_members import encode, with_ids
from highwater.broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from highwater.broker.coordinator.group.consumer.consumer_steps import MEMBER_SESSION, timers_of
from highwater.broker.coordinator.group.consumer.embedded import CONSUMER
from highwater.broker.coordinator.group.consumer.heartbeats import Limits
from highwater.broker.coordinator.group.consumer.members import (
    Classic,
    Current,
    MemberState,
    Partitions,
    Subscription,
)
from highwater.broker.coordinator.group.consumer.members import Member as ConsumerMember
from highwater.broker.coordinator.group.consumer.migration import BecomesClassic
from highwater.broker.coordinator.group.consumer.records import (
    CurrentRecord,
    EpochRecord,
    GroupEpoch,
    MemberRecord,
    TargetEpochRecord,
    TargetRecord,
)
from highwater.broker.coordinator.group.consumer.subscribed_topics import Topics
from highwater.broker.coordinator.group.group import (
    REBALANCE,
    SESSION,
    SYNC,
    Group,
    Member,
    Outcome,
    State,
)
from highwater.broker.coordinator.group.protocol import Joined, Synced
from highwater.broker.coordinator.group.records import GroupLogRecord, GroupRecord
from highwater.kafka.errors import ApiError, ErrorCode

# ---------------------------------------------------------------------------------- to consumers


def to_consumers(group: Group, limits: Limits, topics: Topics) -> tuple[GroupLogRecord, ...]:
    """The records that make a living classic group one of consumers; raises ApiError."""
    if not limits.policy.upgrades:
        raise _stays(
            group, "it is a classic group, and group.consumer.migration.policy keeps it so"
        )
    if group.protocol_type != CONSUMER:
        raise _stays(group, f"its members are no consumers, but of the type {group.protocol_type}")
    if len(group.members) > limits.max_size:
        raise _stays(group, f"it has more than group.consumer.max.size={limits.max_size} members")
    name, epoch = group.group_id, group.generation
    found = {m.member_id: _consumer_of(group, m, topics) for m in group.members.values()}
    records: list[GroupLogRecord] = [GroupRecord(name, None)]
    records += (MemberRecord(name, member_id, told) for member_id, (told, _) in found.items())
    subscribed = topic_facts.known({t for told, _ in found.values() for t in told.topics}, topics)
    metadata_hash = topic_facts.group_hash(subscribed, topics)
    records.append(EpochRecord(name, GroupEpoch(epoch, metadata_hash)))
    records += (TargetRecord(name, member_id, has) for member_id, (_, has) in found.items())
    records.append(TargetEpochRecord(name, epoch))
    for member_id, (_, has) in found.items():
        current = Current(epoch, epoch, MemberState.STABLE, has)
        records.append(CurrentRecord(name, member_id, current))
    return tuple(records)


def _consumer_of(group: Group, member: Member, topics: Topics) -> tuple[Subscription, Partitions]:
    """What a classic member has subscribed to, and what it has; raises ApiError."""
    metadata = member.metadata(group.protocol) or member.protocols[0][1]
    try:
        subscribed = embedded.subscription(metadata)
        named, user_data = embedded.assignment(member.assignment)
    except embedded.MalformedError as e:
        raise _stays(group, f"{member.member_id} has {e}") from e
    if user_data:
        raise _stays(
            group, "an assignor of its members' own is in use, whose data would be lost; choose"
            " one of Kafka's in partition.assignment.strategy first",
        )  # fmt: skip
    told = Subscription(
        member.instance_id,
        subscribed.rack_id,
        member.client_id,
        member.client_host,
        tuple(sorted(set(subscribed.topics))),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=Classic(member.session_timeout_ms, member.protocols),
    )
    return told, with_ids(named, topics)


def _stays(group: Group, why: str) -> ApiError:
    text = f"{group.group_id} is no consumer group and cannot become one: {why}"
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, text)


def became_consumers(group: Group) -> Outcome:
    """Ends the classic protocol of a group whose records for the other one are in the log."""
    group.moved_from = Group(group.group_id)
    group.moved_from.become_classic(group)
    out = refuse_all(group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.end_classic()
    group.pending_members.clear()
    members = {} if group.consumer is None else group.consumer.members
    for member_id, member in members.items():
        classic = member.subscription.classic
        if classic is not None:
            out.timers[MEMBER_SESSION, member_id] = classic.session_timeout_ms
    return out


def refuse_all(group: Group, error: ErrorCode) -> Outcome:
    """Answers every client that waits in the group, and stops its timers."""
    out = Outcome()
    out.timers[REBALANCE, ""] = out.timers[SYNC, ""] = None
    for member_id in [*group.members, *group.pending_members]:
        out.timers[SESSION, member_id] = None
    for member in group.members.values():
        if member.joining is not None:
            out.answers.append((member.joining, Joined(error, member.member_id)))
        if member.syncing is not None:
            out.answers.append((member.syncing, Synced(error)))
        member.joining = member.syncing = None
    return out


# ---------------------------------------------------------------------------------- to classic


def to_classic(
    group: ConsumerGroup, change: BecomesClassic, topics: Topics, now_ms: int
) -> tuple[Group, tuple[GroupLogRecord, ...]]:
    """The classic group that a consumer group becomes, and the records.  `now_ms` is the wall
    clock; all members that stay use the classic protocol."""
    moved = Group(group.group_id)
    moved.state, moved.state_ms = State.STABLE, now_ms
    moved.generation, moved.protocol_type = group.epoch, CONSUMER
    targets = {m: group.target_of(m) for m in group.members if m not in change.without}
    members = {m: group.members[m] for m in targets}
    if change.joins is not None:
        newer = change.joins
        members[newer.member_id] = newer
        targets[newer.member_id] = group.target_of(newer.member_id, newer.subscription.instance_id)
    moved.members = {m: _classic_of(member) for m, member in members.items()}
    for member in moved.members.values():
        if member.instance_id is not None:
            moved.static_members[member.instance_id] = member.member_id
    moved.leader = next(iter(moved.members), None)
    moved.protocol = moved.select_protocol()
    for member_id, member in moved.members.items():
        version = embedded.version_of(member.metadata(moved.protocol))
        member.assignment = encode(targets[member_id], topics, version)
    assignments = {m: member.assignment for m, member in moved.members.items()}
    return moved, (*group.tombstones(), moved.stored(assignments, now_ms))


def _classic_of(member: ConsumerMember) -> Member:
    told = member.subscription
    assert told.classic is not None
    return Member(
        member.member_id,
        told.instance_id,
        told.client_id,
        told.client_host,
        told.rebalance_timeout_ms,
        told.classic.session_timeout_ms,
        told.classic.protocols,
    )


def timers_of_consumers(group: ConsumerGroup) -> Outcome:
    """Stops the timers of a consumer group's members: it has become a classic group."""
    timers = (timer for member_id in group.members for timer in timers_of(member_id))
    return Outcome(timers=dict.fromkeys(timers))
