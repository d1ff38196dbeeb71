"""Chooses the segments to delete, counted from the oldest, by three rules in this order.

Each rule returns a number of segments; `Log` then spares those at or above the high watermark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from highwater.broker.log.log import Log


def below_log_start(log: Log, now_ms: int) -> int:
    """Segments that end at or before the log start offset."""
    ends = (segment.base_offset for segment in log.segments[1:])
    return sum(1 for end in ends if end <= log.log_start_offset)


def above_size(log: Log, now_ms: int) -> int:
    """retention.bytes: the segments without which the log still has at least that size."""
    if not log.config.deletes or log.config.retention_bytes < 0:
        return 0
    excess, count = log.size - log.config.retention_bytes, 0
    for segment in log.segments:
        excess -= segment.size
        if excess < 0:
            break
        count += 1
    return count


def above_age(log: Log, now_ms: int) -> int:
    """retention.ms: the segments whose latest record is older than that."""
    if not log.config.deletes or log.config.retention_ms < 0:
        return 0
    count = 0
    for segment in log.segments:
        if now_ms - segment.largest_timestamp <= log.config.retention_ms:
            break
        count += 1
    return count
