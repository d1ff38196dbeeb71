"""A joint's own transactional producer: it keeps its producer epoch from transaction to
transaction, and so its place in the partition that it writes to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from highwater.broker.coordinator.shard import partition_for
from highwater.simulation.faults.joint_acts import TRANSACTIONS
from highwater.simulation.faults.staged_faults import NothingToBreak
from highwater.simulation.workloads.plain_client import Failed
from highwater.simulation.workloads.transactional.transaction_workload import (
    TPS,
    Fenced,
    Producer,
    Transactions,
)
from highwater.simulation.workloads.transactional.transactions_client import TxnClient

if TYPE_CHECKING:
    from highwater.kafka.types import TopicPartition
    from highwater.simulation.cluster import SimCluster
    from highwater.simulation.workloads.transactional.transaction_ledger import Told

TIMEOUT_MS = 20_000
"""Long enough that no time-out ends its transaction while a message is held."""


class JointWriter:
    """A joint's producer.  The ledger of the run's transactions has its transactions, too, so they
    are judged in the same way."""

    def __init__(
        self, transactions: Transactions, client: TxnClient, name: str, tp: TopicPartition
    ) -> None:
        self.tp = tp
        self._producer = Producer(transactions, client, name, 1, TIMEOUT_MS)
        self._told: Told | None = None
        self._over = False
        """Whether a call failed for good: then it is unknown what it wrote, and which sequence
        number is next."""

    def _insist(self) -> None:
        if self._over:
            raise NothingToBreak(f"{self._producer.name} has given up")

    async def write(self) -> None:
        """Writes a record in the open transaction, or else in the next one."""
        self._insist()
        producer = self._producer
        try:
            if producer.uncertain or producer.me == (-1, -1):
                # an EndTxn may still be in flight, and would end the next transaction
                await producer.init(producer.me)
            if self._told is None:
                told = producer.told()
                await producer.join(
                    told, lambda: producer.client.add(producer.name, producer.me, self.tp)
                )
                self._told = told
            await producer.send(self._told, self.tp)
        except Failed as failed:
            self._over = True
            raise NothingToBreak(f"{producer.name} cannot write: {failed}") from failed

    async def end(self, commit: bool) -> None:
        self._insist()
        if self._told is None:
            raise NothingToBreak(f"{self._producer.name} has no open transaction")
        told, self._told = self._told, None
        try:
            await self._producer.end(told, commit=commit)
        except Fenced as fenced:
            self._over = True
            raise NothingToBreak(f"{self._producer.name} was fenced") from fenced

    def close(self) -> None:
        self._producer.client.close()


class Writers:
    """Makes the writers, each with a transactional id of its own."""

    def __init__(
        self,
        cluster: SimCluster,
        transactions: Transactions,
        client: Callable[[str], TxnClient],
    ) -> None:
        self._cluster = cluster
        self._transactions = transactions
        self._client = client
        self._number = 0

    def coordinated_by(self, decisions: TopicPartition) -> JointWriter:
        """A writer whose coordinator leads this partition, but not the one to which it writes."""
        leader_of = self._cluster.leader_of
        apart = [tp for tp in TPS if leader_of(tp) not in (None, leader_of(decisions))]
        if not apart:
            raise NothingToBreak("one broker leads all, the coordinator's partition and the data")
        partitions = sum(tp.topic == TRANSACTIONS for tp in self._cluster.rules.partitions)
        while True:
            self._number += 1
            name = f"joint-{self._number}"
            if partition_for(name, partitions) == decisions.partition:
                break
        tp = apart[self._number % len(apart)]
        return JointWriter(self._transactions, self._client(name), name, tp)
