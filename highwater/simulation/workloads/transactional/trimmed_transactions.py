"""DeleteRecords amid transactions.

Somebody deletes the beginning of the transactions' partitions now and then, up to the end of what
is committed, so that open transactions lose their first records, or all of them.  The promises are
those of the transactions (`transaction_workload`), but for the deleted records, and of every answer
of Fetch: its LSO does not lie below its log start (`rules/answers`, UnifiedLog.
maybeIncrementFirstUnstableOffset).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Self

import trio

from highwater.kafka.types import TopicPartition
from highwater.simulation.requested import beginning
from highwater.simulation.workloads.part import Part, Shared, Works
from highwater.simulation.workloads.plain_client import Failed, SimClient
from highwater.simulation.workloads.transactional.transaction_workload import TPS
from highwater.simulation.workloads.transactional.transactions_client import TOPIC


@dataclass
class TrimmedTransactions(Part):
    needs = ("trimmed", "transactions")

    deleted: dict[TopicPartition, int] = field(default_factory=lambda: defaultdict(int))
    """Partition -> the offset below which records may be gone."""

    @classmethod
    def of(cls, shared: Shared) -> Self:
        return cls(*shared.told, deleted=shared.cluster.requested.deletions)

    def clients(self) -> Works:
        return {"txn-deleter": self.delete}

    async def delete(self, client: SimClient) -> None:
        """Deletes records now and then until cancelled."""
        random = client.random
        while True:
            await trio.sleep(random.expovariate(0.2))
            tp = random.choice(TPS)
            offset = beginning(self.deleted, tp, self.rules.partitions[tp].end, random)
            if offset is None:
                continue
            self.rules.shortened.add(TOPIC)
            self.count["txn records: deletions"] += 1
            try:
                await client.delete_records(tp, offset)
            except Failed as failed:
                self.errors[failed.name] += 1
                client.forget(tp)
