"""One consumer group, made from the records of __consumer_offsets and its members' requests.

Stored state (generation, protocol, leader, members with their assignments; committed offsets)
changes only in `replay`, which both loading and a committed write call.  The rebalance in progress
is not stored: the members that have joined again, those that wait for an assignment, and those that
were given a member id and have not come back.  A coordinator that takes over knows nothing of that
rebalance; the answer to a member's next request shows it.

    Empty                first join          -> PreparingRebalance
    PreparingRebalance   all joined, time-out -> CompletingRebalance; no member is left -> Empty
    CompletingRebalance  leader's sync stored -> Stable
    the last two         a member joins, leaves, fails -> PreparingRebalance
    Dead                 being deleted, or this broker no longer coordinates the group

A step returns an `Outcome` (answers to give, records to write, timers to set) and does nothing
else.

A group of the consumer protocol (KIP-848) has its members in `consumer`, and is Empty here; its
offsets are kept as any group's.  Its records are applied when they are appended, see there, and a
second time to `committed`, which is shown to clients.

Source: kafka.coordinator.group.GroupMetadata, MemberMetadata.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from highwater.broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from highwater.broker.coordinator.group.consumer.embedded import CONSUMER
from highwater.broker.coordinator.group.consumer.records import (
    CONSUMER_RECORDS,
    ConsumerRecord,
)
from highwater.broker.coordinator.group.records import (
    NO_TIMESTAMP,
    CommittedOffset,
    GroupLogRecord,
    GroupRecord,
    OffsetRecord,
    StoredGroup,
    StoredMember,
    subscribed_topics,
)
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import TopicPartition

Ticket = Hashable
"""Identifies a client that waits for an answer; only the shell knows what is behind it."""
Timer = tuple[str, str]
SESSION, REBALANCE, SYNC = "session", "rebalance", "sync"


class State(Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True)
class Outcome:
    """The effects that a step asks for.  A timer's value is its delay in ms; None stops it."""

    answers: list[tuple[Ticket, object]] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    timers: dict[Timer, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Write:
    """Records to be appended together; `then` is called once with the result, after `replay` if
    they were committed.
    """

    records: tuple[GroupLogRecord, ...]
    then: Callable[[ErrorCode], Outcome]
    producer: tuple[int, int] | None = None
    """Producer id and epoch of records in a transaction, which count from its marker on."""
    at_once: Callable[[], Outcome] | None = None
    """Called when the records are in the log, before they are committed."""


@dataclass(slots=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    joining: Ticket | None = None
    syncing: Ticket | None = None
    is_new: bool = False
    """True until its first answer to JoinGroup: before that it cannot send heartbeats."""

    def metadata(self, protocol: str | None) -> bytes:
        return next((data for name, data in self.protocols if name == protocol), b"")

    def adopt(
        self,
        protocols: tuple[tuple[str, bytes], ...],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """Takes what a JoinGroup says about the member."""
        self.protocols = protocols
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms

    def vote(self, candidates: Iterable[str]) -> str:
        allowed = frozenset(candidates)
        return next(name for name, _ in self.protocols if name in allowed)


def one_more(counts: dict[TopicPartition, int], tp: TopicPartition) -> None:
    counts[tp] = counts.get(tp, 0) + 1


def one_less(counts: dict[TopicPartition, int], tp: TopicPartition) -> None:
    counts[tp] -= 1
    if not counts[tp]:
        del counts[tp]


class Group:
    """State and look-ups; the steps are in `rebalance` and `offsets`."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.state_ms = NO_TIMESTAMP
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.consumer: ConsumerGroup | None = None
        """The members, where the group has the consumer protocol."""
        self.committed: ConsumerGroup | None = None
        """What of `consumer` is committed: this is what is shown."""
        self.moved_from: Group | None = None
        """The classic group as it was, until its move to the consumer protocol is committed."""
        self.offsets: dict[TopicPartition, CommittedOffset] = {}
        self.offsets_at: dict[TopicPartition, int] = {}
        """The offset in the log of each partition's record."""
        # not stored
        self.pending_members: dict[str, None] = {}
        self.pending_sync: dict[str, None] = {}
        self.pending_offsets: dict[TopicPartition, int] = {}
        """By partition, the number of commits that are appended but not yet committed."""
        self.open_offsets: dict[TopicPartition, int] = {}
        """Like `pending_offsets`, for transactions that are still open."""
        self.pending_writes = 0
        self.written_at = -1
        """The offset of the newest record of the group itself that this broker appended."""
        self.new_member_added = False
        self.initial_delay_left_ms: int | None = None
        """Set while the first rebalance of an empty group is held back for more members."""

    # ---------------------------------------------------------------- what is stored

    def appended(self, records: Iterable[GroupLogRecord], first: int) -> None:
        """Notes that records are in the log from offset `first` on, and not yet committed."""
        for at, record in enumerate(records, first):
            if isinstance(record, GroupRecord):
                self.written_at = at
            elif isinstance(record, CONSUMER_RECORDS):
                self.consumer = _applied(self.consumer, record)

    def committed_later(self, record: ConsumerRecord) -> None:
        """Shows a record that was applied when it was appended."""
        self.committed = _applied(self.committed, record)

    def replay(self, record: GroupLogRecord, at: int = -1) -> None:
        """Applies a record that is committed; `at` is its offset in the log."""
        if isinstance(record, OffsetRecord):
            if record.value is None:
                self.offsets.pop(record.tp, None)
                self.offsets_at.pop(record.tp, None)
            elif at >= self.offsets_at.get(record.tp, -1):
                self.offsets[record.tp] = record.value
                self.offsets_at[record.tp] = at
        elif isinstance(record, CONSUMER_RECORDS):
            self.consumer = _applied(self.consumer, record)
            self.committed = _applied(self.committed, record)
        elif isinstance(record, GroupRecord):
            if record.value is None:
                self.moved_from = None
                if at >= self.written_at:
                    self._forget()
            elif not self._has_moved_on(record.value, at):
                self._adopt(record.value)

    def _has_moved_on(self, stored: StoredGroup, at: int) -> bool:
        """Whether the record is outdated: a rebalance began while it was on its way, or the process
        of a static member was replaced, or the group took the consumer protocol, which only a later
        record says.
        """
        if at < self.written_at and (self.state is State.STABLE or self.consumer is not None):
            return True
        if self.state in (State.PREPARING_REBALANCE, State.DEAD):
            return True
        if self.state is State.COMPLETING_REBALANCE:
            return stored.generation != self.generation
        return stored.generation < self.generation

    def _adopt(self, stored: StoredGroup) -> None:
        self.consumer = self.committed = None
        self.protocol_type = stored.protocol_type or None
        self.generation = stored.generation
        self.protocol, self.leader = stored.protocol, stored.leader
        self.state_ms = stored.state_ms
        known = self.members
        self.members = {m.member_id: _member(known, m, stored.protocol) for m in stored.members}
        self.static_members = {
            m.instance_id: m.member_id for m in stored.members if m.instance_id is not None
        }
        self.state = State.STABLE if self.members else State.EMPTY

    def _forget(self) -> None:
        if self.state in (State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE):
            return  # a member joined while the tombstone was on its way
        self.end_classic()

    def end_classic(self) -> None:
        """Forgets all of the classic protocol: the group is deleted, or takes the other one."""
        self.state = State.EMPTY
        self.generation, self.state_ms = 0, NO_TIMESTAMP
        self.protocol_type = self.protocol = self.leader = None
        self.members, self.static_members = {}, {}
        self.pending_sync.clear()
        self.new_member_added, self.initial_delay_left_ms = False, None

    def become_classic(self, moved: Group) -> None:
        """Takes the members of a group that was made in its place (`moves.to_classic`)."""
        self.state, self.generation = moved.state, moved.generation
        self.protocol_type, self.protocol = moved.protocol_type, moved.protocol
        self.leader, self.state_ms = moved.leader, moved.state_ms
        self.members, self.static_members = moved.members, moved.static_members

    def hold(self, record: GroupLogRecord) -> None:
        """Holds an offset that a transaction committed, until the transaction ends."""
        if isinstance(record, OffsetRecord):
            one_more(self.open_offsets, record.tp)

    def release(self, record: GroupLogRecord) -> None:
        if isinstance(record, OffsetRecord):
            one_less(self.open_offsets, record.tp)

    def stored(self, assignments: dict[str, bytes], now_ms: int) -> GroupRecord:
        """The record of this generation, with these assignments of its members."""
        members = tuple(
            StoredMember(
                m.member_id,
                m.instance_id,
                m.client_id,
                m.client_host,
                m.rebalance_timeout_ms,
                m.session_timeout_ms,
                m.metadata(self.protocol),
                assignments.get(m.member_id, b""),
            )
            for m in self.members.values()
        )
        value = StoredGroup(
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.leader,
            now_ms,
            members,
        )
        return GroupRecord(self.group_id, value)

    @property
    def is_unused(self) -> bool:
        """Whether nothing is stored, and no member or write is here or on its way."""
        return (
            self.consumer is None
            and self.state in (State.EMPTY, State.DEAD)
            and self.generation == 0
            and not (self.offsets or self.pending_members)
            and not (self.pending_writes or self.open_offsets)
        )

    def rename(self, member: Member, new_id: str) -> None:
        """Gives the place of a static member to a new process of it."""
        assert member.instance_id is not None
        if self.leader == member.member_id:
            self.leader = new_id
        member.member_id = new_id
        self.members = {m.member_id: m for m in self.members.values()}
        self.static_members[member.instance_id] = new_id

    # ---------------------------------------------------------------- look-ups

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members of either protocol."""
        return self.state is State.EMPTY and (self.consumer is None or not self.consumer.members)

    @property
    def shown(self) -> ConsumerGroup | Group | None:
        """What clients are shown of the group, by its committed records; None if there is nothing
        yet.  A classic group is shown as it is, with the rebalance in progress."""
        if self.committed is not None:
            return self.committed
        if self.moved_from is not None:
            return self.moved_from
        return self if self.consumer is None or self.offsets else None

    def has_static(self, instance_id: str | None) -> bool:
        return instance_id is not None and instance_id in self.static_members

    def is_fenced(self, member_id: str, instance_id: str | None) -> bool:
        """Whether another process has taken this group.instance.id over."""
        if instance_id is None or instance_id not in self.static_members:
            return False
        return self.static_members[instance_id] != member_id

    @property
    def waiting_to_join(self) -> int:
        return sum(m.joining is not None for m in self.members.values())

    @property
    def all_joined(self) -> bool:
        return not self.pending_members and all(
            m.joining is not None for m in self.members.values()
        )

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def candidates(self) -> list[str]:
        """The protocols that every member supports."""
        counts: dict[str, int] = {}
        for member in self.members.values():
            for name in dict.fromkeys(name for name, _ in member.protocols):
                counts[name] = counts.get(name, 0) + 1
        return [name for name, count in counts.items() if count == len(self.members)]

    def select_protocol(self) -> str:
        """The winner of a vote: each member votes for its first protocol that all support."""
        candidates = self.candidates()
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def supports(self, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        if not self.members:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        candidates = frozenset(self.candidates())
        return any(name in candidates for name, _ in protocols)

    def subscribed(self) -> frozenset[str] | None:
        """The topics that a group of consumers reads; None if that cannot be known."""
        if self.consumer is not None:
            return frozenset(self.consumer.subscribed_topics())
        if self.protocol_type != CONSUMER:
            return None
        topics: dict[str, None] = {}
        for member in self.members.values():
            found = subscribed_topics(member.metadata(self.protocol))
            if found is None:
                return None
            topics.update(dict.fromkeys(found))
        return frozenset(topics)


def _applied(group: ConsumerGroup | None, record: ConsumerRecord) -> ConsumerGroup | None:
    """The group after a record of the consumer protocol; None if there is none any more."""
    if group is None:
        if record.value is None:
            return None
        group = ConsumerGroup(record.group_id)
    return group if group.apply(record) else None


def _member(known: dict[str, Member], stored: StoredMember, protocol: str | None) -> Member:
    """The known member if it fits the stored one, as it may support more protocols.  While a log is
    read, it is known from an earlier generation, which may have had another protocol."""
    member = known.get(stored.member_id)
    if member is None or (
        member.metadata(protocol), member.rebalance_timeout_ms, member.session_timeout_ms,
    ) != (stored.subscription, stored.rebalance_timeout_ms, stored.session_timeout_ms):  # fmt: skip
        member = Member(
            stored.member_id,
            stored.instance_id,
            stored.client_id,
            stored.client_host,
            stored.rebalance_timeout_ms,
            stored.session_timeout_ms,
            ((protocol or "", stored.subscription),),
        )
    member.assignment = stored.assignment
    return member
