"""The groups of one partition of __consumer_offsets, while this broker leads it.

Offsets committed in a transaction are kept apart until its marker is committed.  Then they count
from the place where they were appended: a later plain commit of the same partition stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from highwater.broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from highwater.broker.coordinator.group.consumer.records import CONSUMER_RECORDS
from highwater.broker.coordinator.group.group import Group, Write
from highwater.broker.coordinator.group.records import GroupLogRecord
from highwater.broker.coordinator.group.share.records import SHARE_RECORDS, ShareRecord
from highwater.broker.coordinator.group.share.share_group import KeptShareGroup, ShareGroup
from highwater.broker.coordinator.shard import PendingWrite, Shard
from highwater.kafka.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from highwater.broker.coordinator.partition_loading import Loaded
    from highwater.broker.replica.partition import Partition
    from highwater.broker.request.timing_wheel import TimerTask


@dataclass(frozen=True, slots=True)
class PendingMarker:
    """The end of a transaction, which was appended and is not yet committed."""

    producer_id: int
    commit: bool
    end_offset: int


@dataclass(frozen=True, slots=True)
class CommitsOnTheirWay:
    """The commits in a shard's partition that were on their way at some moment."""

    shard: GroupShard
    end_offset: int

    @property
    def decided(self) -> bool:
        """Whether the HW has passed the commits, or another broker now coordinates the group."""
        shard = self.shard
        return not shard.leads or shard.partition.high_watermark >= self.end_offset


@dataclass(frozen=True, slots=True)
class ShareWrite:
    """Records of a share group; `then` is called once with the result."""

    records: tuple[ShareRecord, ...]
    then: Callable[[ErrorCode], None]


GroupWrite = PendingWrite[Group, Write] | PendingWrite[KeptShareGroup, ShareWrite]


Shown = ConsumerGroup | ShareGroup | Group


class GroupShard(Shard[GroupLogRecord, GroupWrite | PendingMarker]):
    def __init__(self, partition: Partition) -> None:
        super().__init__(partition)
        self.groups: dict[str, Group] = {}
        self.share_groups: dict[str, KeptShareGroup] = {}
        self.held: dict[int, list[tuple[GroupLogRecord, int]]] = {}
        """By producer id, the records of its open transaction, with their offsets in the log."""
        self.timers: dict[tuple[str, str, str], TimerTask] = {}

    @property
    def names(self) -> int:
        return len(self.groups) + len(self.share_groups)

    def shown(self, group_id: str) -> Shown | None:
        """What clients are shown of a group, by its committed records."""
        kept, group = self.share_groups.get(group_id), self.groups.get(group_id)
        if kept is not None:
            return kept.committed
        return None if group is None else group.shown

    def all_shown(self) -> list[Shown]:
        found: list[Shown | None] = [group.shown for group in self.groups.values()]
        found += (kept.committed for kept in self.share_groups.values())
        return [group for group in found if group is not None]

    def new_group(self, group_id: str) -> Group:
        """The group, which is made if there is none; raises ApiError for the id of a share
        group."""
        if group_id in self.share_groups:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"{group_id} is a share group")
        return self.group(group_id)

    def share_group(self, group_id: str) -> KeptShareGroup:
        found = self.share_groups.get(group_id)
        if found is None:
            found = self.share_groups[group_id] = KeptShareGroup(group_id)
        return found

    def group(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id)
        return group

    def replay(self, record: GroupLogRecord, offset: int) -> None:
        if isinstance(record, SHARE_RECORDS):
            kept = self.share_group(record.group_id)
            kept.replay(record)
            self.drop_share_group_if_unused(kept)
            return
        group = self.group(record.group_id)
        group.replay(record, offset)
        if record.value is None and group.is_unused:
            del self.groups[record.group_id]

    def replay_appended(self, done: GroupWrite | PendingMarker) -> None:
        if isinstance(done, PendingMarker):
            self._end_transaction(done)
            return
        if isinstance(done.write, ShareWrite):
            kept = done.named
            assert isinstance(kept, KeptShareGroup)
            kept.committed_later(done.write.records)
            self.drop_share_group_if_unused(kept)
            return
        assert isinstance(done.named, Group)
        done.named.pending_writes -= 1
        if done.write.producer is None:
            records = done.write.records
            for offset, record in enumerate(records, done.end_offset - len(records)):
                if isinstance(record, CONSUMER_RECORDS):
                    done.named.committed_later(record)
                else:
                    self.replay(record, offset)
        self.drop_if_unused(done.named)

    # ---------------------------------------------------------------- transactions

    def hold(self, producer_id: int, records: Iterable[tuple[GroupLogRecord, int]]) -> None:
        """Holds offsets that were appended as part of a transaction."""
        held = self.held.setdefault(producer_id, [])
        for record, offset in records:
            held.append((record, offset))
            self.group(record.group_id).hold(record)

    def undecided(self, loaded: Loaded[GroupLogRecord]) -> None:
        for producer_id, records in loaded.open.items():
            self.hold(producer_id, records)

    def _end_transaction(self, marker: PendingMarker) -> None:
        held = self.held.pop(marker.producer_id, [])
        later = [(record, offset) for record, offset in held if offset >= marker.end_offset]
        if later:  # the marker was appended already, and the next transaction has begun
            self.held[marker.producer_id] = later
        for record, offset in held[: len(held) - len(later)]:
            group = self.group(record.group_id)
            group.release(record)
            if marker.commit:
                self.replay(record, offset)
            self.drop_if_unused(group)

    def drop_if_unused(self, group: Group) -> None:
        if group.is_unused and self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]

    def drop_share_group_if_unused(self, kept: KeptShareGroup) -> None:
        if kept.is_unused and self.share_groups.get(kept.group_id) is kept:
            del self.share_groups[kept.group_id]

    def forget(self) -> None:
        self.groups.clear()
        self.share_groups.clear()
        self.held.clear()
