"""Partitions at rest: most of those that a follower copies do not change between two fetches.

In an incremental session (KIP-227) each fetch asks for every partition of the session.  Where a
follower in the ISR has all that the leader has, and knows it, another read would give nothing, and
would change nothing but the time of the follower's last fetch.  Such a partition *rests*: fetches
of the session skip it, and the session's own time stands for the follower's.  So a fetch
costs what has changed, however many partitions the session has.  Kafka reads all of them.

Whatever could change that read ends the rest first (`Partition.stir`): an append, a HW, ISR, role,
epoch, log or log start that moves, a fetch of the same follower from elsewhere.  The session's next
fetch then reads the partition, and one that waits is told.

A partition of which the follower is not in the ISR never rests: each fetch may let it join.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from highwater.broker.replica.partition import Role

if TYPE_CHECKING:
    from highwater.broker.replica.fetch_sessions import FetchSession
    from highwater.broker.replica.follower import Follower
    from highwater.broker.replica.partition import Partition
    from highwater.kafka.wire.fetch import FetchedPartition, FetchPartition


class Rest:
    """One partition at rest for one follower: an empty read at the log's end, of which the follower
    has been told.
    """

    __slots__ = ("_follower", "_log", "_partition", "_session", "asked", "told")

    def __init__(
        self,
        session: FetchSession,
        partition: Partition,
        follower: Follower,
        asked: FetchPartition,
        told: FetchedPartition,
    ) -> None:
        self.asked = asked
        self.told = told
        self._session = session
        self._partition = partition
        self._log = partition.log
        self._follower = follower

    def holds(self) -> bool:
        """Whether a read would give the same, and change nothing but times."""
        partition, log, follower, asked = self._partition, self._log, self._follower, self.asked
        told = self.told
        return (
            partition.log is log is not None
            and partition.role is Role.LEADER
            and partition.leader_epoch == asked.current_leader_epoch
            and asked.last_fetched_epoch < 0
            and log.log_end_offset == asked.fetch_offset
            and log.log_start_offset == told.log_start_offset
            and partition.high_watermark == told.high_watermark
            and partition.last_stable_offset == told.last_stable_offset
            and partition.followers.get(follower.broker_id) is follower
            and follower.log_end_offset == asked.fetch_offset
            and follower.log_start_offset == asked.log_start_offset
            and follower.broker_id in partition.isr.members
        )

    def begin(self) -> None:
        self._follower.rest = self

    def end(self) -> None:
        """Notes the session's fetches meanwhile, as `Partition.follower_fetched` would have, and
        hands the partition back to the session.
        """
        follower, asked, seen_ms = self._follower, self.asked, self._session.seen_ms
        follower.rest = None
        if seen_ms > follower.last_fetch_ms:
            end = asked.fetch_offset
            follower.fetched(end, asked.log_start_offset, end, seen_ms)
        self._session.woke(asked.tp)
