"""Making a log survive a power loss, and moving its recovery point.

What is below the recovery point is not looked at again after a crash, so all that tells about it
has to be on the disk first: batches, indexes, names of new files, leader epochs.  A file that was
replaced without waiting for the disk may be old, new or torn then; recovery makes epochs and
producers anew from the batches it reads, hence only above the recovery point.

One flush of a log at a time: two that overlap would each rely on what the other has not finished.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import trio

from highwater.broker.log import checkpoints

if TYPE_CHECKING:
    from highwater.broker.log.log import Log


class Flusher:
    """Of one log."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.lock = trio.Lock()
        """Who holds it keeps the recovery point where it is."""
        self._names_synced = self._truncations_synced = 0
        self._folder_synced = False

    async def flush(self, up_to: int | None) -> None:
        """All below `up_to` (or simply all, truncations too)."""
        log = self._log
        async with self.lock:
            end = log.log_end_offset
            target = end if up_to is None else min(up_to, end)
            truncations = log.truncations
            changed = log.epochs.dirty or self._names_synced != log.name_changes
            if up_to is None and self._truncations_synced != truncations:
                changed = True
            if log.deleted or (target <= log.recovery_point and not changed):
                return
            await self._flush_segments(target, everything=up_to is None)
            if log.epochs.dirty:
                await self._flush_epochs()
            await self._sync_names()
            if up_to is None:
                self._truncations_synced = truncations
            if log.truncations == truncations:
                log.recovery_point = max(log.recovery_point, target)

    async def _flush_segments(self, target: int, *, everything: bool) -> None:
        segments = self._log.segments
        bases = [segment.base_offset for segment in segments]
        first = max(0, bisect_right(bases, self._log.recovery_point) - 1)
        for segment in segments[first:]:
            if not segment.deleted and (everything or segment.base_offset < target):
                await segment.flush()

    async def _flush_epochs(self) -> None:
        log = self._log
        path, entries = f"{log.dir}/{checkpoints.LEADER_EPOCHS}", log.epochs.entries
        await log.disk.replace_durably(path, checkpoints.encode_epochs(entries))
        if log.epochs.entries == entries:
            log.epochs.dirty = log.epochs.unwritten = False
        elif not log.deleted:  # they changed meanwhile, and the older ones came last
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
