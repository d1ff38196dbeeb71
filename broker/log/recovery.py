"""Makes a `Log` from a folder: loading after a clean shutdown, recovery after any other.

After a crash nothing above the recovery point is trusted.  From the segment that holds it on, every
batch is read and its CRC checked.  At the first batch that is torn, damaged or out of order the log
is cut, and later segments are deleted, since offsets must have no hole.  The same pass rebuilds the
indexes, finds leader epochs that are missing in the epoch file, and updates the producers.

A compacted log has holes, and a hole at the end of a segment may instead be records that a power
loss took.  The log keeps all that it has, but a replica outside the ISR copies everything from
there on again (`Log.doubtful_from`): it may lack a tombstone that the others remove soon.

Kafka's recovery does the same with two differences: it does not see holes, and it appends to a
*clean* log whose last segment does not end with a whole batch, which is recovered here.
"""

from __future__ import annotations

import logging
import posixpath
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from struct import unpack_from

from highwater.broker.log import checkpoints, metadata_file
from highwater.broker.log.epochs import Entry, EpochCache
from highwater.broker.log.log import Log
from highwater.broker.log.log_config import LogConfig
from highwater.broker.log.parts import LogHooks, NoHooks
from highwater.broker.log.producers import ProducerStates
from highwater.broker.log.replay import replay
from highwater.broker.log.segment import (
    MAX_RELATIVE_OFFSET,
    SUFFIXES,
    CorruptSegmentError,
    Segment,
    segment_path,
)
from highwater.kafka.config import LONG_MAX
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.records import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    check_crc,
    marker_of,
    parse_header,
)
from highwater.world.api import Clock, Disk, File

logger = logging.getLogger(__name__)

CHUNK = 4 << 20
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")
_TEMPORARY = (".deleted", ".cleaned", ".tmp")


class UnreadableLogError(Exception):
    """Raised for a log that cannot be opened; the message says what a person can do."""


class UnsupportedFormatError(UnreadableLogError):
    """The folder holds message formats from before Kafka 0.11."""


class DamagedLogError(UnreadableLogError):
    """Raised if a segment that should need no recovery has no batch where one must be."""

    def __init__(self, folder: str, error: CorruptSegmentError) -> None:
        directory = posixpath.dirname(folder)
        super().__init__(
            f"{error.detail}: the disk has changed what was stored; delete"
            f" {directory}/{checkpoints.CLEAN_SHUTDOWN} and"
            f" {directory}/{checkpoints.RECOVERY_POINTS} to have the logs there checked, and cut"
            " where they are damaged (a replica takes what is missing from its leader)"
        )


@dataclass(slots=True)
class Recovered:
    """The result of recovery for one segment."""

    end_offset: int
    cut_bytes: int


def load_log(
    disk: Disk,
    clock: Clock,
    folder: str,
    tp: TopicPartition,
    config: LogConfig,
    *,
    clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    cleaned_to: int = 0,
    hooks: LogHooks | None = None,
) -> Log:
    """Opens (or creates) the log in a folder.  The offsets come from the checkpoint files.

    This takes long after a crash: run it in a worker thread.
    """
    disk.make_dirs(folder)
    loader = _Loader(disk, clock, folder, tp, config, log_start_offset, cleaned_to)
    loader.tidy()
    loader.open_segments()
    loader.producers.find_snapshots()
    start = loader.first_to_recover(clean, recovery_point)
    try:
        loader.find_forgotten_epochs(loader.segments[:start])
    except CorruptSegmentError as error:
        raise DamagedLogError(folder, error) from error
    if not clean:
        for segment in loader.segments[:start][-1:]:
            segment.distrust_indexes()
    loader.recover(start, clean)
    try:
        end = loader.finish()
    except CorruptSegmentError as error:
        raise DamagedLogError(folder, error) from error
    log = Log(
        disk=disk,
        clock=clock,
        folder=folder,
        tp=tp,
        config=config,
        segments=loader.segments,
        epochs=loader.epochs,
        producers=loader.producers,
        log_start_offset=loader.log_start_offset,
        log_end_offset=end,
        recovery_point=end if loader.trusted else min(recovery_point, end, loader.rewritten_from),
        hooks=hooks or NoHooks(),
    )
    log.doubtful_from = loader.doubtful_from
    log.topic_id = metadata_file.read(disk, folder)
    return log


