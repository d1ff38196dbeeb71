"""The state of each partition that a follower fetches from one leader, and the rule by which the
follower truncates its log.  Pure.

Before it appends anything from a new leader, a follower asks where its own last epoch ended in the
leader's history (OffsetsForLeaderEpoch), and cuts its log there.  A cut at the follower's own HW,
as Kafka made it before KIP-101, loses records that were committed before the follower learned of
the new HW, and lets two logs differ for ever.  `truncation_step` is that rule, with KIP-279's
repetition if the leader names an epoch that this log never saw.

A leader keeps no epochs for records below its log start, so epochs prove nothing about what a
replica holds there.  `nothing_is_proved` is the rule for a log that lies wholly below it.
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
    """One partition.  It is `truncating` until its log is in line with the leader's; `ready_at`
    (trio's clock) delays its next request after an error, or because of a throttle.
    """

    leader_epoch: LeaderEpoch
    offset: int
    truncating: bool = True
    ready_at: float = 0.0
    failures: int = 0
    """Failures in a row; the delay grows with them."""
    in_sync: bool = False
    """Whether the log had everything below the leader's HW after its last fetch, or began as a
    member of the ISR; no throttle then holds the partition back."""
    lag: int = 0
    """How far the log was behind the leader's HW after that fetch."""
    asked: FetchPartition | None = None
    """The partition as the last fetch named it; an unchanged request keeps the same object."""

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

    The answer names the largest epoch that the leader knows at or below the requested one, and the
    offset where that epoch ended.  Leaders without epochs (message formats before v2) answer with
    an undefined offset; the log is then cut at the HW.
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
    """Whether a follower that comes back must drop its log before it fetches.

    The leader has deleted every offset of this log, so no epoch shows where the two logs differ.
    Above its own HW the log may hold other records than were committed at these offsets: this
    replica may have appended them as a leader that was cut off, while the next leader committed its
    own there, and deleted them.  No reader sees such records while the log start is above them.
    But a crash can bring back an older log start: they would then stand among committed records.
    And a batch of the leader that spans the leader's log start may begin below this log's end: it
    could not be appended.
    """
    return high_watermark < log_end <= leader_start


def cuts_as_epochs_say(log: Log, offset: int, leader_epoch: int, leader_end_offset: int) -> bool:
    """Invariant 5: a cut to `offset` removes only records above the end of the leader's epoch, in
    the leader's log or in this one.  With a leader without epochs there is nothing to check.
    """
    if leader_end_offset == UNDEFINED_OFFSET:
        return True
    _, own_end = log.epochs.end_offset_for(leader_epoch, log.log_end_offset)
    agreed = leader_end_offset
    if leader_epoch != UNDEFINED_EPOCH and own_end != UNDEFINED_OFFSET:
        agreed = min(own_end, leader_end_offset)
    return offset >= agreed
