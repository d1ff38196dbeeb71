"""The groups of one partition of __consumer_offsets, while this broker leads it.

Records that were appended wait here, in the order of their offsets, until the HW has passed them;
then they are replayed, and only then is anybody told.  One that waited for too long is answered
with an error and is replayed all the same when it is committed at last: what the log says is true.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.coordinator.group.group import Group, Write
from broker.coordinator.group.records import GroupLogRecord

if TYPE_CHECKING:
    from broker.replica.partition import Partition
    from broker.timing_wheel import TimerEntry


@dataclass(slots=True)
class PendingWrite:
    """A write that was appended; `settled` once its `then` was called."""

    group: Group
    write: Write
    end_offset: int
    settled: bool = False


class Shard:
    """`partition` and `generation` say for which term as leader it holds."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.generation = partition.generation
        self.groups: dict[str, Group] = {}
        self.pending: deque[PendingWrite] = deque()
        self.timers: dict[tuple[str, str, str], TimerEntry] = {}
        self.loaded = False
        self.closed = False

    @property
    def leads(self) -> bool:
        """Whether the term is not over."""
        partition = self.partition
        return not self.closed and partition.is_leader and partition.generation == self.generation

    def group(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id)
        return group

    def replay(self, record: GroupLogRecord) -> None:
        """Applies a committed record: the only way in which what is stored changes."""
        group = self.group(record.group_id)
        group.replay(record)
        if record.value is None and group.is_unused:
            del self.groups[record.group_id]

    def take_committed(self) -> PendingWrite | None:
        """The oldest write that the HW has passed since, replayed."""
        if not self.pending or self.pending[0].end_offset > self.partition.high_watermark:
            return None
        done = self.pending.popleft()
        done.group.pending_writes -= 1
        for record in done.write.records:
            self.replay(record)
        return done

    def drop_if_unused(self, group: Group) -> None:
        if group.is_unused and self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]

    def forget(self) -> None:
        """What was loaded so far is thrown away."""
        self.groups.clear()
