"""One share group, made from its records alone.

    Empty    no members
    Stable   members
    Dead     another broker coordinates the group

Records are applied in the order of the log, when they are appended; loading applies them too.  A
compacted log may lack what came before, so each record is taken for what it says.

Source: ShareGroup, ModernGroup of Kafka's group coordinator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from enum import Enum

from highwater.broker.coordinator.group.consumer.members import (
    NOTHING,
    Current,
    Member,
    Partitions,
)
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


class State(Enum):
    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


class ShareGroup:
    """State and look-ups; the steps are in `share_steps`."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.members: dict[str, Member] = {}
        self.targets: dict[str, Partitions] = {}
        self.state_topics = StateTopics()
        self.dead = False
        # counted from the members
        self.topics: Counter[str] = Counter()
        # not stored
        self.seen: object = None
        """The metadata of the group's topics at the latest look, with the group epoch."""
        self.busy: dict[tuple[bytes, int], None] = {}
        """The share-partitions whose state this broker is having initialized, or deleted."""

    @property
    def state(self) -> State:
        if self.dead:
            return State.DEAD
        return State.STABLE if self.members else State.EMPTY

    def target_of(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NOTHING)

    # ---------------------------------------------------------------- replay

    def apply(self, record: ShareRecord) -> bool:
        """Applies a record; False says that the group is gone."""
        match record:
            case EpochRecord(_, value):
                if value is None:
                    return False
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case TargetEpochRecord(_, epoch):
                self.target_epoch = -1 if epoch is None else epoch
            case TargetRecord(_, member_id, target):
                if target is None:
                    self.targets.pop(member_id, None)
                else:
                    self.targets[member_id] = target
            case StateRecord(_, topics):
                self.state_topics = topics or StateTopics()
            case MemberRecord(_, member_id, subscription):
                known = self._known(member_id)
                found = None if subscription is None else replace(known, subscription=subscription)
                self._set(member_id, found)
            case CurrentRecord(_, member_id, current) if current or member_id in self.members:
                self._set(member_id, replace(self._known(member_id), current=current or Current()))
        return True

    def _known(self, member_id: str) -> Member:
        return self.members.get(member_id) or Member(member_id)

    def _set(self, member_id: str, member: Member | None) -> None:
        before = self.members.pop(member_id, None)
        if before is not None:
            self.topics.subtract(before.subscription.topics)
        if member is not None:
            self.members[member_id] = member
            self.topics.update(member.subscription.topics)
        self.topics += Counter()  # without those that nobody names any more

    # ---------------------------------------------------------------- records

    def member_tombstones(self, member_id: str) -> list[ShareRecord]:
        return [
            CurrentRecord(self.group_id, member_id, None),
            TargetRecord(self.group_id, member_id, None),
            MemberRecord(self.group_id, member_id, None),
        ]

    def tombstones(self) -> list[ShareRecord]:
        """The records that delete the group, which has no members."""
        return [
            TargetEpochRecord(self.group_id, None),
            StateRecord(self.group_id, None),
            EpochRecord(self.group_id, None),
        ]


class KeptShareGroup:
    """A share group as its records in the log say, and what of them is committed, which is
    shown."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group: ShareGroup | None = None
        self.committed: ShareGroup | None = None
        self.pending_writes = 0

    @property
    def is_unused(self) -> bool:
        return self.group is None and self.committed is None and not self.pending_writes

    def appended(self, records: Iterable[ShareRecord]) -> None:
        for record in records:
            self.group = _applied(self.group, record)

    def committed_later(self, records: Iterable[ShareRecord]) -> None:
        """Takes records that were applied when they were appended."""
        self.pending_writes -= 1
        for record in records:
            self.committed = _applied(self.committed, record)

    def replay(self, record: ShareRecord) -> None:
        """Applies a record that is committed."""
        self.group = _applied(self.group, record)
        self.committed = _applied(self.committed, record)


def _applied(group: ShareGroup | None, record: ShareRecord) -> ShareGroup | None:
    """The group after a record; None if there is none any more."""
    if group is None:
        if record.value is None:
            return None
        group = ShareGroup(record.group_id)
    return group if group.apply(record) else None
