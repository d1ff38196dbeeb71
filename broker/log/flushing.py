"""Makes a log survive a power loss, and moves its recovery point.

Nothing below the recovery point is checked after a crash, so it must first be on the disk with all
its files: batches, indexes, names of new files, leader epochs.  A file that was replaced without
waiting for the disk may be old, new or torn after a crash; recovery rebuilds epochs and producers
from the batches that it reads, hence only above the recovery point.

Only one flush of a log runs at a time: if two overlapped, each would rely on unfinished work of the
other.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import trio

from highwater.broker.log import checkpoints

if TYPE_CHECKING:
    from highwater.broker.log.log import Log


class Flusher:
    """The flusher of one log."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.lock = trio.Lock()
        """Whoever holds it keeps the recovery point where it is."""
        self._names_synced = self._truncations_synced = 0
        self._folder_synced = False

    async def flush(self, up_to: int | None) -> None:
        """Flushes all below `up_to` (None: everything, with truncations).

        A log that is deleted meanwhile needs no flush: its files have other names by then.
        """
        try:
            await self._flush(up_to)
        except OSError:
            if not self._log.deleted:
                raise

    async def _flush(self, up_to: int | None) -> None:
        log = self._log
        async with self.lock:
            end = log.log_end_offset
            target = end if up_to is None else min(up_to, end)
            truncations = log.truncations
            changed = log.epochs.dirty or self._names_synced != log.name_changes
            if up_to is None and self._truncations_synced != truncations:
                changed = True
            first, everything = self._first_segment(), up_to is None
            nearest = log.segments[first : first + 2]
            if any(s.unsynced_indexes for s in nearest if everything or s.base_offset < target):
                changed = True
            if log.deleted or (target <= log.recovery_point and not changed):
                return
            await self._flush_segments(first, target, everything=everything)
            if log.epochs.dirty:
                await self._flush_epochs()
            await self._sync_names()
            if up_to is None:
                self._truncations_synced = truncations
            if log.truncations == truncations:
                log.recovery_point = max(log.recovery_point, target)

    def _first_segment(self) -> int:
        """The index of the first segment that may have something to flush.

        That may be the one before the recovery point's: the last entry of its time index is written
        at the roll, when all of its records may already have been flushed.
        """
        segments = self._log.segments
        bases = [segment.base_offset for segment in segments]
        first = max(0, bisect_right(bases, self._log.recovery_point) - 1)
        return first - 1 if first and segments[first - 1].unsynced_indexes else first

    async def _flush_segments(self, first: int, target: int, *, everything: bool) -> None:
        for segment in self._log.segments[first:]:
            if not segment.deleted and (everything or segment.base_offset < target):
                await segment.flush()

    async def _flush_epochs(self) -> None:
        log = self._log
        path, entries = f"{log.dir}/{checkpoints.LEADER_EPOCHS}", log.epochs.entries
        await log.disk.replace_durably(path, checkpoints.encode_epochs(entries))
        if log.epochs.entries == entries:
            log.epochs.dirty = log.epochs.unwritten = False
        elif not log.deleted:  # they have changed since, and the older ones were written last
            log.disk.replace(path, checkpoints.encode_epochs(log.epochs.entries))

    async def _sync_names(self) -> None:
        log = self._log
        changes = log.name_changes
        if self._names_synced != changes:
            await log.disk.sync_dir(log.dir)
            self._names_synced = changes
        if not self._folder_synced:
            await log.disk.sync_dir(log.dir.rpartition("/")[0])
            self._folder_synced = True
