"""The leader-epoch cache: the first offset of each leader epoch, and an epoch's end (KIP-101).

A follower that comes back cannot cut its log at its high watermark: the HW arrives one fetch late.
So every batch carries the epoch of the leader that took it, and each replica keeps the list of
(epoch, first offset).  The answer to "where did your epoch e end?" is the offset at which two logs
parted.

KIP-279 made the answer exact over several quick changes of leader: it names the largest epoch that
is not above the requested one, with its end, and the follower asks again if it does not know that
epoch itself.

Compaction leaves holes, and a hole may hide where an epoch began.  A replica that copies such a log
lets the epoch begin where the hole does: the leader has nothing of an older epoch there, so a
replica that has something there, unreplicated perhaps, cuts it away.  (In Kafka the epoch begins at
its first batch, and what was never committed may stay.)

Entries rise strictly in both numbers.  A new leader enters its epoch at its LEO, in memory only;
the entry goes into the file before the epoch's first batch goes into the log.  An epoch without a
batch need not outlive the process, which leads in a newer epoch when it comes back.  So a broker
that takes over a thousand partitions writes no file for those without new batches.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1
Entry = tuple[int, int]


class EpochCache:
    """The entries of one log; `write` puts them into its leader-epoch-checkpoint (may raise
    OSError).
    """

    def __init__(self, entries: Iterable[Entry], write: Callable[[list[Entry]], None]) -> None:
        self._entries: list[Entry] = []
        self._write = write
        self.dirty = True
        """Whether entries changed since the file was last safe on the disk (see Log.flush)."""
        self.unwritten = False
        """Whether the last entry is only in memory, because its leader has appended nothing."""
        for epoch, start in entries:
            if self._is_new(epoch, start):
                self._entries = [*self._without_conflicts(epoch, start), (epoch, start)]
        self.latest = self._entries[-1][0] if self._entries else UNDEFINED_EPOCH
        """The epoch of the last entry; -1 if there is none."""

    @property
    def entries(self) -> list[Entry]:
        return list(self._entries)

    def _is_new(self, epoch: int, start: int) -> bool:
        if not self._entries:
            return True
        last_epoch, last_start = self._entries[-1]
        return epoch != last_epoch or start < last_start

    def _without_conflicts(self, epoch: int, start: int) -> list[Entry]:
        kept = len(self._entries)
        while kept and (self._entries[kept - 1][0] >= epoch or self._entries[kept - 1][1] >= start):
            kept -= 1
        return self._entries[:kept]

    def assign(self, epoch: int, start_offset: int) -> None:
        """Enters an epoch whose first batch comes here; drops entries that contradict it."""
        entries = self._with(epoch, start_offset)
        if entries is not None:
            self._become(entries)
        elif self.unwritten:
            self._become(self._entries)

    def lead(self, epoch: int, start_offset: int) -> None:
        """Like `assign`, for a leader without a batch yet: its first one writes the file."""
        entries = self._with(epoch, start_offset)
        if entries is not None:
            self._set(entries)
            self.unwritten = True

    def _with(self, epoch: int, start_offset: int) -> list[Entry] | None:
        """The entries with this one added; None if they already have it."""
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"leader epoch {epoch} cannot start at offset {start_offset}")
        if not self._is_new(epoch, start_offset):
            return None
        return [*self._without_conflicts(epoch, start_offset), (epoch, start_offset)]

    def _become(self, entries: list[Entry]) -> None:
        self._write(entries)
        self._set(entries)
        self.unwritten = False

    def _set(self, entries: list[Entry]) -> None:
        self._entries = entries
        self.latest = entries[-1][0] if entries else UNDEFINED_EPOCH
        self.dirty = True

    def restore(self, entries: list[Entry]) -> None:
        """Undoes an assignment after a failed append."""
        if entries != self._entries:
            self._become(entries)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> Entry:
        """The largest known epoch not above this one, and its end; (-1, -1) if nothing is known.

        For an epoch older than the first entry, the answer is that epoch and the first entry's
        start: its data is gone from this log, and the follower begins where the log does.
        """
        if epoch == UNDEFINED_EPOCH:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        above = bisect_right(self._entries, epoch, key=lambda entry: entry[0])
        if above == len(self._entries):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        end = self._entries[above][1]
        return (epoch if above == 0 else self._entries[above - 1][0]), end

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch whose leader wrote this offset; -1 if it is not known."""
        index = bisect_right(self._entries, offset, key=lambda entry: entry[1])
        return self._entries[index - 1][0] if index else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Forgets epochs that begin at or above this offset."""
        kept = bisect_left(self._entries, end_offset, key=lambda entry: entry[1])
        if kept < len(self._entries):
            self._become(self._entries[:kept])

    def truncate_from_start(self, start_offset: int) -> None:
        """Forgets epochs that end at or below this offset; one that spans it now begins there."""
        index = bisect_right(self._entries, start_offset, key=lambda entry: entry[1])
        if index > 1 or (index == 1 and self._entries[0][1] != start_offset):
            epoch = self._entries[index - 1][0]
            self._become([(epoch, start_offset), *self._entries[index:]])

    def clear(self) -> None:
        if self._entries:
            self._become([])
