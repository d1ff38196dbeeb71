"""The protocol on one share group: heartbeats, time-outs, and the state of its share-partitions.

A heartbeat does five things, each where it is needed: it updates the member's subscription; it
raises the group epoch, because a subscription or a topic has changed, or more share-partitions can
be assigned; it computes new targets for all members; it takes the member to its own; and it has the
state of share-partitions initialized that are not.  What changes is in the records of the `Step`.

A topic's share-partitions are *initializing* until the share coordinator has their state, and then
*initialized*: only these are assigned.  They are *deleting* while their state is deleted for good.

Source: GroupMetadataManager, GroupCoordinatorService of Apache Kafka 4.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from highwater.broker.coordinator.group.consumer import subscribed_topics as topic_facts
from highwater.broker.coordinator.group.consumer.heartbeats import Beat, Heartbeat, updated
from highwater.broker.coordinator.group.consumer.members import (
    LEFT,
    Current,
    Member,
    MemberState,
    Partitions,
    Subscription,
)
from highwater.broker.coordinator.group.consumer.records import GroupEpoch
from highwater.broker.coordinator.group.consumer.subscribed_topics import Topic, Topics
from highwater.broker.coordinator.group.share import simple_assignor
from highwater.broker.coordinator.group.share.records import (
    CurrentRecord,
    EpochRecord,
    MemberRecord,
    ShareRecord,
    StateRecord,
    StateTopics,
    TargetEpochRecord,
    TargetRecord,
)
from highwater.broker.coordinator.group.share.share_group import ShareGroup
from highwater.kafka.errors import ApiError, ErrorCode

NOBODYS_NAME = "<UNKNOWN>"
"""Stands for the name of a topic that no longer exists, as in Kafka's records."""


@dataclass(frozen=True, slots=True)
class Limits:
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_size: int


@dataclass(slots=True)
class Step:
    """What a step asks for.  A timer's value is its delay in ms; None stops it."""

    records: list[ShareRecord] = field(default_factory=list)
    answer: Beat | None = None
    sessions: dict[str, int | None] = field(default_factory=dict)
    """Members whose session begins again, or ends."""
    initialize: Partitions = field(default_factory=dict)
    """Share-partitions whose state must be initialized, once the records are committed."""
    epoch: int = 0
    """The group epoch, which becomes the epoch of that state."""
    rebalances: bool = False
    """Whether the group epoch has risen."""


def check(request: Heartbeat) -> None:
    """Raises ApiError for a request that is none, whatever the group is."""
    if not request.member_id.strip() or len(request.member_id) > 36:
        raise ApiError(ErrorCode.INVALID_REQUEST, "MemberId must have 1 to 36 characters")
    if request.rack_id is not None and not request.rack_id.strip():
        raise ApiError(ErrorCode.INVALID_REQUEST, "RackId can't be empty; leave it out, or set it")
    if request.epoch == 0 and not request.topics:
        raise ApiError(ErrorCode.INVALID_REQUEST, "SubscribedTopicNames must be set to join")
    if request.epoch < LEFT:
        text = f"MemberEpoch {request.epoch} is none; join with 0, or leave with -1"
        raise ApiError(ErrorCode.INVALID_REQUEST, text)


