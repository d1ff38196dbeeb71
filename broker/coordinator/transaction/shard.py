"""The transactional ids of one partition of __transaction_state, while this broker leads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from highwater.broker.coordinator.shard import PendingWrite, Shard
from highwater.broker.coordinator.transaction.records import TransactionRecord
from highwater.broker.coordinator.transaction.transaction import Transaction, Write

if TYPE_CHECKING:
    from highwater.broker.coordinator.partition_loading import Loaded
    from highwater.broker.replica.partition import Partition


TransactionWrite = PendingWrite[Transaction, Write]


class TransactionShard(Shard[TransactionRecord, TransactionWrite]):
    def __init__(self, partition: Partition) -> None:
        super().__init__(partition)
        self.transactions: dict[str, Transaction] = {}

    @property
    def names(self) -> int:
        return len(self.transactions)

    @property
    def coordinator_epoch(self) -> int:
        """The leader epoch of this partition, which markers carry."""
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

    def replay_appended(self, done: TransactionWrite) -> None:
        done.named.pending = False
        self.replay(done.write.record, done.end_offset - 1)

    def drop_if_unused(self, transaction: Transaction) -> None:
        if transaction.is_unused:
            self.transactions.pop(transaction.transactional_id, None)

    def undecided(self, loaded: Loaded[TransactionRecord]) -> None:
        """Does nothing: this topic has no transactional records."""

    def forget(self) -> None:
        self.transactions.clear()
