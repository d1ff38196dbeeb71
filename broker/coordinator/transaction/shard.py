"""The transactional ids of one partition of __transaction_state, while this broker leads it.

As in a group's shard, records that were appended wait until the HW has passed them; then they are
replayed, and only then is anybody told.  One that waited for too long is answered with an error,
and is replayed all the same when it is committed at last.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from highwater.broker.coordinator.shard import Shard
from highwater.broker.coordinator.transaction.records import TransactionRecord
from highwater.broker.coordinator.transaction.transaction import Transaction, Write

if TYPE_CHECKING:
    from highwater.broker.coordinator.partition_loading import Loaded
    from highwater.broker.replica.partition import Partition


@dataclass(slots=True)
class PendingWrite:
    """A write that was appended.  `settled`: its `then` was called, perhaps with a time-out."""

    transaction: Transaction
    write: Write
    end_offset: int
    settled: bool = False


class TransactionShard(Shard[TransactionRecord]):
    def __init__(self, partition: Partition) -> None:
        super().__init__(partition)
        self.transactions: dict[str, Transaction] = {}
        self.pending: deque[PendingWrite] = deque()

    @property
    def names(self) -> int:
        return len(self.transactions)

    @property
    def coordinator_epoch(self) -> int:
        """What markers carry: the leader epoch of this partition."""
        return int(self.partition.leader_epoch)

    def transaction(self, transactional_id: str) -> Transaction:
        found = self.transactions.get(transactional_id)
        if found is None:
            found = self.transactions[transactional_id] = Transaction(transactional_id)
        return found

    def replay(self, record: TransactionRecord, offset: int) -> None:
        transaction = self.transaction(record.transactional_id)
        transaction.replay(record)
        self.drop_if_unused(transaction)

    def take_committed(self) -> PendingWrite | None:
        """The oldest write that the HW has passed since, replayed."""
        if not self.pending or self.pending[0].end_offset > self.partition.high_watermark:
            return None
        done = self.pending.popleft()
        done.transaction.pending = False
        self.replay(done.write.record, done.end_offset - 1)
        return done

    def drop_if_unused(self, transaction: Transaction) -> None:
        if transaction.is_unused:
            self.transactions.pop(transaction.transactional_id, None)

    def undecided(self, loaded: Loaded[TransactionRecord]) -> None:
        """Nobody writes to this topic in a transaction."""

    def forget(self) -> None:
        self.transactions.clear()
