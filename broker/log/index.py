"""The two sparse indexes of a segment: offset -> position (.index), timestamp -> offset
(.timeindex).

There is one entry for each index.interval.bytes (4096) of log.  It names the *last* offset of a
batch and the position where that batch begins, so that a walk may always start from the entry below
an offset.  In a file an entry is (relative offset int32, position int32), or (timestamp int64,
relative offset int32), big-endian.

Kafka maps these files into memory.  Here an index is a pair of arrays, and its file is written when
the segment is flushed or closed, never by an append.  A log that was not closed is recovered from
its recovery point on, which rebuilds the indexes, and the recovery point only moves after a flush.
A file may end in zeros, which Kafka preallocates; they are ignored.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from struct import Struct
from typing import Protocol

from highwater.world.api import Disk

_TIME_ENTRY = Struct(">qi")
_SWAP = sys.byteorder == "little"


class OffsetIndex:
    """Relative last offsets and positions, both rising."""

    ENTRY = 8
    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("i")
        self.positions = array("i")

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, relative_offset: int, position: int) -> None:
        self.offsets.append(relative_offset)
        self.positions.append(position)

    def lookup(self, relative_offset: int) -> int:
        """A position at or before the batch that holds this offset."""
        index = bisect_right(self.offsets, relative_offset)
        return self.positions[index - 1] if index else 0

    def position_below(self, position: int) -> int:
        """The largest indexed position that is not above this one."""
        index = bisect_right(self.positions, position)
        return self.positions[index - 1] if index else 0

    def truncate(self, relative_offset: int, position: int) -> None:
        """Drops entries of this offset or above, or of batches that begin at this position or
        later.
        """
        kept = min(
            bisect_left(self.offsets, relative_offset), bisect_left(self.positions, position)
        )
        del self.offsets[kept:]
        del self.positions[kept:]

    def encode(self, start: int = 0) -> bytes:
        both = array("i", bytes(8 * (len(self.offsets) - start)))
        both[0::2] = self.offsets[start:]
        both[1::2] = self.positions[start:]
        if _SWAP:
            both.byteswap()
        return both.tobytes()

    @classmethod
    def decode(cls, data: bytes, segment_size: int) -> OffsetIndex:
        """The entries of a file, up to the first that cannot follow the one before it."""
        both = array("i", data[: len(data) // 8 * 8])
        if _SWAP:
            both.byteswap()
        index = cls()
        index.offsets = both[0::2]
        index.positions = both[1::2]
        last_offset, last_position = -1, 0  # the first batch has no entry: position 0 is padding
        for n, (offset, position) in enumerate(zip(index.offsets, index.positions, strict=True)):
            if offset <= last_offset or position <= last_position or position >= segment_size:
                del index.offsets[n:]
                del index.positions[n:]
                break
            last_offset, last_position = offset, position
        return index


class TimeIndex:
    """Rising timestamps and relative offsets: no record up to an offset is later than its time."""

    ENTRY = 12
    __slots__ = ("offsets", "timestamps")

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.offsets = array("i")

    def __len__(self) -> int:
        return len(self.offsets)

    def maybe_append(self, timestamp: int, relative_offset: int) -> None:
        """Adds an entry if it is new information."""
        if timestamp < 0 or (self.timestamps and timestamp <= self.timestamps[-1]):
            return
        self.timestamps.append(timestamp)
        self.offsets.append(relative_offset)

    def lookup(self, timestamp: int) -> int:
        """A relative offset before which every record is earlier than this timestamp."""
        index = bisect_left(self.timestamps, timestamp)
        return self.offsets[index - 1] if index else 0

    def truncate(self, relative_offset: int) -> None:
        kept = bisect_left(self.offsets, relative_offset)
        del self.timestamps[kept:]
        del self.offsets[kept:]

    def encode(self, start: int = 0) -> bytes:
        return b"".join(map(_TIME_ENTRY.pack, self.timestamps[start:], self.offsets[start:]))

    @classmethod
    def decode(cls, data: bytes) -> TimeIndex:
        index = cls()
        last = 0  # zeros are padding
        for timestamp, offset in _TIME_ENTRY.iter_unpack(data[: len(data) // 12 * 12]):
            if timestamp <= last or offset < 0:
                break
            index.timestamps.append(timestamp)
            index.offsets.append(offset)
            last = timestamp
        return index


class _Index(Protocol):
    ENTRY: int

    def __len__(self) -> int: ...

    def encode(self, start: int = 0) -> bytes: ...


class IndexFile:
    """The file of one index, and the number of entries already in it."""

    __slots__ = ("path", "unsynced", "written")

    def __init__(self, path: str, written: int) -> None:
        self.path = path
        self.written = written
        """-1: the file may hold anything."""
        self.unsynced = False
        """Whether this process has changed the file, and a power loss may undo that."""

    def write(self, disk: Disk, index: _Index) -> None:
        """Brings the file up to the index."""
        if self.written == len(index):
            return
        self.unsynced = True
        file = disk.open(self.path, create=True)
        try:
            start = max(0, min(self.written, len(index)))
            if file.size != start * index.ENTRY:
                file.truncate(start * index.ENTRY)
            if start < len(index):
                file.append([index.encode(start)])
            self.written = len(index)
        except OSError:
            self.written = -1
            raise
        finally:
            file.close()

    def cut(self, disk: Disk, entries: int, size: int) -> None:
        """Cuts the file as its index was cut: nobody may find the entries beyond it again."""
        if self.written > entries or (self.written < 0 and disk.exists(self.path)):
            kept = max(0, min(self.written, entries))
            self.unsynced = True
            file = disk.open(self.path)
            try:
                file.truncate(kept * size)
                self.written = kept
            finally:
                file.close()

    async def flush(self, disk: Disk) -> None:
        file = disk.open(self.path)
        self.unsynced = False
        try:
            await file.flush()
        except BaseException:
            self.unsynced = True
            raise
        finally:
            file.close()
