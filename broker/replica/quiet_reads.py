"""Reads that need not be made again: of a follower's partitions, all but a few are at rest.

A follower's fetch names every partition that it copies from this leader, and in an incremental
session (KIP-227) nearly none of them has changed since the fetch before.  The leader keeps the last
read of a partition that gave nothing, and takes it again while all that it depends on is as it was.
So a partition at rest costs a write a few comparisons.  Kafka reads all.

A partition of which the follower is not in the ISR is always read: each fetch may let it join.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from highwater.broker.replica.partition import Role

if TYPE_CHECKING:
    from highwater.broker.replica.partition import Partition
    from highwater.broker.replica.reading import PartitionRead
    from highwater.kafka.wire.fetch import FetchPartition


class QuietRead:
    """An empty read at the log's end, with all that it was made from.

    The request names the leader epoch that it was checked against.  An epoch never falls and has
    one leader, so while the request's epoch is the partition's, log and followers are those of the
    read.
    """

    __slots__ = ("_asked", "_follower", "_log", "_partition", "read")

    def __init__(
        self, partition: Partition, replica_id: int, asked: FetchPartition, read: PartitionRead
    ) -> None:
        self.read = read
        self._asked = asked
        self._partition = partition
        self._log = partition.log
        self._follower = partition.followers.get(replica_id)

    def holds(self, asked: FetchPartition, partition: Partition | None) -> bool:
        """Whether a read for this request, of the partition that is hosted now, would give the
        same, and would change nothing but the time of the follower's last fetch."""
        log, follower, result = self._log, self._follower, self.read.result
        return (
            asked is self._asked
            and partition is self._partition
            and partition.log is log is not None
            and partition.role is Role.LEADER
            and partition.leader_epoch == asked.current_leader_epoch
            and log.log_end_offset == asked.fetch_offset
            and log.log_start_offset == result.log_start_offset
            and partition.high_watermark == result.high_watermark
            and partition.last_stable_offset == result.last_stable_offset
            and follower is not None
            and partition.followers.get(follower.broker_id) is follower
            and follower.log_end_offset == asked.fetch_offset
            and follower.log_start_offset == asked.log_start_offset
            and follower.broker_id in partition.isr.members
        )

    def fetched(self, now_ms: int) -> None:
        """Notes the follower's fetch, as `Partition.follower_fetched` would; it `holds`."""
        assert self._follower is not None
        end = self._asked.fetch_offset
        self._follower.fetched(end, self._asked.log_start_offset, end, now_ms)
