"""T3 in each replica's index of aborted transactions, where a read_committed reader looks.

A reader leaves out the transactions that the leader's index lists.  An entry missing on a replica
shows only when that replica leads and a client reads there.  So all indexes are compared with their
logs: a transaction begins with the first batch of a producer id that has none open, and was aborted
where an abort marker ends it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from highwater.broker.services import Services
    from highwater.kafka.types import TopicPartition
    from highwater.simulation.rules.cluster_rules import Rules
    from highwater.simulation.rules.mirror import Batch

Entry = tuple[int, int, int]
"""(producer id, first offset, marker's offset)"""


def by_the_log(batches: Iterable[Batch]) -> list[Entry]:
    found: list[Entry] = []
    open_: dict[int, int] = {}
    for batch in batches:
        if batch.marker:
            first = open_.pop(batch.producer_id, None)
            if first is not None and batch.aborts:
                found.append((batch.producer_id, first, batch.last))
        elif batch.transactional:
            open_.setdefault(batch.producer_id, batch.base)
    return found


class ComparedNode(Protocol):
    """A broker's machine, and the broker that runs there now."""

    @property
    def id(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def services(self) -> Services | None: ...


def compare(nodes: Iterable[ComparedNode], rules: Rules, tps: Iterable[TopicPartition]) -> int:
    """Compares the indexes; returns the number of entries.  A difference breaks T3."""
    compared = 0
    for tp in tps:
        for node in nodes:
            partition = node.services and node.services.replicas.partitions.get(tp)
            if not partition or partition.log is None:
                continue
            replica = rules.replica(rules.partitions[tp], node.id)
            logged = by_the_log(replica.mirror.batches)
            held = [e for s in partition.log.segments for e in s.txn_index.entries]
            # if a transaction began in a deleted segment, the log no longer has its first offset
            begun = {(e[0], e[2]) for e in held if e[1] < replica.mirror.start}
            expected, known = (
                [(e[0], e[1], e[2]) for e in of if (e[0], e[2]) not in begun]
                for of in (logged, held)
            )
            compared += len(expected)
            for entry in set(expected).symmetric_difference(known):
                what = "lacks" if entry in expected else "has, against its log,"
                rules.broken(
                    "T3", f"{tp}: the index of {node.name} {what} the aborted transaction {entry}"
                )
    return compared
