"""All logs of a broker: loading at start, creation, deletion, and periodic work.

A log directory (log.dirs) fails as a whole: the first OSError from any log in it takes it offline,
with all of its partitions.  `on_dir_failure` is called, and the broker goes on with the other
directories; it ends when none is left.

Before anything is opened, the sign of a clean shutdown is read and removed.  If it was there, logs
are opened as they are; otherwise each is recovered from its recovery point on (`recovery`).
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import trio

from highwater.base.event_loop import in_turns
from highwater.broker.log import checkpoints
from highwater.broker.log.dirs.creation import LogCreation
from highwater.broker.log.dirs.deletions import Deletions
from highwater.broker.log.dirs.directory import LogDirectory, LogDirectoryError, Offsets
from highwater.broker.log.dirs.futures import FutureLogs
from highwater.broker.log.dirs.guard import Guard
from highwater.broker.log.dirs.stale_copies import StaleCopies
from highwater.broker.log.log import Log
from highwater.broker.log.log_config import LogConfig
from highwater.broker.log.recovery import UnreadableLogError, load_log
from highwater.broker.log.trash import Trash
from highwater.kafka.config import LONG_MAX, Config
from highwater.kafka.types import TopicPartition
from highwater.world.api import Clock, Disk, File

__all__ = ["LogDirectoryError", "LogManager"]

logger = logging.getLogger(__name__)

_PARTITION = re.compile(r"^(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>\d+)$")
_LEAVING = re.compile(r"^\S+-\d+\.\S+-(delete|future|stray)$")
_CHECKPOINTS = (
    checkpoints.RECOVERY_POINTS,
    checkpoints.LOG_STARTS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.CLEANER_OFFSETS,
)


class LogManager:
    """Holds the logs, and is the `LogHooks` of each of them."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        log_dirs: Sequence[str],
        config: Config,
        on_dir_failure: Callable[[str, OSError], None],
        high_watermark: Callable[[TopicPartition], int] = lambda tp: 0,
        below: Callable[[int], int] = lambda limit: 0,
    ) -> None:
        """`below` returns a random number below its argument."""
        self.disk = disk
        self.clock = clock
        self.logs: dict[TopicPartition, Log] = {}
        self.high_watermarks: Offsets = {}
        """The high watermarks in the checkpoints, as they were at `load`."""
        self.cleaning: dict[TopicPartition, None] = {}
        """The logs that a cleaner works on: their old segments stay until it is done."""
        self.offline_dirs: set[str] = set()
        self.on_start_moved: Callable[[TopicPartition], None] = lambda tp: None
        self.default_config = LogConfig.of(config)
        self.futures = FutureLogs(self)
        self.creation = LogCreation(self)
        self.copies = StaleCopies(self)
        self._config = config
        self._on_dir_failure = on_dir_failure
        self._high_watermark = high_watermark
        self._below = below
        self._dirs = {path: LogDirectory(disk, path) for path in log_dirs}
        self.trash = Trash(disk, clock, self._not_deleted)
        self._rolled: dict[TopicPartition, None] = {}
        self._roll_seen = trio.Event()
        self._planned = trio.Event()
        self.deletions = Deletions(disk, lambda path: Guard(self.fail_dir, path), self.offline_dirs)
        self._flush_sooner = trio.Event()
        self._least_flush_ms = math.inf
        """The least flush.ms of any log so far."""
        self._flush_within(self.default_config.flush_ms)
        self._overrides: Mapping[str, Mapping[str, str]] = {}

    def topic_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """The broker's defaults with a topic's properties over them."""
        config = self.default_config.with_overrides(overrides)
        self._flush_within(config.flush_ms)
        return config

    def _flush_within(self, flush_ms: int) -> None:
        """Takes into account that a log may have this flush.ms."""
        if flush_ms < min(self._least_flush_ms, LONG_MAX):
            self._least_flush_ms = max(flush_ms, 1)
            self._flush_sooner.set()

    def reconfigure(self) -> None:
        """Applies changed defaults of the broker, from which topics' settings are rebuilt."""
        self.default_config = LogConfig.of(self._config)
        self._flush_within(self.default_config.flush_ms)
        for log in self.logs.values():
            log.producers.expiration_ms = self._config.producer_id_expiration_ms

    def dir_of(self, log: Log) -> str:
        """The log directory that a log lives in."""
        return log.dir.rpartition("/")[0]

    def get(self, tp: TopicPartition) -> Log | None:
        return self.logs.get(tp)

    def _in_dir(self, path: str) -> list[Log]:
        return [log for _, log in sorted(self.logs.items()) if self.dir_of(log) == path]

    def _live(self) -> list[LogDirectory]:
        return [d for path, d in self._dirs.items() if path not in self.offline_dirs]

    def live_dirs(self) -> list[str]:
        return [directory.path for directory in self._live()]

    # ------------------------------------------------------------------------------- loading

    async def load(
        self,
        cluster_id: str,
        broker_id: int,
        overrides: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Opens every log; `overrides` are the topics' properties, as far as they are known.

        Raises LogDirectoryError, with one clear line, if the broker must not go on.
        """
        self._overrides = overrides or {}
        try:
            for directory in self._live():
                with Guard(self.fail_dir, directory.path):
                    directory.lock()
                    await directory.claim(cluster_id, broker_id)
            for directory in self._live():
                with Guard(self.fail_dir, directory.path):
                    await self._load_dir(directory)
            await self.futures.load()
            self.copies.settle()
            self.deletions.all_known = not self.offline_dirs
        except LogDirectoryError:
            for directory in self._live():
                directory.release()
            raise
        if not self._live():
            raise LogDirectoryError(
                f"none of the log directories can be used: {', '.join(self._dirs)} "
                "(each one's error is logged above)"
            )

    async def _load_dir(self, directory: LogDirectory) -> None:
        await directory.take_clean_shutdown()
        recovery, starts, marks, cleaned = map(directory.read, _CHECKPOINTS)
        folders = self._folders(directory)
        if folders and not directory.clean:
            logger.info(
                "%s was not shut down cleanly: recovering %d logs", directory.path, len(folders)
            )
        for tp, folder in folders:
            if self.copies.is_stale(tp, folder):
                continue
            found = tuple(offsets.get(tp, 0) for offsets in (recovery, starts, cleaned))
            await self._load_one(directory, tp, folder, *found)
            if tp in marks:
                self.high_watermarks[tp] = marks[tp]
        if not self.disk.exists(f"{directory.path}/{checkpoints.CLEANER_OFFSETS}"):
            directory.write(checkpoints.CLEANER_OFFSETS, {})

    async def _load_one(
        self,
        directory: LogDirectory,
        tp: TopicPartition,
        folder: str,
        recovery: int,
        start: int,
        cleaned_to: int,
    ) -> None:
        try:
            log = await self.disk.run(
                lambda: load_log(
                    self.disk,
                    self.clock,
                    folder,
                    tp,
                    self.topic_config(self._overrides.get(tp.topic, {})),
                    clean=directory.clean,
                    recovery_point=recovery,
                    log_start_offset=start,
                    cleaned_to=cleaned_to,
                    hooks=self,
                )
            )
        except UnreadableLogError as error:
            raise LogDirectoryError(str(error)) from error
        self.logs[tp] = log

    def _folders(self, directory: LogDirectory) -> list[tuple[TopicPartition, str]]:
        found = []
        for name in self.disk.list(directory.path):
            folder = f"{directory.path}/{name}"
            if not self.disk.is_dir(folder):
                continue
            leaving = _LEAVING.match(name)
            match = _PARTITION.match(name)
            if leaving is not None:
                if leaving[1] == "delete":
                    self.trash.add((), (folder,), 0)
                elif not self.futures.found(folder):
                    logger.warning("%s is left alone", folder)
            elif match is not None:
                found.append((TopicPartition(match["topic"], int(match["partition"])), folder))
            else:
                logger.warning("%s is left alone: it is no partition", folder)
        return found

    # --------------------------------------------------------------------- making, deleting

    def get_or_create(self, tp: TopicPartition, config: LogConfig) -> Log:
        """The partition's log.  Raises OSError."""
        log = self.logs.get(tp)
        return log if log is not None else self.creation.create_one(tp, config)

    def delete(self, tp: TopicPartition) -> None:
        """Removes a log: from memory at once, from the disk later.  Raises OSError."""
        self.futures.discard_one(tp)
        path = self.dir_of(self.logs[tp])
        self.remove(tp)
        self.deletions.note(tp, path)
        self.forget_offsets(tp, path)

    def remove(self, tp: TopicPartition) -> None:
        """Like `delete`, but only for the current log, and leaves the checkpoints as they are."""
        log = self.logs.pop(tp)
        self.high_watermarks.pop(tp, None)
        self._rolled.pop(tp, None)
        path = self.dir_of(log)
        try:
            gone = self.trash.rename(tp, log.dir)
            self.discard(log, [s.file for s in log.segments], (gone,))
            log.deleted = True
        except OSError as error:
            self.deletions.failed(tp)
            self.fail_dir(path, error)
            raise

    def forget_offsets(self, tp: TopicPartition, path: str) -> None:
        """Removes a log from the checkpoints: a new topic of its name must not find its offsets."""
        directory = self._dirs[path]
        with Guard(self.fail_dir, directory.path):
            for name in _CHECKPOINTS:
                known = directory.current(name)
                if known.get(tp):
                    directory.write(name, {k: v for k, v in known.items() if k != tp})

    def _not_deleted(self, path: str, error: OSError) -> None:
        within = (directory for directory in self._dirs if path.startswith(f"{directory}/"))
        self.fail_dir(max(within, key=len), error)

    def fail_dir(self, path: str, error: OSError) -> None:
        """Takes a directory offline, with every log in it; does nothing if it is offline."""
        if path in self.offline_dirs:
            return
        self.offline_dirs.add(path)
        gone = self._in_dir(path)
        self._on_dir_failure(path, error)
        for log in gone:
            self.logs.pop(log.tp, None)
            log.deleted = True
            log.close_files()
        self.futures.dir_failed(path, [log.tp for log in gone])
        self._dirs[path].release()

    # ------------------------------------------------------------------------- hooks of logs

    def before_truncation(self, log: Log, offset: int) -> None:
        """Lowers the checkpoints before a cut, or recovery would trust new records above it."""
        self.futures.cut(log.tp, offset)
        directory = self._dirs[self.dir_of(log)]
        for name, value in (
            (checkpoints.RECOVERY_POINTS, log.recovery_point),
            (checkpoints.LOG_STARTS, log.log_start_offset),
            (checkpoints.CLEANER_OFFSETS, offset),
        ):
            known = directory.current(name)
            if (
                known.get(log.tp, 0) > offset
                or directory.written.get(name, {}).get(log.tp, 0) > offset
            ):
                directory.write(name, {**known, log.tp: value})
                self._planned.set()

    def start_moved(self, log: Log) -> None:
        self.on_start_moved(log.tp)

    async def load_moved(self, tp: TopicPartition, path: str) -> None:
        """Loads a log whose folder has just been given the partition's name."""
        directory = self._dirs[path]
        starts, marks, cleaned = map(directory.current, _CHECKPOINTS[1:])
        await self._load_one(
            directory, tp, f"{path}/{tp}", 0, starts.get(tp, 0), cleaned.get(tp, 0)
        )
        if tp in marks:
            self.high_watermarks[tp] = marks[tp]

    def note_moved(
        self, path: str, tp: TopicPartition, start: int, mark: int, cleaned: int | None
    ) -> None:
        """Enters a log that will live in this directory into the directory's checkpoints."""
        for name, value in zip(_CHECKPOINTS[1:], (start, mark, cleaned), strict=True):
            known = {k: v for k, v in self._dirs[path].current(name).items() if k != tp}
            if value is not None:
                known[tp] = value
            self._dirs[path].write(name, known)
        self._planned.set()

    def discard(self, log: Log, files: Sequence[File], paths: Sequence[str]) -> None:
        self.trash.add(files, paths, log.config.file_delete_delay_ms)

    def jitter_ms(self, limit: int) -> int:
        return self._below(limit) if limit else 0

    def rolled(self, log: Log) -> None:
        self._rolled[log.tp] = None
        self._roll_seen.set()

    # --------------------------------------------------------------------------- checkpoints

    def checkpoint_high_watermarks(self, marks: Mapping[TopicPartition, int]) -> None:
        """Plans the write; partitions that no LeaderAndIsr has named yet keep their old values."""
        self._checkpoint(
            checkpoints.HIGH_WATERMARKS,
            lambda log: marks.get(log.tp, self.high_watermarks.get(log.tp, 0)),
        )

    def checkpoint_recovery_points(self) -> None:
        self._checkpoint(checkpoints.RECOVERY_POINTS, lambda log: log.recovery_point)

    def checkpoint_log_starts(self) -> None:
        """Plans the write of the log starts that the first segment's name does not show."""
        self._checkpoint(
            checkpoints.LOG_STARTS,
            lambda log: log.log_start_offset,
            lambda log: log.log_start_offset > log.segments[0].base_offset,
        )

    def _checkpoint(
        self,
        name: str,
        value: Callable[[Log], int],
        wanted: Callable[[Log], bool] = lambda log: True,
    ) -> None:
        offsets: dict[str, Offsets] = {d.path: {} for d in self._live()}
        for tp, log in self.logs.items():
            if wanted(log):
                offsets[self.dir_of(log)][tp] = value(log)
        for directory in self._live():
            directory.plan(name, offsets[directory.path])
        self._planned.set()

    def cleaned_to(self, log: Log) -> int | None:
        """The offset in the directory's checkpoint, or None if the log was never cleaned."""
        return self._dirs[self.dir_of(log)].current(checkpoints.CLEANER_OFFSETS).get(log.tp)

    def note_cleaned(self, log: Log, offset: int) -> None:
        """Notes that the log was cleaned up to here.  Raises OSError."""
        directory = self._dirs[self.dir_of(log)]
        known = directory.current(checkpoints.CLEANER_OFFSETS)
        if known.get(log.tp) != offset:
            directory.write(checkpoints.CLEANER_OFFSETS, {**known, log.tp: offset})
            self._planned.set()

    # ----------------------------------------------------------------------- now and then

    async def run(self) -> None:
        """Runs retention, flushes, checkpoints, deletions and producers' expiry until cancelled."""
        config = self._config
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.trash.run)
            nursery.start_soon(self._flush_rolled)
            nursery.start_soon(self._settle)
            nursery.start_soon(self._flush_in_time)
            for interval_ms, work in (
                (config.log_flush_offset_checkpoint_interval_ms, self.checkpoint_recovery_points),
                (config.log_flush_start_offset_checkpoint_interval_ms, self.checkpoint_log_starts),
                (config.producer_id_expiration_check_interval_ms, self._expire_producers),
            ):
                nursery.start_soon(self._every, interval_ms, work)
            first_ms = config.log_initial_task_delay_ms
            retention_ms = config.log_retention_check_interval_ms
            nursery.start_soon(self._every, retention_ms, self._retention, first_ms)

    async def _every(
        self, interval_ms: int, work: Callable[[], object], first_ms: int | None = None
    ) -> None:
        await trio.sleep((interval_ms if first_ms is None else min(first_ms, interval_ms)) / 1000)
        while True:
            result = work()
            if result is not None:
                await result  # type: ignore[misc]
            await trio.sleep(interval_ms / 1000)

    async def _each(self, logs: Iterable[Log], work: Callable[[Log], object]) -> None:
        """Works on the logs one by one, in turns with other tasks; an error fails the directory."""
        async for log in in_turns(logs, 1):
            if not log.deleted:
                with Guard(self.fail_dir, self.dir_of(log), log):
                    result = work(log)
                    if result is not None:
                        await result  # type: ignore[misc]

    async def _retention(self) -> None:
        def clean(log: Log) -> None:
            if log.tp not in self.cleaning:
                self.retain(log)
                log.trim_memory()

        await self._each([log for _, log in sorted(self.logs.items())], clean)

    def retain(self, log: Log) -> int:
        """Deletes the segments that are due; returns their number."""
        count = log.delete_old_segments(self.clock.wall_ms(), self._high_watermark(log.tp))
        if count:
            logger.info(
                "%s: %d segments deleted, begins at %d", log.tp, count, log.log_start_offset
            )
        return count

    def _expire_producers(self) -> None:
        now = self.clock.wall_ms()
        for log in self.logs.values():
            log.producers.expire(now)

    def _checkpoints(self) -> None:
        self.checkpoint_recovery_points()
        self.checkpoint_log_starts()

    async def settle(self) -> None:
        """Writes the planned checkpoints."""
        for directory in self._live():
            with Guard(self.fail_dir, directory.path):
                await directory.settle()

    async def _settle(self) -> None:
        while True:
            await self._planned.wait()
            self._planned = trio.Event()  # only here: no other call of `settle` may lose a wake-up
            await self.settle()

    async def _flush_in_time(self) -> None:
        """Flushes each log as often as its flush.ms requires."""
        flushed: dict[TopicPartition, float] = {}
        while True:
            now = trio.current_time()
            timed = [log for _, log in sorted(self.logs.items()) if log.config.flush_ms < LONG_MAX]
            flushed = {log.tp: flushed.get(log.tp, now) for log in timed}
            due = [log for log in timed if now >= flushed[log.tp] + log.config.flush_ms / 1000]
            flushed |= {log.tp: now for log in due}
            await self._each(due, lambda log: log.flush())
            ends = [flushed[log.tp] + log.config.flush_ms / 1000 for log in timed]
            with trio.move_on_at(min([*ends, now + self._least_flush_ms / 1000])):
                await self._flush_sooner.wait()
            self._flush_sooner = trio.Event()

    async def _flush_rolled(self) -> None:
        while True:
            await self._roll_seen.wait()
            self._roll_seen = trio.Event()
            rolled, self._rolled = self._rolled, {}
            logs = [self.logs[tp] for tp in rolled if tp in self.logs]
            await self._each(logs, lambda log: log.flush(log.segments[-1].base_offset))

    async def shutdown(self, broker_epoch: int = -1) -> None:
        """Flushes and closes all logs, and marks each directory as cleanly shut down."""
        async with trio.open_nursery() as nursery:
            for directory in self._live():
                nursery.start_soon(self._shut_down_dir, directory, broker_epoch)

    async def _shut_down_dir(self, directory: LogDirectory, broker_epoch: int) -> None:
        logs = self._in_dir(directory.path)
        with Guard(self.fail_dir, directory.path):
            async with trio.open_nursery() as nursery:
                for log in logs:
                    nursery.start_soon(log.flush_for_good)
            self._checkpoints()
            await directory.settle()
            for log in logs:
                log.close_files()
            await directory.sign_clean_shutdown(broker_epoch)
        directory.release()
