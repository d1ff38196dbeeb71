"""A follower's state of the partitions that it fetches from one leader, and the rule by which it
truncates its log.  Pure.

Before it appends anything from a new leader, a follower asks for the end of its own last epoch in
the leader's history (OffsetsForLeaderEpoch) and cuts its log there.  Cutting at its own HW instead,
as Kafka did before KIP-101, loses records that were committed while the HW had not reached the
follower, and lets two logs differ for ever.  `truncation_step` is that rule, with KIP-279's
repetition if the leader names an epoch that this log never saw.

A leader knows no epochs of records below its log start, so epochs say nothing of what a replica
holds there.  `nothing_is_proved` is the rule for a log that lies there as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from highwater.kafka.types import LeaderEpoch, TopicPartition
from highwater.kafka.wire.fetch import FetchPartition

if TYPE_CHECKING:
    from highwater.broker.log.log import Log

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


@dataclass(slots=True)
class FetchState:
    """`ready_at` (trio's clock) delays a partition after an error; it is `truncating` until it
    is in line with the leader.
    """

    leader_epoch: LeaderEpoch
    offset: int
    truncating: bool = True
    ready_at: float = 0.0
    failures: int = 0
    """Failures in a row; the delay grows with them."""
    in_sync: bool = False
    """It had everything below the HW at its last fetch, or began as a member of the ISR; then no
    throttle holds it back."""
    lag: int = 0
    """How far it was behind the leader's HW at that fetch."""
    asked: FetchPartition | None = None
    """As the last fetch named it: the same object goes on standing for the same request."""

    def ask(self, tp: TopicPartition, log_start: int, max_bytes: int) -> FetchPartition:
        known = self.asked
        if (
            known is None
            or known.fetch_offset != self.offset
            or known.log_start_offset != log_start
            or known.max_bytes != max_bytes
        ):
            known = FetchPartition(tp, self.leader_epoch, self.offset, -1, log_start, max_bytes)
            self.asked = known
        return known


class Truncation(NamedTuple):
    """Cut to `offset`; `done` is False if another round must ask about an older epoch."""

    offset: int
    done: bool


def truncation_step(
    log: Log, high_watermark: int, leader_epoch: int, leader_end_offset: int
) -> Truncation:
    """The truncation of this log after the leader's answer (epoch, end offset).

    The leader answers with the largest epoch that it knows at or below the one asked for, and with
    the end of that epoch.  Undefined answers come from leaders without epochs (message formats
    before v2): then only the HW is left.
    """
    end = log.log_end_offset
    if leader_end_offset == UNDEFINED_OFFSET:
        return Truncation(min(high_watermark, end), True)
    if leader_epoch == UNDEFINED_EPOCH:
        return Truncation(min(leader_end_offset, end), True)
    own_epoch, own_end = log.epochs.end_offset_for(leader_epoch, end)
    if own_end == UNDEFINED_OFFSET:
        # this log begins after the leader's epoch ended
        return Truncation(min(leader_end_offset, end), True)
    if own_epoch != leader_epoch:
        return Truncation(min(own_end, end), False)
    return Truncation(min(own_end, leader_end_offset, end), True)


def nothing_is_proved(log_end: int, high_watermark: int, leader_start: int) -> bool:
    """Whether a follower that comes back drops its log before it fetches.

    All its records are deleted at the leader, and those above its own HW may be others than were
    committed: a leader that was cut off appends them, and the next leader's are deleted meanwhile.
    No reader is shown any of them, but kept they would come between what is committed and a log
    start that a crash puts back, and the leader's batch that spans its log start could not follow.
    """
    return high_watermark < log_end <= leader_start


def cuts_as_epochs_say(log: Log, offset: int, leader_epoch: int, leader_end_offset: int) -> bool:
    """Invariant 5: a cut to `offset` gives up only what lies above the end of the leader's epoch,
    in its log or in this one.  A leader without epochs leaves nothing to go by.
    """
    if leader_end_offset == UNDEFINED_OFFSET:
        return True
    _, own_end = log.epochs.end_offset_for(leader_epoch, log.log_end_offset)
    agreed = leader_end_offset
    if leader_epoch != UNDEFINED_EPOCH and own_end != UNDEFINED_OFFSET:
        agreed = min(own_end, leader_end_offset)
    return offset >= agreed