class _Loader:
    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        folder: str,
        tp: TopicPartition,
        config: LogConfig,
        log_start_offset: int,
        cleaned_to: int,
    ) -> None:
        self.disk = disk
        self.folder = folder
        self.tp = tp
        self.config = config
        self.now_ms = clock.wall_ms()
        self.log_start_offset = log_start_offset
        self.cleaned_to = cleaned_to
        self.segments: list[Segment] = []
        self.trusted = True
        self.doubtful_from: int | None = None
        self.rewritten_from = LONG_MAX
        """Files from here on were rewritten and are not flushed, even below the recovery point."""
        self._flushed_below = 0
        self._last_epoch = self._epoch_below = -1
        self._writing = False
        self._epochs_in_file = self._read_epochs()
        self.epochs = EpochCache(self._epochs_in_file, self._write_epochs)
        self.producers = ProducerStates(disk, folder, config.producer_id_expiration_ms)

    # ------------------------------------------------------------------------ leader epochs

    def _read_epochs(self) -> list[Entry]:
        path = f"{self.folder}/{checkpoints.LEADER_EPOCHS}"
        try:
            data = self.disk.read_all(path) if self.disk.exists(path) else b""
            if data:  # an empty file may be what a power loss left of a full one
                return checkpoints.decode_epochs(data)
        except checkpoints.MalformedFileError as error:
            logger.warning("%s: %s; leader epochs are read from the log instead", path, error)
        return []

    def _write_epochs(self, entries: list[Entry]) -> None:
        """Writes the file once, at the end: until then loading changes only memory."""
        if self._writing:
            path = f"{self.folder}/{checkpoints.LEADER_EPOCHS}"
            self.disk.replace(path, checkpoints.encode_epochs(entries))

    def find_forgotten_epochs(self, segments: list[Segment]) -> None:
        """Adds the epochs of batches below the file's first entry, if there are any.

        The file loses such epochs as soon as the log start moves up, but the checkpoint of the log
        start follows later: a crash in between brings the records back.  If the file has no
        entries, the log began at its end, or the file was lost.  `segments` are those that
        recovery does not read; raises `CorruptSegmentError` if one of them is damaged.
        """
        if not segments:
            return
        entries = self._epochs_in_file
        first_epoch, known_from = (*entries, (LONG_MAX, LONG_MAX))[0]
        if known_from <= max(self.log_start_offset, segments[0].base_offset):
            return  # nearly always: no log is read for this
        found = self._epochs_of(segments, known_from)
        if found and found[-1][0] > first_epoch:  # the file does not belong to this log
            entries, found = [], self._epochs_of(segments, LONG_MAX)
        self.epochs = EpochCache([*found, *entries], self._write_epochs)

    def _epochs_of(self, segments: list[Segment], end: int) -> list[Entry]:
        """The epochs of the batches between the log start and `end`."""
        found: list[Entry] = []
        at = segments[0].base_offset
        for header in _headers(segments, self.log_start_offset, end):
            epoch = header.partition_leader_epoch
            if epoch > (found[-1][0] if found else -1):
                found.append((epoch, at))
            at = header.last_offset + 1
        return found

    def _note_epoch(self, header: BatchHeader, end_before: int) -> None:
        if header.partition_leader_epoch > self.epochs.latest:
            self.epochs.assign(header.partition_leader_epoch, end_before)

    # ----------------------------------------------------------------------------- the files

    def tidy(self) -> None:
        """Removes leftovers of interrupted deletions, replacements and compactions."""
        names = self.disk.list(self.folder)
        bases = {name[:20] for name in names if name.endswith((".log", ".log.swap"))}
        swapped = {name[:20] for name in names if name.endswith(".log.swap")}
        kept = []
        for name in names:
            stale = name.endswith(_TEMPORARY)
            if name.endswith((".index", ".timeindex", ".txnindex")) and name[:20] not in bases:
                stale = True
            if name.endswith(".swap") and name[:20] not in swapped:
                stale = True  # the .log is the last file to get and to lose that suffix
            if stale:
                self.disk.remove(f"{self.folder}/{name}")
            else:
                kept.append(name)
        if swapped:
            self._finish_swap(kept)

    def _finish_swap(self, names: list[str]) -> None:
        """Completes a compaction whose result was written: the result replaces its sources."""
        swapped = sorted(int(name[:20]) for name in names if name.endswith(".log.swap"))
        for base in swapped:
            path = segment_path(self.folder, base, ".log.swap")
            file = self.disk.open(path)
            end = base
            for header, _ in _checked_batches(file):
                end = header.last_offset + 1
            file.close()
            for name in names:
                if name.endswith(SUFFIXES) and base <= int(name[:20]) < end:
                    self._remove(name)
        # a crash here finds the .log.swap again
        for name in sorted(names, key=lambda name: name.endswith(".log.swap")):
            if name.endswith(".swap"):
                path = f"{self.folder}/{name}"
                self.disk.rename(path, path[: -len(".swap")])

    def _remove(self, name: str) -> None:
        path = f"{self.folder}/{name}"
        if self.disk.exists(path):
            self.disk.remove(path)

    def open_segments(self) -> None:
        """Opens a segment for each .log file, in order."""
        for name in self.disk.list(self.folder):
            if len(name) == 24 and name.endswith(".log") and name[:20].isdigit():
                self.segments.append(self._segment(int(name[:20]), create=False))

    def _segment(self, base: int, *, create: bool) -> Segment:
        interval, room = self.config.index_interval_bytes, self.config.room_bytes
        return Segment(
            self.disk, self.folder, base, self.now_ms, interval, create=create, room=room
        )

    # ----------------------------------------------------------------------------- recovery

    def first_to_recover(self, clean: bool, recovery_point: int) -> int:
        """The index of the first suspect segment; the number of segments if none is suspect."""
        place = self._index_of(recovery_point)
        self._flushed_below = self.segments[place].base_offset if self.segments else 0
        start = len(self.segments) if clean else place
        return min(start, self._first_suspect())

    def recover(self, start: int, clean: bool) -> None:
        """Checks the segments from an index on; afterwards every one of them is whole."""
        self.trusted = clean and start == len(self.segments)
        if start < len(self.segments):
            self._recover_from(start)

    def _index_of(self, offset: int) -> int:
        below = [n for n, segment in enumerate(self.segments) if segment.base_offset <= offset]
        return below[-1] if below else 0

    def _first_suspect(self) -> int:
        """The index of the first segment without an offset index, or of the last if it ends within
        a batch."""
        for n, segment in enumerate(self.segments):
            if not self.disk.exists(segment_path(self.folder, segment.base_offset, ".index")):
                return n
        if self.segments:
            try:
                self.segments[-1].last_offset()
            except CorruptSegmentError as error:
                logger.warning("%s; it is recovered", error.detail)
                return len(self.segments) - 1
        return len(self.segments)

    def _recover_from(self, start: int) -> None:
        first = self.segments[start].base_offset
        if first < self._flushed_below:
            self.rewritten_from = first
        try:
            self.producers.reload(self.log_start_offset, first, self.now_ms)
            replay(self.producers, self.segments[:start], first)
            # the batches that are read now show which epochs began here
            self.epochs.truncate_from_end(first)
            self._last_epoch = self._epoch_below = self.epochs.latest
            self._recover_segments(start)
        except CorruptSegmentError as error:
            if start == 0 and self._epoch_below < 0:
                raise  # the epoch file is not the cause
            logger.warning("%s; the whole log is recovered", error.detail)
            self.epochs.clear()
            self._recover_from(0)

    def _recover_segments(self, start: int) -> None:
        expected = 0
        for n, segment in enumerate(self.segments[start:], start):
            hole = n > start and segment.base_offset > expected
            if hole and not self._may_have_holes(segment.base_offset):
                logger.warning(
                    "%s: offsets %d to %d are missing; what follows them was cut off",
                    self.folder,
                    expected,
                    segment.base_offset - 1,
                )
                self._drop(self.segments[n:])
                break
            known = max(self.cleaned_to, self.log_start_offset)
            if hole and segment.base_offset > known and self.doubtful_from is None:
                self.doubtful_from = max(expected, self.log_start_offset)
            self.producers.end_offset = segment.base_offset
            if n > start:
                self.segments[n - 1].forget_tail()
                self.producers.take_snapshot()
            done = self._recover_segment(segment, expected if n > start else segment.base_offset)
            expected = done.end_offset
            if done.cut_bytes:
                later = self.segments[n + 1 :]
                logger.warning(
                    "%s: %d bytes from offset %d on are damaged or incomplete and were cut off%s",
                    segment.file.path,
                    done.cut_bytes,
                    done.end_offset,
                    f", with {len(later)} later segments" if later else "",
                )
                self._drop(later)
                break

    def _may_have_holes(self, below: int) -> bool:
        """Whether gaps are normal.  Compaction leaves some, even after the topic is no longer
        compacted; elsewhere a gap means that a power loss took a segment's end.
        """
        if below <= self.cleaned_to:
            return True
        return self.config.compacts or self.tp.topic in INTERNAL_TOPICS

    def _recover_segment(self, segment: Segment, end_before: int) -> Recovered:
        """`end_before` is below the segment's base offset if compaction has left a hole."""
        segment.reset_indexes()
        position, expected = 0, max(end_before, segment.base_offset)
        for header, view in _checked_batches(segment.file):
            last = header.base_offset + header.last_offset_delta
            if header.base_offset < expected or last - segment.base_offset > MAX_RELATIVE_OFFSET:
                break
            # blocks from before a truncation may come back after a power loss, as valid batches
            if 0 <= header.partition_leader_epoch < self._last_epoch:
                if header.partition_leader_epoch < self._epoch_below:
                    raise CorruptSegmentError(
                        f"{self.folder}: {checkpoints.LEADER_EPOCHS} is not of this log"
                    )
                break
            self._last_epoch = header.partition_leader_epoch
            segment.note(position, last, header)
            self._note_epoch(header, end_before)
            for aborted in self.producers.replay(
                header,
                lambda h, v=view: marker_of(v, h, h.position),  # type: ignore[misc]
            ):
                segment.txn_index.append(aborted)
            position += header.size
            end_before = expected = last + 1
        cut = segment.size - position
        if cut:
            segment.file.truncate(position)
        segment.write_indexes(final=True)
        return Recovered(expected, cut)

    def _drop(self, segments: list[Segment]) -> None:
        for segment in segments:
            self.segments.remove(segment)
            segment.close()
            for path in segment.rename_for_deletion():
                self.disk.remove(path)

    # ------------------------------------------------------------------------------- the end

    def finish(self) -> int:
        """Makes the parts agree with each other; returns the log end offset."""
        end = self._end_offset()
        if end < self.log_start_offset:
            logger.warning(
                "%s: the log ends at %d, before its start offset %d: all of it is removed",
                self.folder,
                end,
                self.log_start_offset,
            )
            self._drop(list(self.segments))
            self.epochs.clear()
            self.producers.clear(self.log_start_offset)
            end = self.log_start_offset
        if not self.segments:
            self.segments.append(self._segment(end, create=True))
            self.segments[0].write_indexes()
        self.log_start_offset = max(self.log_start_offset, self.segments[0].base_offset)
        self.epochs.truncate_from_end(end)
        for epoch, offset in self._epochs_in_file:
            if offset == end and epoch > self.epochs.latest:
                self.epochs.assign(epoch, offset)  # its leader has appended nothing yet
        self.epochs.truncate_from_start(self.log_start_offset)
        self._writing = True
        if self.epochs.entries != self._epochs_in_file:
            self._write_epochs(self.epochs.entries)
        if self.trusted:
            self.producers.reload(self.log_start_offset, end, self.now_ms)
            replay(self.producers, self.segments, end)
        self.producers.end_offset = end
        self.producers.delete_snapshots([s for s in self.producers.snapshots if s > end])
        return end

    def _end_offset(self) -> int:
        if not self.segments:
            return self.log_start_offset
        last = self.segments[-1]
        return last.last_offset() + 1 if last.size else last.base_offset


