"""The share-partitions of one partition of __share_group_state, while this broker leads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from highwater.broker.coordinator.shard import PendingWrite, Shard
from highwater.broker.coordinator.share.records import StateRecord
from highwater.broker.coordinator.share.share_states import ShareStates
from highwater.broker.share.persister import StateAnswer

if TYPE_CHECKING:
    from highwater.broker.coordinator.partition_loading import Loaded
    from highwater.broker.replica.partition import Partition

Done = Callable[[StateAnswer], None]
StateWrite = PendingWrite[Done, StateAnswer]
"""Who waits, and the answer if the records are committed."""


class StateShard(Shard[StateRecord, StateWrite]):
    def __init__(self, partition: Partition, updates_per_snapshot: int) -> None:
        super().__init__(partition)
        self.states = ShareStates(updates_per_snapshot)

    @property
    def names(self) -> int:
        return len(self.states)

    def replay(self, record: StateRecord, offset: int) -> None:
        self.states.apply(record, offset)

    def replay_appended(self, done: StateWrite) -> None:
        """Does nothing: records are applied when they are appended."""

    def undecided(self, loaded: Loaded[StateRecord]) -> None:
        """Does nothing: this topic has no transactional records."""

    def forget(self) -> None:
        self.states.clear()
