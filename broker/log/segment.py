"""A segment: one `.log` file of batches from its base offset on, with its indexes.

Three ways lead from an offset to a position, the cheapest first:

1. The tail: two lists keep offsets and positions of the latest batches, and are bisected.
   Followers and consumers that keep up need no more, and nothing is read from the file.  Only the
   active segment has a tail.
2. A reader's next position: a reader that lags asks next for what follows its last answer, so a few
   of these pairs are remembered.
3. The offset index, and from its entry on a walk over batch headers: a few hundred bytes to 4 KiB.

A read never looks into a batch, and returns a place in the file rather than bytes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from highwater.broker.log.index import IndexFile, OffsetIndex, TimeIndex
from highwater.broker.log.txnindex import TransactionIndex
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.wire.records import HEADER_SIZE, MAGIC, BatchHeader, parse_header
from highwater.world.api import Buffer, Disk, File

TAIL_BATCHES = 2048
READERS = 64
WALK_BYTES = 4096 + HEADER_SIZE
MAX_RELATIVE_OFFSET = 2**31 - 1
NO_TIMESTAMP = -1

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")


class CorruptSegmentError(ApiError):
    """Raised if the bytes at a position are no batch."""

    def __init__(self, detail: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, detail)


def segment_path(folder: str, base_offset: int, suffix: str = ".log") -> str:
    return f"{folder}/{base_offset:020d}{suffix}"


class Segment:
    """Has one writer; everything but `flush` is synchronous."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        base_offset: int,
        created_ms: int,
        index_interval: int,
        *,
        create: bool,
        suffix: str = "",
        room: int = 0,
    ) -> None:
        """`suffix` is added to all file names of a segment that is not yet part of the log.

        For a new file, the disk reserves `room` bytes (preallocate).
        """
        self.disk = disk
        self.folder = folder
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.index_interval = index_interval
        self.file: File = disk.open(
            segment_path(folder, base_offset, ".log" + suffix), create=create
        )
        if create and self.file.size:
            self.file.truncate(0)  # leftovers of a failed roll
        if create and room:
            self._reserve(room)
        self._offset_index: OffsetIndex | None = OffsetIndex() if create else None
        self._time_index: TimeIndex | None = TimeIndex() if create else None
        self._txn_index: TransactionIndex | None = TransactionIndex() if create else None
        written = -1 if create else 0
        self._offset_file = IndexFile(segment_path(folder, base_offset, ".index" + suffix), written)
        self._time_file = IndexFile(
            segment_path(folder, base_offset, ".timeindex" + suffix), written
        )
        self._txn_file = IndexFile(segment_path(folder, base_offset, ".txnindex" + suffix), 0)
        if create:
            self._remove_txn_file()
        self._index_used = False
        self.deleted = False
        self._cuts = self._cuts_synced = 0
        self._since_entry = 0
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = base_offset
        self._max_known = create
        self._first_timestamp: int | None = None
        self._tail_last: list[int] = []
        self._tail_position: list[int] = []
        self._tail_start = base_offset
        self._readers: dict[int, int] = {}

    def _reserve(self, room: int) -> None:
        try:
            self.file.reserve(room)
        except OSError:
            self.file.close()
            raise

    @property
    def size(self) -> int:
        return self.file.size

    # ------------------------------------------------------------------------------- indexes

    @property
    def offset_index(self) -> OffsetIndex:
        self._index_used = True
        if self._offset_index is None:
            data = self.disk.read_all(self._offset_file.path)
            self._offset_index = OffsetIndex.decode(data, self.size)
            self._offset_file.written = len(self._offset_index)
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        if self._time_index is None:
            path = self._time_file.path
            exists = self.disk.exists(path)
            self._time_index = TimeIndex.decode(self.disk.read_all(path) if exists else b"")
            self._time_file.written = len(self._time_index) if exists else -1
        return self._time_index

    @property
    def txn_index(self) -> TransactionIndex:
        if self._txn_index is None:
            path = self._txn_file.path
            data = self.disk.read_all(path) if self.disk.exists(path) else b""
            self._txn_index = TransactionIndex.decode(data)
            self._txn_file.written = len(self._txn_index)
        return self._txn_index

    def _remove_txn_file(self) -> None:
        if self.disk.exists(self._txn_file.path):
            self.disk.remove(self._txn_file.path)
        self._txn_file.written, self._txn_file.unsynced = 0, False

    def reset_indexes(self) -> None:
        """Empties the indexes for recovery, which fills them again."""
        self._offset_index, self._time_index = OffsetIndex(), TimeIndex()
        self._txn_index = TransactionIndex()
        self._remove_txn_file()
        self._offset_file.written = self._time_file.written = -1
        self._since_entry = 0
        self._max_timestamp, self._max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self._max_known = True
        self._forget_positions()

    def _forget_positions(self) -> None:
        self.forget_tail()
        self._readers.clear()

    def forget_tail(self) -> None:
        """Frees the tail, some 80 bytes a batch: for a full segment the index is enough."""
        self._tail_last.clear()
        self._tail_position.clear()

    def write_indexes(self, final: bool = False) -> None:
        """Brings the files up to date; `final` (roll, close) adds the largest timestamp."""
        if final and self.size:
            self.time_index.maybe_append(self.max_timestamp, self._relative_max())
        if self._offset_index is not None:
            self._offset_file.write(self.disk, self._offset_index)
        if self._time_index is not None:
            self._time_file.write(self.disk, self._time_index)
        if self._txn_index is not None:
            self._txn_file.write(self.disk, self._txn_index)

    @property
    def unsynced_indexes(self) -> bool:
        """Whether an index's file was changed since its last flush, or records were cut off since:
        a power loss would bring those records back, after others were written elsewhere.
        """
        files = (self._time_file, self._offset_file, self._txn_file)
        return self._cuts > self._cuts_synced or any(file.unsynced for file in files)

    def distrust_indexes(self) -> None:
        """Marks the files as unsynced: the last process may have ended before it flushed them."""
        self._time_file.unsynced = self._offset_file.unsynced = True
        self._txn_file.unsynced = self.disk.exists(self._txn_file.path)
        self._cuts += 1

    def leave(self) -> None:
        """Called when the segment is full, and another becomes the active one."""
        self.write_indexes(final=True)
        self.forget_tail()
        self.file.release()

    def forget_indexes(self) -> None:
        """Frees the indexes' memory, if they were not used since the last call."""
        if not self._index_used and self._offset_index is not None:
            self._know_max_timestamp()
            self.write_indexes()
            self._offset_index = self._time_index = self._txn_index = None
        self._index_used = False

    @property
    def index_bytes(self) -> int:
        """The size of the larger of the two index files."""
        self._index_used = True
        offsets, times = self._offset_index, self._time_index
        if offsets is None or times is None:
            offsets, times = self.offset_index, self.time_index
        return max(len(offsets) * offsets.ENTRY, len(times) * times.ENTRY)

    def _relative_max(self) -> int:
        return self._max_timestamp_offset - self.base_offset

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of all records; -1 if no record has one."""
        self._know_max_timestamp()
        return self._max_timestamp

    @property
    def max_timestamp_offset(self) -> int:
        """The last offset of the first batch with the largest timestamp."""
        self._know_max_timestamp()
        return self._max_timestamp_offset

    def _know_max_timestamp(self) -> None:
        """After loading, reads the last entry of the time index, which roll and close wrote."""
        if not self._max_known:
            times = self.time_index
            if len(times):
                self._max_timestamp = times.timestamps[-1]
                self._max_timestamp_offset = self.base_offset + times.offsets[-1]
            self._max_known = True

    def _find_max_timestamp(self) -> None:
        """Finds the value after a truncation: in the time index, and in the batches after that."""
        times = self.time_index
        self._max_timestamp, self._max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self._max_known = False
        self._know_max_timestamp()
        start = self.offset_index.lookup(times.offsets[-1]) if len(times) else 0
        for header in self.walk(start):
            if header.max_timestamp > self._max_timestamp:
                self._max_timestamp = header.max_timestamp
                self._max_timestamp_offset = header.last_offset

    @property
    def largest_timestamp(self) -> int:
        """The time for retention: the records' latest, or when the segment was made or loaded."""
        largest = self.max_timestamp
        return largest if largest >= 0 else self.created_ms

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch; -1 if there is none."""
        first = self._first_timestamp
        if first is None:
            first = next((h.max_timestamp for h in self.walk(0)), NO_TIMESTAMP)
            if self.size:
                self._first_timestamp = first
        return first

    def age_for_roll(self, now_ms: int, batch_timestamp: int) -> int:
        """The segment's age at the next append, by the records' timestamps if they have any."""
        first = self._first_timestamp
        if first is None:
            if not self.file.size:
                return now_ms - self.created_ms
            first = self.first_timestamp
        return batch_timestamp - first if first >= 0 else now_ms - self.created_ms

    # ----------------------------------------------------------------------------- appending

    def append(
        self, view: Buffer, headers: Sequence[BatchHeader], first_offset: int | None
    ) -> None:
        """Writes batches that stand one after the other in `view`, unchanged.

        Offsets run from `first_offset`; None: they are the headers'.  A failed write is cut off
        again.
        """
        file = self.file
        position = file.size
        try:
            file.append([view])
        except OSError:
            file.truncate(position)
            raise
        for header in headers:
            if first_offset is None:
                last = header.base_offset + header.last_offset_delta
            else:
                last = first_offset + header.last_offset_delta
                first_offset = last + 1
            self.note(position, last, header)
            position += header.size

    def note(self, position: int, last_offset: int, header: BatchHeader) -> None:
        """Enters a batch that is in the file into indexes, tail and timestamps."""
        timestamp = header.max_timestamp
        if self._first_timestamp is None:
            self._first_timestamp = timestamp
        if not self._max_known:
            self._know_max_timestamp()
        if timestamp > self._max_timestamp:
            self._max_timestamp, self._max_timestamp_offset = timestamp, last_offset
        if self._since_entry > self.index_interval:
            self.offset_index.append(last_offset - self.base_offset, position)
            self.time_index.maybe_append(self._max_timestamp, self._relative_max())
            self._since_entry = 0
        self._since_entry += header.size
        lasts = self._tail_last
        if not lasts:
            self._tail_start = last_offset - header.last_offset_delta
        elif len(lasts) >= TAIL_BATCHES:
            half = TAIL_BATCHES // 2
            self._tail_start = lasts[half - 1] + 1
            del lasts[:half]
            del self._tail_position[:half]
        lasts.append(last_offset)
        self._tail_position.append(position)

    # ------------------------------------------------------------------------------- reading

    def walk(self, position: int, end: int | None = None) -> Iterator[BatchHeader]:
        """The headers of the batches from `position` to `end` (None: the file's end), or to a
        partial batch.

        Raises CorruptSegmentError if no header can be at a position.
        """
        return walk(self.file, position, self.file.size if end is None else end)

    def locate(self, offset: int) -> int:
        """The position of the first batch that ends at or after this offset, or the file's end."""
        lasts = self._tail_last
        if lasts and offset >= self._tail_start:
            index = bisect_left(lasts, offset)
            return self._tail_position[index] if index < len(lasts) else self.file.size
        known = self._readers.get(offset)
        if known is not None:
            return known
        for header in self.walk(self.offset_index.lookup(offset - self.base_offset)):
            if header.last_offset >= offset:
                return header.position
        return self.file.size

    def read(
        self, offset: int, max_bytes: int, limit_offset: int, limit_is_end: bool, min_one: bool
    ) -> tuple[int, int, int, int]:
        """Position, size and next offset of the whole batches from `offset` to below
        `limit_offset`; and the number of bytes up to the limit, whatever `max_bytes` is.

        The limit lies in this segment or at its end (`limit_is_end`).  The size is at most
        `max_bytes`; but with `min_one` it is at least one batch, if one is below the limit.
        """
        start = self.locate(offset)
        end = self.file.size if limit_is_end else self.locate(limit_offset)
        if end <= start:
            return start, 0, offset, 0
        if end - start > max_bytes:
            cut = self._cut(start, start + max_bytes, end, offset, min_one)
            return (*cut, end - start)
        self._remember(limit_offset, end)
        return start, end - start, limit_offset, end - start

    def _cut(
        self, start: int, wish: int, end: int, offset: int, min_one: bool
    ) -> tuple[int, int, int]:
        """The last batch boundary at or below `wish`, or the one after the first batch."""
        positions = self._tail_position
        if positions and positions[0] <= start:
            index = bisect_right(positions, wish) - 1
            if positions[index] <= start:
                if not min_one:
                    return start, 0, offset
                index += 1
            position = positions[index] if index < len(positions) else self.file.size
            return start, min(position, end) - start, self._tail_last[index - 1] + 1
        boundary, next_offset = start, offset
        for header in self.walk(max(start, self.offset_index.position_below(wish)), end):
            after = header.position + header.size
            if after > wish:
                if header.position > start:
                    boundary, next_offset = header.position, header.base_offset
                elif min_one:
                    boundary, next_offset = after, header.last_offset + 1
                break
            boundary, next_offset = after, header.last_offset + 1
        if boundary > start:
            self._remember(next_offset, boundary)
        return start, boundary - start, next_offset

    def _remember(self, next_offset: int, position: int) -> None:
        readers = self._readers
        if self._tail_last and next_offset >= self._tail_start:
            return
        if len(readers) >= READERS:
            del readers[next(iter(readers))]
        readers[next_offset] = position

    # ---------------------------------------------------------------------- cutting, leaving

    def truncate(self, offset: int) -> None:
        """Cuts off every batch that holds this offset or a later one."""
        position = self.locate(offset)
        if position >= self.file.size:
            return
        offsets, times = self.offset_index, self.time_index
        offsets.truncate(offset - self.base_offset, position)
        times.truncate(offset - self.base_offset)
        self._offset_file.cut(self.disk, len(offsets), offsets.ENTRY)
        self._time_file.cut(self.disk, len(times), times.ENTRY)
        aborted = self.txn_index
        aborted.truncate(offset)
        self._txn_file.cut(self.disk, len(aborted), aborted.ENTRY)
        self.file.truncate(position)
        self._cuts += 1
        self._since_entry = 0
        if position == 0:
            self._first_timestamp = None
        keep = bisect_left(self._tail_position, position)
        del self._tail_last[keep:]
        del self._tail_position[keep:]
        self._readers.clear()
        self._find_max_timestamp()

    def last_offset(self) -> int:
        """The last offset in the file; base offset - 1 if it is empty.

        Raises CorruptSegmentError if the file does not end with a whole batch.
        """
        if self._tail_last:
            return self._tail_last[-1]
        last, position = self.base_offset - 1, self.offset_index.position_below(self.size)
        for header in self.walk(position):
            last, position = header.last_offset, header.position + header.size
        if position != self.size:
            raise CorruptSegmentError(
                f"{self.file.path}: {self.size - position} bytes at its end are no record batch"
            )
        return last

    async def flush(self) -> None:
        """Makes the whole segment, as it is now, survive a power loss."""
        try:
            if self._time_index is None and not self.disk.exists(self._time_file.path):
                _ = self.time_index  # if somebody deleted it, it comes back empty, as in Kafka
            self.write_indexes()
            cuts = self._cuts
            await self.file.flush()
            self._cuts_synced = max(self._cuts_synced, cuts)
            await self._offset_file.flush(self.disk)
            await self._time_file.flush(self.disk)
            if self._txn_file.written > 0 or self._txn_file.unsynced:
                await self._txn_file.flush(self.disk)
        except OSError:
            if not self.deleted:  # else its files were deleted meanwhile, and are not needed
                raise

    def close(self) -> None:
        self.file.close()

    def rename_for_deletion(self) -> list[str]:
        """Gives its files the suffix `.deleted`; the open file stays readable."""
        self.deleted = True
        paths = []
        for suffix in SUFFIXES:
            path = segment_path(self.folder, self.base_offset, suffix)
            if self.disk.exists(path):
                self.disk.rename(path, path + ".deleted")
                paths.append(path + ".deleted")
        return paths


def walk(file: File, position: int, end: int) -> Iterator[BatchHeader]:
    """`Segment.walk` for a part of a segment that was read."""
    chunk, start = b"", position
    while end - position >= HEADER_SIZE:
        at = position - start
        if at + HEADER_SIZE > len(chunk):
            chunk, start, at = file.read(position, WALK_BYTES), position, 0
            if len(chunk) < HEADER_SIZE:
                return
        header = parse_header(chunk, at, start)
        if header.magic != MAGIC or header.size < HEADER_SIZE:
            raise CorruptSegmentError(f"{file.path}: no record batch begins at byte {position}")
        if position + header.size > end:
            return
        yield header
        position += header.size