def _headers(segments: list[Segment], start: int, end: int) -> Iterator[BatchHeader]:
    """The headers of the batches between two offsets."""
    ends = [*[segment.base_offset for segment in segments[1:]], end]
    for segment, next_base in zip(segments, ends, strict=True):
        if next_base <= start:
            continue
        for header in segment.walk(0):
            if header.base_offset >= end:
                return
            if header.last_offset >= start:
                yield header


def _checked_batches(file: File) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches of a file with their bytes, up to the first that is torn or damaged."""
    position, end = 0, file.size
    chunk, start = memoryview(b""), 0
    while end - position >= HEADER_SIZE:
        at = position - start
        if at + HEADER_SIZE > len(chunk):
            chunk, start, at = memoryview(file.read(position, CHUNK)), position, 0
            if len(chunk) < HEADER_SIZE:
                return
        header = parse_header(chunk, at, start)
        if header.magic != MAGIC:
            _refuse_old_format(file, position)
            return
        if header.size < HEADER_SIZE or header.size > end - position or header.record_count < 0:
            return
        if at + header.size > len(chunk):
            chunk = memoryview(file.read(position, max(CHUNK, header.size)))
            start, at = position, 0
            if len(chunk) < header.size:
                return
        view = chunk[at : at + header.size]
        if header.last_offset_delta < 0 or not check_crc(view, header, position):
            return
        yield header, view
        position += header.size


def _refuse_old_format(file: File, position: int) -> None:
    """Raises if a message of format v0 or v1 is here, which must not be cut off as damaged."""
    offset, size, crc, magic = unpack_from(">qiIb", file.read(position, 17))
    if magic not in (0, 1) or offset < 0 or not 14 <= size <= file.size - position - 12:
        return
    if zlib.crc32(file.read(position + 16, size - 4)) == crc:
        raise UnsupportedFormatError(
            f"{file.path} holds messages of format v{magic}, which is not supported: "
            "let Kafka 3.x convert the topic (log.message.format.version), or move it away"
        )
