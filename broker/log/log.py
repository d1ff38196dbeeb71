"""One partition's log: segments in a folder, and the state derived from them.

A leader appends producers' batches: it sets offsets and its epoch in place, and leaves all other
bytes as they came.  A follower appends its leader's batches, offsets and epochs included.  Either
way an append is one system call, and no state (end offset, epochs, producers, indexes) changes
before the bytes are in the file.  If the write fails, its part in the file is cut off again and the
OSError goes to the caller, which takes the whole directory offline.

Three offsets bound a log: log start offset <= high watermark <= log end offset (LEO, the next one).
The recovery point moves on its own below the LEO: everything up to it has been flushed, so recovery
after a crash begins there.

Append and read never await.  `flush` does; only a flush moves the recovery point up.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from highwater.broker.log.epochs import EpochCache
from highwater.broker.log.flushing import Flusher
from highwater.broker.log.log_config import LogConfig
from highwater.broker.log.parts import (
    AppendInfo,
    LogHooks,
    LogSlice,
    Origin,
    UnexpectedOffsetError,
    assign_offsets,
    part_of,
    split_by_segment,
)
from highwater.broker.log.producers import ProducerStates
from highwater.broker.log.replay import replay
from highwater.broker.log.retention import above_age, above_size, below_log_start
from highwater.broker.log.segment import MAX_RELATIVE_OFFSET, NO_TIMESTAMP, Segment
from highwater.broker.log.timestamps import find_max_timestamp, find_timestamp
from highwater.broker.log.txnindex import AbortedTransaction
from highwater.broker.log.verification import Verification
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.records import BatchHeader, marker_of
from highwater.world.api import Clock, Disk


class Log:
    """Made by `recovery.load_log`; one writer, the trio thread."""

    def __init__(
        self,
        *,
        disk: Disk,
        clock: Clock,
        folder: str,
        tp: TopicPartition,
        config: LogConfig,
        segments: list[Segment],
        epochs: EpochCache,
        producers: ProducerStates,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        hooks: LogHooks,
    ) -> None:
        self.disk = disk
        self.tp = tp
        self.dir = folder
        self.config = config
        self.epochs = epochs
        self.producers = producers
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        self.high_watermark = 0
        """The latest value from `update_high_watermark`; bounds deletion and cleaning."""
        self.hooks = hooks
        self.deleted = False
        """Whether its files are closed, or soon will be: nothing may be written any more."""
        self._clock = clock
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._active = segments[-1]
        self._jitter_ms = hooks.jitter_ms(config.jitter_limit_ms)
        self.truncations = 0
        self.topic_id: bytes | None = None
        """The id in `partition.metadata`; None before the controller has named one."""
        self.doubtful_from: int | None = None
        """In a compacted log, a power loss may have taken offsets from here on (`recovery`)."""
        self.name_changes = 1
        """The number of times that files were made, renamed or removed since the log was opened."""
        self.flusher = Flusher(self)

    def __repr__(self) -> str:
        return f"Log({self.tp}, {self.log_start_offset}..{self.log_end_offset} in {self.dir})"

    @property
    def segments(self) -> list[Segment]:
        return list(self._segments)

    @property
    def size(self) -> int:
        return sum(segment.file.size for segment in self._segments)

    @property
    def unflushed(self) -> int:
        """The number of offsets that a power loss could take."""
        return self.log_end_offset - self.recovery_point

    @property
    def flush_due(self) -> bool:
        """True at log.flush.interval.messages: `flush` must end before the append counts."""
        return self.log_end_offset - self.recovery_point >= self.config.flush_messages

    # ----------------------------------------------------------------------------- appending

    def append_as_leader(
        self,
        view: memoryview | bytearray,
        headers: Sequence[BatchHeader],
        leader_epoch: int,
        now_wall_ms: int,
        *,
        origin: Origin = Origin.CLIENT,
        verification: Verification | None = None,
    ) -> AppendInfo:
        """Appends validated batches, which stand one after the other in `view`.

        `verification` (from `Partition.verify_transaction`) lets a transaction begin.
        Raises ApiError (nothing changed) and OSError (nothing changed, the disk is at fault).
        """
        base = self.log_end_offset
        prepared = self.producers.prepare(
            headers, base, origin, marker_of=lambda header: marker_of(view, header)
        )
        duplicate = prepared.duplicate
        if duplicate is not None:
            return AppendInfo(*duplicate[2:], self.log_start_offset, True)
        if prepared.started and (self.config.verify_transactions or verification is not None):
            verifications = self.producers.verifications
            for header in headers:
                verifications.check(header.producer_id, header.base_sequence, verification)
        size = headers[-1].position + headers[-1].size - headers[0].position
        if size > self.config.segment_bytes:
            raise ApiError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{size} bytes do not fit into a segment of {self.config.segment_bytes}",
            )
        append_time = NO_TIMESTAMP
        if self.config.message_timestamp_type == "LogAppendTime":
            append_time = now_wall_ms
            headers = [header._replace(max_timestamp=now_wall_ms) for header in headers]
        end, largest = assign_offsets(view, headers, base, leader_epoch, append_time)
        segment = self._segment_for(size, base, end - 1, largest, now_wall_ms)
        epochs = self.epochs
        if leader_epoch != epochs.latest or epochs.unwritten:
            before = epochs.entries
            epochs.assign(leader_epoch, base)
            try:
                segment.append(part_of(view, headers), headers, base)
            except OSError:
                epochs.restore(before)
                raise
        else:
            segment.append(part_of(view, headers), headers, base)
        self.log_end_offset = end
        aborted = self.producers.commit(prepared, end)
        if aborted:
            self._note_aborted(segment, aborted)
        return AppendInfo(base, end - 1, append_time, self.log_start_offset)

    def append_as_follower(
        self, view: memoryview | bytearray | bytes, headers: Sequence[BatchHeader]
    ) -> AppendInfo:
        """Appends the leader's batches, which stand one after the other in `view`, unchanged.

        Raises UnexpectedOffsetError unless they begin at or after the log end offset (a compacted
        log has gaps); only an empty log may begin inside a batch (after DeleteRecords).
        """
        first = headers[0].base_offset
        if first < self.log_end_offset:
            empty = self.log_end_offset == self.log_start_offset
            if not empty or headers[0].last_offset < self.log_end_offset:
                raise UnexpectedOffsetError(first, self.log_end_offset)
            start = self.log_start_offset
            self.truncate_fully_and_start_at(first)
            self.log_start_offset = start
        expected = self.log_end_offset
        for header in headers:
            if header.base_offset < expected:
                raise UnexpectedOffsetError(header.base_offset, expected)
            expected = header.base_offset + header.last_offset_delta + 1
        for run in split_by_segment(headers, self._active.file.size, self.config.segment_bytes):
            self._append_run(view, run)
        return AppendInfo(first, self.log_end_offset - 1, NO_TIMESTAMP, self.log_start_offset)

    def _append_run(
        self, view: memoryview | bytearray | bytes, headers: Sequence[BatchHeader]
    ) -> None:
        last = headers[-1]
        size = last.position + last.size - headers[0].position
        largest = max(header.max_timestamp for header in headers)
        prepared = self.producers.prepare(
            headers, None, Origin.REPLICATION, marker_of=lambda header: marker_of(view, header)
        )
        base, now_ms = headers[0].base_offset, self._clock.wall_ms()
        segment = self._segment_for(size, base, last.last_offset, largest, now_ms)
        epochs, end = self.epochs, self.log_end_offset
        before = epochs.entries if last.partition_leader_epoch != epochs.latest else None
        try:
            for header in headers:
                epoch = header.partition_leader_epoch
                if epoch != epochs.latest and epoch >= 0:
                    epochs.assign(epoch, end)
                end = header.last_offset + 1
            segment.append(part_of(view, headers), headers, None)
        except OSError:
            if before is not None:
                epochs.restore(before)
            raise
        self.log_end_offset = last.last_offset + 1
        aborted = self.producers.commit(prepared, self.log_end_offset)
        if aborted:
            self._note_aborted(segment, aborted)

    def _note_aborted(self, segment: Segment, aborted: Iterable[AbortedTransaction]) -> None:
        index = segment.txn_index
        if not len(index):
            self.name_changes += 1  # its file will be made
        for entry in aborted:
            index.append(entry)

    def _segment_for(
        self, size: int, first_offset: int, last_offset: int, timestamp: int, now_ms: int
    ) -> Segment:
        """The active segment, or a new one if that is too old, or is full, or its indexes are."""
        active, config = self._active, self.config
        used = active.file.size
        fits = last_offset - active.base_offset <= MAX_RELATIVE_OFFSET
        if used == 0 and fits:
            return active
        if (
            not fits
            or used > config.segment_bytes - size
            or active.age_for_roll(now_ms, timestamp) > config.roll_ms - self._jitter_ms
            or active.index_bytes >= config.segment_index_bytes
        ):
            return self.roll(max(first_offset, self.log_end_offset), now_ms)
        return active

    def roll(self, base_offset: int | None = None, now_ms: int | None = None) -> Segment:
        """Begins a new active segment, with a snapshot of the producers at its base offset."""
        base = self.log_end_offset if base_offset is None else base_offset
        now = self._clock.wall_ms() if now_ms is None else now_ms
        active = self._active
        if base == active.base_offset:
            return active
        active.leave()
        self.producers.end_offset = base
        self.producers.take_snapshot()
        segment = self._new_segment(base, now)
        if active.size:
            self._segments.append(segment)
            self._bases.append(base)
        else:  # the next offset is too far away for relative offsets of an empty segment
            self._segments[-1], self._bases[-1] = segment, base
            self.discard_segments([active])
        self._active = segment
        self.hooks.rolled(self)
        return segment

    def _new_segment(self, base: int, now_ms: int) -> Segment:
        self.name_changes += 1
        interval, room = self.config.index_interval_bytes, self.config.room_bytes
        segment = Segment(self.disk, self.dir, base, now_ms, interval, create=True, room=room)
        self._jitter_ms = self.hooks.jitter_ms(self.config.jitter_limit_ms)
        return segment

    # ------------------------------------------------------------------------------- reading

    def read(
        self, offset: int, max_bytes: int, limit_offset: int, min_one: bool = True
    ) -> LogSlice:
        """Whole batches from the one that holds `offset` on, with all offsets below the limit.

        Raises ApiError(OFFSET_OUT_OF_RANGE).  The size is 0 if there is nothing (yet).
        """
        end = self.log_end_offset
        if offset > end or offset < self.log_start_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.tp} is not in {self.log_start_offset}..{end}",
            )
        active = self._active
        if offset >= limit_offset or offset == end:
            base = self._base_below(offset)
            return LogSlice(active.file, 0, 0, offset, offset, 0, base, base)
        if offset < active.base_offset:
            return self._read_older(offset, max_bytes, limit_offset, min_one)
        base, limit, to_end = active.base_offset, min(limit_offset, end), limit_offset >= end
        position, size, after, there = active.read(offset, max_bytes, limit, to_end, min_one)
        return LogSlice(active.file, position, size, offset, after, there, base, base)

    def _base_below(self, offset: int) -> int:
        return self._bases[bisect_right(self._bases, offset) - 1]

    def _read_older(
        self, offset: int, max_bytes: int, limit_offset: int, min_one: bool
    ) -> LogSlice:
        index = bisect_right(self._bases, offset) - 1
        for segment, following in zip(
            self._segments[index:], [*self._bases[index + 1 :], self.log_end_offset], strict=True
        ):
            whole = limit_offset >= following
            limit = following if whole else limit_offset
            position, size, after, there = segment.read(offset, max_bytes, limit, whole, min_one)
            if size or not whole or position < segment.size:
                bases = segment.base_offset, self._base_below(limit_offset)
                return LogSlice(segment.file, position, size, offset, after, there, *bases)
            # compaction left nothing at or after this offset here: the next segment has it
        return self.read(self.log_end_offset, 0, 0)

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int, int] | None:
        """Timestamp, offset and leader epoch of the first record at or after `timestamp`."""
        return find_timestamp(self._segments, timestamp, self.log_start_offset)

    def max_timestamp_offset(self) -> tuple[int, int, int] | None:
        """Timestamp, offset and leader epoch of the latest record."""
        return find_max_timestamp(self._segments)

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest undecided or unreplicated transaction starts; the LSO is at most it."""
        first = self.producers.first_unstable_offset
        return None if first is None else max(first, self.log_start_offset)

    def aborted_transactions(self, start: int, end: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of transactions with records in start..end-1."""
        found: list[AbortedTransaction] = []
        for segment in self._segments[max(0, bisect_right(self._bases, start) - 1) :]:
            if segment.txn_index.search(start, end, found):
                break
        return [(entry.producer_id, entry.first_offset) for entry in found]

    def update_high_watermark(self, offset: int) -> None:
        """Notes how far the log is replicated."""
        self.high_watermark = offset
        self.producers.replicated_to(offset)

    # ------------------------------------------------------------------------------- cutting

    def truncate_to(self, offset: int) -> None:
        """Removes everything from this offset on.

        A batch that spans the offset goes as a whole, so the log may end a little lower.
        """
        if offset < 0:
            raise ValueError(f"{self.tp} cannot be truncated to {offset}")
        if offset >= self.log_end_offset:
            # a leader that appended nothing has an epoch entry at its end
            self.epochs.truncate_from_end(self.log_end_offset)
            return
        if offset < self._bases[0]:
            self.truncate_fully_and_start_at(offset)
            return
        self._before_truncation(offset)
        kept = bisect_right(self._bases, offset)
        gone = self._segments[kept:]
        del self._segments[kept:]
        del self._bases[kept:]
        self._active = active = self._segments[-1]
        self.discard_segments(gone)
        active.truncate(offset)
        end = self._end_of(active)
        self.log_end_offset = end
        self.log_start_offset = min(self.log_start_offset, end)
        self.recovery_point = min(self.recovery_point, end)
        self.epochs.truncate_from_end(end)
        self._rewind_producers(end)

    def _end_of(self, segment: Segment) -> int:
        if not segment.size:
            return segment.base_offset
        return segment.last_offset() + 1

    def _rewind_producers(self, end: int) -> None:
        producers = self.producers
        if producers.unchanged_by_truncation(end):
            producers.delete_snapshots([s for s in producers.snapshots if s > end])
            producers.end_offset = end
            return
        producers.reload(self.log_start_offset, end, self._clock.wall_ms())
        replay(producers, self._segments, end)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Removes everything; the next append gets this offset."""
        self._before_truncation(offset)
        gone = self._segments
        self.discard_segments(gone)
        segment = self._new_segment(offset, self._clock.wall_ms())
        self._segments, self._bases, self._active = [segment], [offset], segment
        self.log_start_offset = self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        self.epochs.clear()
        self.producers.clear(offset)

    def _before_truncation(self, offset: int) -> None:
        self.truncations += 1
        self.name_changes += 1
        self.recovery_point = min(self.recovery_point, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.hooks.before_truncation(self, offset)

    def advance_log_start(self, offset: int) -> bool:
        """Moves the log start offset up (DeleteRecords, or the leader's); segments go later."""
        if offset <= self.log_start_offset:
            return False
        if offset > self.log_end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.tp} cannot start at {offset}: it ends at {self.log_end_offset}",
            )
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        self.producers.replicated_to(offset)
        self.hooks.start_moved(self)
        return True

    def delete_old_segments(self, now_wall_ms: int, high_watermark: int) -> int:
        """Applies retention: by log start offset, size and time.  Keeps all at or above the HW."""
        deleted = 0
        for count_deletable in (below_log_start, above_size, above_age):
            count = count_deletable(self, now_wall_ms)
            deleted += self._delete_oldest(count, high_watermark, now_wall_ms)
        return deleted

    def _delete_oldest(self, count: int, high_watermark: int, now_ms: int) -> int:
        ends = [*self._bases[1:], self.log_end_offset]
        while count and ends[count - 1] > high_watermark:
            count -= 1
        if count == len(self._segments):
            if self._active.size:
                self.roll(now_ms=now_ms)  # one segment stays
            else:
                count -= 1
        if not count:
            return 0
        gone, self._segments = self._segments[:count], self._segments[count:]
        del self._bases[:count]
        self.name_changes += 1
        self.advance_log_start(self._bases[0])
        self.producers.delete_snapshots([segment.base_offset for segment in gone])
        self.discard_segments(gone)
        return count

    def put_segment(self, old: Sequence[Segment], new: Segment) -> None:
        """Replaces the neighbours `old` by `new`, which begins where they do (`replacement`)."""
        index = self._segments.index(old[0])
        self._segments[index : index + len(old)] = [new]
        self._bases[index : index + len(old)] = [new.base_offset]
        self.producers.delete_snapshots([segment.base_offset for segment in old[1:]])

    def discard_segments(self, segments: Sequence[Segment]) -> None:
        """Deletes their files later; readers that have them open may go on."""
        for segment in segments:
            paths = segment.rename_for_deletion()
            self.hooks.discard(self, [segment.file], paths)
        if segments:
            self.name_changes += 1

    # ----------------------------------------------------------------------------- durability

    async def flush(self, up_to: int | None = None) -> None:
        """Makes everything below `up_to` (None: all) durable, and moves the recovery point."""
        await self.flusher.flush(up_to)

    def trim_memory(self) -> None:
        """Frees the indexes of inactive segments that are not being read."""
        for segment in self._segments[:-1]:
            segment.forget_indexes()

    def write_all(self) -> None:
        """Writes indexes and producers, which are otherwise only in memory."""
        for segment in self._segments[:-1]:
            segment.write_indexes()
        self._active.write_indexes(final=True)
        self.producers.take_snapshot()

    async def flush_for_good(self) -> None:
        """Prepares a clean shutdown: the next start reads no batch."""
        self.write_all()
        await self.flush()

    def close(self) -> None:
        """Like `write_all`; also closes the files."""
        self.write_all()
        self.close_files()

    def close_files(self) -> None:
        """Closes without writing: the disk has failed, or the log is being deleted."""
        for segment in self._segments:
            segment.close()
