"""Chooses the next log to clean, and the offset up to which it is cleaned.

A log has a clean section, which earlier cleanings have covered, and a dirty one after it.  Some of
the dirty section must not be cleaned: the active segment, everything at or above the last stable
offset (an open transaction may still abort, and unreplicated records may still vanish), and
everything from the first segment that has a record younger than min.compaction.lag.ms.

A log is worth cleaning when its cleanable part is more than min.cleanable.dirty.ratio of it, or
when its oldest dirty record is older than max.compaction.lag.ms.  The dirtiest comes first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from highwater.broker.log.log import Log
from highwater.broker.log.segment import Segment
from highwater.kafka.config import LONG_MAX


@dataclass(frozen=True, slots=True)
class Candidate:
    """A compacted log, and the part that a cleaning would touch now."""

    log: Log
    first_dirty: int
    end: int
    """The base offset of the first segment that must not be cleaned."""
    clean_bytes: int
    cleanable_bytes: int
    delay_ms: int
    """The time since max.compaction.lag.ms required a cleaning."""

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def due(self) -> bool:
        if self.delay_ms > 0 and self.cleanable_bytes > 0:
            return True
        return self.ratio > self.log.config.min_cleanable_dirty_ratio


def first_dirty_offset(log: Log, checkpoint: int | None) -> int:
    """The checkpoint, if it is an offset of this log; otherwise all of the log is dirty."""
    start = log.log_start_offset
    if checkpoint is None or not start <= checkpoint <= log.log_end_offset:
        return start
    return checkpoint


def last_stable_offset(log: Log) -> int:
    """The offset below which everything is replicated and decided."""
    unstable = log.first_unstable_offset
    return log.high_watermark if unstable is None else min(unstable, log.high_watermark)


def inspect(log: Log, checkpoint: int | None, now_ms: int) -> Candidate:
    """The candidate for this log, as it is now."""
    segments = log.segments
    inactive = segments[:-1]
    first_dirty = first_dirty_offset(log, checkpoint)
    dirty = _from(segments, first_dirty)
    bound = min(last_stable_offset(log), segments[-1].base_offset)
    lag = log.config.min_compaction_lag_ms
    if lag > 0:
        for segment in dirty:
            if segment.largest_timestamp > now_ms - lag:
                bound = min(bound, segment.base_offset)
                break
    bound = max(first_dirty, bound)
    # whole segments only: the one that holds the bound stays
    end = first_dirty
    for segment, following in pairwise(segments):
        if following.base_offset > bound:
            end = min(segment.base_offset, bound)
            break
        end = following.base_offset
    clean = sum(s.size for s in inactive if s.base_offset < min(first_dirty, end))
    cleanable = sum(s.size for s in dirty if s.base_offset < end)
    return Candidate(log, first_dirty, end, clean, cleanable, _delay(log, dirty, now_ms))


def _from(segments: list[Segment], offset: int) -> list[Segment]:
    """The inactive segments from the one that holds this offset on."""
    return [segment for segment, following in pairwise(segments) if following.base_offset > offset]


def _delay(log: Log, dirty: list[Segment], now_ms: int) -> int:
    lag = log.config.max_compaction_lag_ms
    if lag == LONG_MAX:
        return 0
    first = (segment.first_timestamp for segment in dirty)
    earliest = min((timestamp for timestamp in first if timestamp > 0), default=LONG_MAX)
    return max(0, now_ms - lag - earliest)


def dirtiest(candidates: Iterable[Candidate]) -> Candidate | None:
    """The next candidate to clean."""
    due = [candidate for candidate in candidates if candidate.due]
    return max(due, key=lambda candidate: candidate.ratio, default=None)
