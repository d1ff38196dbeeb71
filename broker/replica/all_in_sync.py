"""Whether all replicas of a partition are in the ISR, as this broker knows it.

The log cleaner asks: a replica that is away has yet to fetch the tombstones and markers, and must
find them at whichever replica leads when it comes back.  What the cleaner of a leader takes for
whole is so: it cleans below its HW, and the HW is not above the LEO of any member of the maximal
ISR.  A follower goes by UpdateMetadata, which may be late, so delete.retention.ms must be longer
than the controller takes to tell of an ISR; it is a day by default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from highwater.broker.replica.partition import Partition, Role

if TYPE_CHECKING:
    from highwater.broker.metadata.partition_metadata import PartitionMetadata


def all_in_sync(hosted: Partition | None, told: PartitionMetadata | None) -> bool:
    """`hosted`: this broker's replica; `told`: what UpdateMetadata said last.  None: unknown."""
    if hosted is not None and hosted.role is Role.LEADER:
        return set(hosted.replicas) <= set(hosted.isr.members)
    return told is not None and set(told.replicas) <= set(told.isr)
