"""The aborted transactions of one segment, which a read_committed consumer must leave out.

An aborted transaction is in the index of the segment that holds its marker, wherever it began, so
entries rise by their last offset.  The file (`.txnindex`; missing if nothing was aborted):

    version int16 = 0, producerId int64, firstOffset int64, lastOffset int64 (the marker's),
    lastStableOffset int64 (the LSO as the marker left it)

The last field ends a search: every later aborted transaction begins at or after that LSO.  Like the
other indexes it is kept in memory and written when the segment is flushed or rolled; recovery
rebuilds it from the batches.
"""

from __future__ import annotations

from bisect import bisect_left
from struct import Struct
from typing import NamedTuple

VERSION = 0
_ENTRY = Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """Entries in the order of their markers."""

    ENTRY = _ENTRY.size

    def __init__(self) -> None:
        self.entries: list[AbortedTransaction] = []
        self._lasts: list[int] = []

    def __len__(self) -> int:
        return len(self.entries)

    def append(self, entry: AbortedTransaction) -> None:
        self.entries.append(entry)
        self._lasts.append(entry.last_offset)

    def search(self, start: int, end: int, found: list[AbortedTransaction]) -> bool:
        """Adds transactions with records in start..end-1; True if later segments have none."""
        for entry in self.entries[bisect_left(self._lasts, start) :]:
            if entry.first_offset < end:
                found.append(entry)
            if entry.last_stable_offset >= end:
                return True
        return False

    def truncate(self, offset: int) -> None:
        """Forgets transactions whose marker is at this offset or above."""
        kept = bisect_left(self._lasts, offset)
        del self.entries[kept:]
        del self._lasts[kept:]

    def encode(self, start: int = 0) -> bytes:
        return b"".join(_ENTRY.pack(VERSION, *entry) for entry in self.entries[start:])

    @classmethod
    def decode(cls, data: bytes) -> TransactionIndex:
        """Reads entries up to the first that is not whole, or does not rise."""
        index = cls()
        last = -1
        for version, *fields in _ENTRY.iter_unpack(data[: len(data) // cls.ENTRY * cls.ENTRY]):
            entry = AbortedTransaction(*fields)
            if version != VERSION or entry.last_offset <= last:
                break
            index.append(entry)
            last = entry.last_offset
        return index