class ShareSteps:
    """The steps on one group."""

    def __init__(self, group: ShareGroup, limits: Limits, topics: Topics) -> None:
        self.group = group
        self.limits = limits
        self.topics = topics

    # ---------------------------------------------------------------- heartbeat

    def heartbeat(self, request: Heartbeat) -> Step:
        """The step of a member that stays, or joins; raises ApiError."""
        group, step = self.group, Step()
        member = self._member(request)
        told = updated(member.subscription, request)
        newer = replace(member, subscription=told)
        if told != member.subscription or member.member_id not in group.members:
            step.records.append(MemberRecord(group.group_id, member.member_id, told))
        changed = told.topics != member.subscription.topics or self._can_assign_more()
        names = self._names(newer)
        step.epoch = self._raise_epoch(step, names, at_least=changed)
        if step.epoch > group.target_epoch:
            target = step.epoch, self._compute(newer, names, step)
        else:
            target = group.target_epoch, group.target_of(member.member_id)
        current = self._reconcile(newer, target, names, changed or step.rebalances, step)
        step.sessions[member.member_id] = self.limits.session_timeout_ms
        tells_all = request.epoch == 0 or request.topics is not None
        step.answer = Beat(
            ErrorCode.NONE,
            member.member_id,
            current.epoch,
            self.limits.heartbeat_interval_ms,
            current.assigned if tells_all or current.assigned != member.current.assigned else None,
        )
        self._initialize(names, step)
        return step

    def _member(self, request: Heartbeat) -> Member:
        """The member that sends the request, as it is so far; raises ApiError."""
        group, member_id = self.group, request.member_id
        member = group.members.get(member_id)
        if member is None and len(group.members) >= self.limits.max_size:
            text = f"the group has group.share.max.size ({self.limits.max_size}) members"
            raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, text)
        if member is None:
            if request.epoch != 0:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is no member")
            return Member(member_id)
        current = member.current
        if request.epoch not in (0, current.epoch) and (
            request.epoch > current.epoch or request.epoch != current.previous_epoch
        ):
            text = (
                f"epoch {request.epoch} is not the member's, which is {current.epoch}; join again"
            )
            raise ApiError(ErrorCode.FENCED_MEMBER_EPOCH, text)
        return member

    def _names(self, newer: Member | None, *, without: str = "") -> dict[str, Topic]:
        """The topics of the group with this member, or without one, of those that exist."""
        counts = Counter(self.group.topics)
        before = self.group.members.get(without or (newer.member_id if newer else ""))
        if before is not None:
            counts.subtract(before.subscription.topics)
        counts.update(newer.subscription.topics if newer else ())
        return topic_facts.known([name for name, n in counts.items() if n > 0], self.topics)

    def _can_assign_more(self) -> bool:
        """Whether share-partitions were initialized, and are not in the targets yet."""
        group = self.group
        assigned: dict[bytes, set[int]] = {}
        for target in group.targets.values():
            for topic_id, numbers in target.items():
                assigned.setdefault(topic_id, set()).update(numbers)
        return bool(group.members) and any(
            self.topics.name_of(topic_id) in group.topics
            and numbers != frozenset(assigned.get(topic_id, ()))
            for topic_id, numbers in group.state_topics.initialized.items()
        )

    def _raise_epoch(self, step: Step, names: dict[str, Topic], *, at_least: bool) -> int:
        """The group epoch: one more if `at_least`, or if the topics' metadata is new."""
        group = self.group
        epoch = group.epoch
        if at_least or group.seen != (epoch, names):
            found = topic_facts.group_hash(names, self.topics)
            if at_least or found != group.metadata_hash:
                epoch += 1
                step.rebalances = True
                step.records.append(EpochRecord(group.group_id, GroupEpoch(epoch, found)))
            group.seen = epoch, names
        return epoch

    def _compute(self, newer: Member, names: dict[str, Topic], step: Step) -> Partitions:
        """Computes the targets of all members for the epoch, and returns this member's."""
        group = self.group
        members = {**group.members, newer.member_id: newer}
        targets = simple_assignor.assign(
            {m: _topic_ids(member.subscription, names) for m, member in members.items()},
            group.state_topics.initialized,
            group.targets,
        )
        for member_id, target in targets.items():
            if target != group.targets.get(member_id):
                step.records.append(TargetRecord(group.group_id, member_id, target))
        step.records.append(TargetEpochRecord(group.group_id, step.epoch))
        return targets[newer.member_id]

    def _reconcile(
        self,
        member: Member,
        target: tuple[int, Partitions],
        names: dict[str, Topic],
        changed: bool,
        step: Step,
    ) -> Current:
        """Takes the member to its target."""
        epoch, wanted = target
        before = member.current
        if before.has_come_to(epoch) and not changed:
            return before
        asked = _topic_ids(member.subscription, names)
        assigned = {topic: numbers for topic, numbers in wanted.items() if topic in asked}
        previous = before.previous_epoch if before.epoch == epoch else before.epoch
        current = Current(epoch, previous, MemberState.STABLE, assigned)
        if current != before:
            step.records.append(CurrentRecord(self.group.group_id, member.member_id, current))
        return current

    def _initialize(self, names: dict[str, Topic], step: Step) -> None:
        """Asks for the state of share-partitions that have none, and are not about to have it."""
        group = self.group
        initialized = group.state_topics.initialized
        wanted = {}
        for topic_id, count in names.values():
            left = frozenset(
                number
                for number in range(count)
                if number not in initialized.get(topic_id, ())
                and (topic_id, number) not in group.busy
            )
            if left:
                wanted[topic_id] = left
        if wanted:
            step.initialize = wanted
            step.records += self.initializing(wanted)

    # ---------------------------------------------------------------- leaving

    def leave(self, member_id: str) -> Step:
        """The step of a member that leaves; raises ApiError."""
        if member_id not in self.group.members:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is no member")
        step = self.timed_out(member_id)
        step.answer = Beat(ErrorCode.NONE, member_id, LEFT)
        return step

    def timed_out(self, member_id: str) -> Step:
        """The step of a member whose session has ended; does nothing if there is none."""
        group, step = self.group, Step(sessions={member_id: None})
        if member_id in group.members:
            found = topic_facts.group_hash(self._names(None, without=member_id), self.topics)
            step.records += group.member_tombstones(member_id)
            step.records.append(EpochRecord(group.group_id, GroupEpoch(group.epoch + 1, found)))
        return step

    def loaded(self) -> Step:
        """The step of a coordinator that takes over: every session begins again."""
        timeout_ms = self.limits.session_timeout_ms
        return Step(sessions=dict.fromkeys(self.group.members, timeout_ms))

    # ---------------------------------------------------------------- the state of share-partitions

    def initializing(self, wanted: Partitions) -> list[ShareRecord]:
        """Notes that state is about to be initialized."""
        known = self.group.state_topics
        return self._state(
            replace(
                known,
                initializing=_joined(known.initializing, wanted),
                deleting=known.deleting - wanted.keys(),
            )
        )

    def ended(self, tried: Partitions, initialized: Partitions) -> list[ShareRecord]:
        """Notes which of the share-partitions were initialized; the others must be tried again."""
        known = self.group.state_topics
        return self._state(
            replace(
                known,
                initializing=_without(known.initializing, tried),
                initialized=_joined(known.initialized, initialized),
            )
        )

    def deleting(self, topic_ids: Collection[bytes]) -> list[ShareRecord]:
        """Notes that the state of topics is about to be deleted."""
        known = self.group.state_topics
        return self._state(
            StateTopics(
                {t: numbers for t, numbers in known.initializing.items() if t not in topic_ids},
                {t: numbers for t, numbers in known.initialized.items() if t not in topic_ids},
                known.deleting.union(topic_ids),
                known.names,
            )
        )

    def forgotten(self, topic_ids: Collection[bytes]) -> list[ShareRecord]:
        """Notes that topics have no state any more; no records if none is known."""
        known = self.group.state_topics
        if not {*known.initializing, *known.initialized, *known.deleting}.intersection(topic_ids):
            return []
        return self._state(
            StateTopics(
                {t: numbers for t, numbers in known.initializing.items() if t not in topic_ids},
                {t: numbers for t, numbers in known.initialized.items() if t not in topic_ids},
                known.deleting.difference(topic_ids),
                known.names,
            )
        )

    def _state(self, topics: StateTopics) -> list[ShareRecord]:
        used = (*topics.initializing, *topics.initialized, *sorted(topics.deleting))
        names = {topic_id: self._name_of(topic_id, topics.names) for topic_id in used}
        return [StateRecord(self.group.group_id, replace(topics, names=names))]

    def _name_of(self, topic_id: bytes, names: Mapping[bytes, str]) -> str:
        return self.topics.name_of(topic_id) or names.get(topic_id) or NOBODYS_NAME


def _topic_ids(told: Subscription, names: dict[str, Topic]) -> frozenset[bytes]:
    """The ids of the topics that a subscription names, of those that exist."""
    return frozenset(names[name].topic_id for name in told.topics if name in names)


def _joined(one: Partitions, other: Partitions) -> Partitions:
    topics: Iterable[bytes] = dict.fromkeys((*one, *other))
    return {t: one.get(t, frozenset()) | other.get(t, frozenset()) for t in topics}


def _without(one: Partitions, other: Partitions) -> Partitions:
    left = {t: numbers - other.get(t, frozenset()) for t, numbers in one.items()}
    return {t: numbers for t, numbers in left.items() if numbers}
