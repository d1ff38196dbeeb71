"""Rules of single steps that need no comparison of logs: of the HW, and of the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from highwater.broker.replica.partition import Partition
    from highwater.kafka.znodes import PartitionState


def high_watermark_waits(partition: Partition, now_ms: int) -> str | None:
    """R3's other half, right after a change of the ISR: the HW is as high as it may be.

    It is the least LEO of the maximal ISR and of the replicas outside it that caught up lately, as
    far as the leader knows.  A leader that forgets to look again after a shrink would make
    producers wait until the next fetch moves something.
    """
    log = partition.log
    if log is None or len(partition.isr.members) < min(
        partition.min_insync_replicas, len(partition.replicas) or 1
    ):
        return None
    end = log.log_end_offset
    known = [log.recovery_point if log.config.flush_messages == 1 else end]
    for broker, follower in partition.followers.items():
        lag_ms = now_ms - follower.last_caught_up_ms
        waits_for = follower.log_end_offset == end or lag_ms <= partition.max_lag_ms
        if broker in partition.isr.maximal or (waits_for and partition.is_alive(broker)):
            known.append(follower.log_end_offset)
    if min(known) > partition.high_watermark:
        return (
            f"its ISR became {partition.isr.members}, and its HW stays at "
            f"{partition.high_watermark}, although it could be {min(known)}"
        )
    return None


def zombie_write(old: PartitionState, new: PartitionState, controller_epoch: int) -> str | None:
    """R10: only a controller changes leader or leader epoch, and only the latest one may write."""
    if (new.leader, new.leader_epoch) == (old.leader, old.leader_epoch):
        return None  # a leader's change of the ISR
    if new.controller_epoch >= controller_epoch:
        return None
    return (
        f"the controller of epoch {new.controller_epoch} wrote {new}, while the controller epoch "
        f"was {controller_epoch} already"
    )
