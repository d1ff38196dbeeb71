"""Puts a cleaned segment in the place of its originals; a crash leaves either those or the new one.

1. The files `<base>.<suffix>.cleaned` are complete and flushed.  A crash before the next step
   throws them away.
2. Each becomes `.swap`, the `.log` last: once it has that name the replacement will be completed,
   by the next start if need be.
3. The old files become `.deleted`, and are deleted after file.delete.delay.ms: readers may still
   send from them.
4. `.swap` is removed from the names, again from the `.log` last, so that an index without its
   `.log.swap` is always unwanted.

All of these steps are renames, and take microseconds in the event loop; nothing reads or appends
in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from highwater.broker.log.cleaner.work import CLEANED, SWAP, Group
from highwater.broker.log.segment import Segment, segment_path

if TYPE_CHECKING:
    from highwater.broker.log.log import Log


def stand_unchanged(log: Log, segments: Sequence[Segment], truncations: int) -> bool:
    """Whether the log still has these segments, as they were read."""
    if log.deleted or log.truncations != truncations:
        return False
    known = {id(segment) for segment in log.segments[:-1]}
    return all(id(segment) in known for segment in segments)


def replace_segments(log: Log, old: Sequence[Segment], group: Group) -> None:
    """Does steps 2 to 4.  Raises OSError if the directory fails; the next start completes them."""
    disk, folder, base = log.disk, log.dir, group.base_offset
    # the .log is the first of the suffixes
    paths = [segment_path(folder, base, suffix) for suffix in reversed(group.suffixes)]
    for path in paths:
        disk.rename(path + CLEANED, path + SWAP)
    log.discard_segments(old)
    for path in paths:
        disk.rename(path + SWAP, path)
    latest = max(segment.largest_timestamp for segment in old)
    interval = log.config.index_interval_bytes
    log.put_segment(old, Segment(disk, folder, base, latest, interval, create=False))


def remove_unfinished(log: Log, group: Group) -> None:
    """Removes the result of a cleaning that was too late."""
    for suffix in group.suffixes:
        path = segment_path(log.dir, group.base_offset, suffix) + CLEANED
        if log.disk.exists(path):
            log.disk.remove(path)
