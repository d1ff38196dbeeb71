"""One consumer group, made from its records alone.

    Empty        no members
    Assigning    the group epoch is ahead of the target's
    Reconciling  some member has yet to come to its target
    Stable       all members have
    Dead         another broker coordinates the group, or it is deleted

Records are applied in the order of the log, when they are appended; loading applies them too.  A
compacted log may lack what came before, so each record is taken for what it says.

Source: ConsumerGroup, ModernGroup of Kafka's group coordinator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from enum import Enum

from highwater.broker.coordinator.group.consumer.members import (
    LEFT,
    NOTHING,
    Current,
    Member,
    Partitions,
    Resolved,
)
from highwater.broker.coordinator.group.consumer.records import (
    ConsumerRecord,
    CurrentRecord,
    EpochRecord,
    MemberRecord,
    RegexRecord,
    TargetEpochRecord,
    TargetRecord,
    TopicsRecord,
)


class State(Enum):
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroup:
    """State and look-ups; the steps are in `consumer_steps`."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        """By group.instance.id, the member that has it."""
        self.targets: dict[str, Partitions] = {}
        self.resolved: dict[str, Resolved] = {}
        self.has_topics_record = False
        self.dead = False
        # counted from the members
        self.topics: Counter[str] = Counter()
        self.regexes: Counter[str] = Counter()
        self.assignors: Counter[str] = Counter()
        self.classic_protocols: Counter[str] = Counter()
        """Those that members of the classic protocol support."""
        self.classic_members = 0
        self.owners: dict[tuple[bytes, int], str] = {}
        """By partition, the member that has it, or has yet to give it up."""
        # not stored
        self.seen: object = None
        """The metadata of the group's topics at the latest look, with the group epoch."""
        self.refreshed_ms: float | None = None
        """When regular expressions were last looked up (monotonic)."""
        self.is_resolving = False
        self.told_to_join: dict[str, None] = {}
        """The members of the classic protocol that have yet to join again."""

    @property
    def state(self) -> State:
        if self.dead:
            return State.DEAD
        if not self.members:
            return State.EMPTY
        if self.epoch > self.target_epoch:
            return State.ASSIGNING
        if all(m.current.has_come_to(self.target_epoch) for m in self.members.values()):
            return State.STABLE
        return State.RECONCILING

    def static_member(self, instance_id: str) -> Member | None:
        return self.members.get(self.static_members.get(instance_id, ""))

    def is_free(self, topic_id: bytes, partition: int) -> bool:
        return (topic_id, partition) not in self.owners

    def target_of(self, member_id: str, instance_id: str | None = None) -> Partitions:
        """The member's target, or that of the static member whose place it takes."""
        if member_id in self.targets or instance_id is None:
            return self.targets.get(member_id, NOTHING)
        return self.targets.get(self.static_members.get(instance_id, ""), NOTHING)

    def subscribed_topics(self) -> dict[str, None]:
        """All topics that a member has subscribed to, by name or by a regular expression."""
        names = dict.fromkeys(self.topics)
        for regex in self.regexes:
            if regex in self.resolved:
                names.update(dict.fromkeys(self.resolved[regex].topics))
        return names

    # ---------------------------------------------------------------- replay

    def apply(self, record: ConsumerRecord) -> bool:
        """Applies a record; False says that the group is gone."""
        match record:
            case EpochRecord(_, value):
                if value is None:
                    return False
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case TopicsRecord(_, topics):
                self.has_topics_record = topics is not None
            case TargetEpochRecord(_, epoch):
                self.target_epoch = -1 if epoch is None else epoch
            case TargetRecord(_, member_id, target):
                if target is None:
                    self.targets.pop(member_id, None)
                else:
                    self.targets[member_id] = target
            case RegexRecord(_, regex, resolved):
                if resolved is None:
                    self.resolved.pop(regex, None)
                else:
                    self.resolved[regex] = resolved
            case MemberRecord(_, member_id, None):
                self._set(member_id, None)
            case MemberRecord(_, member_id, subscription) if subscription is not None:
                self._set(member_id, replace(self._known(member_id), subscription=subscription))
            case CurrentRecord(_, member_id, current):
                self._adopt(member_id, current)
        return True

    def _known(self, member_id: str) -> Member:
        return self.members.get(member_id) or Member(member_id)

    def _adopt(self, member_id: str, current: Current | None) -> None:
        if current is not None:
            self._set(member_id, replace(self._known(member_id), current=current))
        elif member_id in self.members:
            left = Current(LEFT, LEFT)
            self._set(member_id, replace(self.members[member_id], current=left))

    def _set(self, member_id: str, member: Member | None) -> None:
        before = self.members.get(member_id)
        if before is not None:
            self._count(before, -1)
            for place in before.current.held:
                if self.owners.get(place) == member_id:
                    del self.owners[place]
            instance = before.subscription.instance_id
            if instance is not None and self.static_members.get(instance) == member_id:
                del self.static_members[instance]
        if member is None or member.subscription.classic is None:
            self.told_to_join.pop(member_id, None)
        if member is None:
            self.members.pop(member_id, None)
            return
        self.members[member_id] = member
        self._count(member, 1)
        self.owners.update(dict.fromkeys(member.current.held, member_id))
        if member.subscription.instance_id is not None:
            self.static_members[member.subscription.instance_id] = member_id

    def _count(self, member: Member, by: int) -> None:
        told = member.subscription
        _add(self.topics, told.topics, by)
        _add(self.regexes, (told.regex,) if told.regex else (), by)
        _add(self.assignors, () if told.assignor is None else (told.assignor,), by)
        if told.classic is not None:
            self.classic_members += by
            _add(self.classic_protocols, dict(told.classic.protocols), by)

    # ---------------------------------------------------------------- records

    def member_tombstones(self, member_id: str) -> list[ConsumerRecord]:
        return [
            CurrentRecord(self.group_id, member_id, None),
            TargetRecord(self.group_id, member_id, None),
            MemberRecord(self.group_id, member_id, None),
        ]

    def tombstones(self) -> list[ConsumerRecord]:
        """The records that delete the group."""
        found: list[ConsumerRecord] = [
            CurrentRecord(self.group_id, member_id, None) for member_id in self.members
        ]
        found += (TargetRecord(self.group_id, member_id, None) for member_id in self.targets)
        found.append(TargetEpochRecord(self.group_id, None))
        found += (MemberRecord(self.group_id, member_id, None) for member_id in self.members)
        found += (RegexRecord(self.group_id, regex, None) for regex in self.resolved)
        if self.has_topics_record:
            found.append(TopicsRecord(self.group_id))
        found.append(EpochRecord(self.group_id, None))
        return found


def _add(counts: Counter[str], names: Iterable[str], by: int) -> None:
    for name in names:
        counts[name] += by
        if not counts[name]:
            del counts[name]
