"""Whether all replicas of a partition are in the ISR, as this broker knows it.

The log cleaner needs to know this before it drops tombstones and markers: a replica that is away
has yet to fetch them, and must find them at whichever replica leads when it comes back.  A leader's
answer can be relied on: its cleaner works below the HW, and the HW is not above the LEO of any
member of the maximal ISR.  A follower relies on UpdateMetadata, which may be late, so
delete.retention.ms (a day by default) must be longer than the controller takes to report an ISR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from highwater.broker.replica.partition import Partition, Role

if TYPE_CHECKING:
    from highwater.broker.metadata.partition_metadata import PartitionMetadata


def all_in_sync(hosted: Partition | None, told: PartitionMetadata | None) -> bool:
    """`hosted` is this broker's replica, `told` the latest UpdateMetadata; None if unknown."""
    if hosted is not None and hosted.role is Role.LEADER:
        return set(hosted.replicas) <= set(hosted.isr.members)
    return told is not None and set(told.replicas) <= set(told.isr)
