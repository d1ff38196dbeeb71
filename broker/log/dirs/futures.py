"""Future logs: unfinished copies of partitions' logs in another log directory (KIP-113).

A future log is a folder `<topic>-<partition>.<unique>-future` among the partitions of its
directory.  It is always a prefix of the current log: `replica/dir_moves` copies batches unchanged,
and a cut of the current log cuts the future one in the same step.  No client reads it, and it does
not count until it replaces the current log.

A log is not cleaned while it has a future one, which would keep records and never get their
tombstones.  But it is cleaned while the future log's directory is offline, so the next start begins
the copy of a compacted log again.

The replacement is two renames: the old folder becomes `-delete`, then the new one gets the
partition's name.  A crash between them leaves a future log without a current one.  While every
directory is there nothing else can leave that, so the next start completes the replacement.

Source: kafka.log.LogManager.replaceCurrentWithFutureLog (which renames in the other order, and
needs help after a crash in between).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from highwater.broker.log import metadata_file
from highwater.broker.log.recovery import load_log
from highwater.kafka.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from highwater.broker.log.log import Log
    from highwater.broker.log.log_config import LogConfig
    from highwater.broker.log.log_manager import LogManager
    from highwater.world.api import File

logger = logging.getLogger(__name__)

MOST_PREFERRED = 10_000
_FUTURE = re.compile(r"^(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>\d+)\.[0-9a-f]{32}-future$")


class FutureLogs:
    """The future logs of one log manager; also their hooks."""

    def __init__(self, manager: LogManager) -> None:
        self.logs: dict[TopicPartition, Log] = {}
        self.preferred: dict[TopicPartition, str] = {}
        """The directory requested for a partition not here yet; the oldest entries are dropped."""
        self._manager = manager
        self._found: list[tuple[TopicPartition, str]] = []
        self._made = 0

    def prefer(self, tp: TopicPartition, path: str) -> None:
        self.preferred.pop(tp, None)
        self.preferred[tp] = path
        if len(self.preferred) > MOST_PREFERRED:
            del self.preferred[next(iter(self.preferred))]

    # ------------------------------------------------------------------------------- loading

    def found(self, folder: str) -> bool:
        """Notes a future log's folder; False if the folder is not one."""
        match = _FUTURE.match(folder.rpartition("/")[2])
        if match is None:
            return False
        tp = TopicPartition(match["topic"], int(match["partition"]))
        self._found.append((tp, folder))
        return True

    async def load(self) -> None:
        """Loads future logs, after all current ones.  An OSError takes the directory offline."""
        manager, found, self._found = self._manager, self._found, []
        for tp, folder in found:
            path = folder.rpartition("/")[0]
            if path in manager.offline_dirs:
                continue
            try:
                await self._load_one(tp, folder, path)
            except OSError as error:
                manager.fail_dir(path, error)

    async def _load_one(self, tp: TopicPartition, folder: str, path: str) -> None:
        manager = self._manager
        current = manager.get(tp)
        if current is None:
            if manager.offline_dirs:
                logger.warning("%s waits for the log directory that has its partition", folder)
                return
            logger.warning("%s takes the place of its partition, as it was about to", folder)
            manager.disk.rename(folder, f"{path}/{tp}")
            await manager.load_moved(tp, path)
        elif tp in self.logs or manager.dir_of(current) == path:
            self._throw_away(folder)
        elif (config := current.config).compacts or manager.cleaned_to(current) is not None:
            self._throw_away(folder)
            self.create(tp, path, config)
        else:
            self.logs[tp] = await manager.disk.run(
                lambda: load_log(manager.disk, manager.clock, folder, tp, config, hooks=self)
            )

    # ----------------------------------------------------------------------- making, removing

    def create(self, tp: TopicPartition, path: str, config: LogConfig) -> Log:
        """Creates an empty future log.  Raises OSError; its directory is then offline."""
        manager = self._manager
        self._made += 1
        name = f"{tp}.{manager.clock.wall_ms():016x}{self._made:016x}-future"
        try:
            log = load_log(manager.disk, manager.clock, f"{path}/{name}", tp, config, hooks=self)
            current = manager.get(tp)
            if current is not None and current.topic_id is not None:
                metadata_file.write(manager.disk, log.dir, current.topic_id)
                log.topic_id = current.topic_id
        except OSError as error:
            manager.fail_dir(path, error)
            raise
        self.logs[tp] = log
        return log

    def discard_one(self, tp: TopicPartition) -> None:
        """Drops a future log: the move is given up, or the partition is deleted."""
        log = self.logs.pop(tp, None)
        if log is None:
            return
        log.deleted = True
        log.close_files()
        try:
            self._throw_away(log.dir)
        except OSError as error:
            self._manager.fail_dir(self._manager.dir_of(log), error)

    def _throw_away(self, folder: str) -> None:
        gone = f"{folder.rpartition('-')[0]}-delete"
        self._manager.disk.rename(folder, gone)
        self._manager.trash.add((), (gone,), 0)

    def dir_failed(self, path: str, gone: Iterable[TopicPartition]) -> None:
        """Gives up moves into the directory and out of it; the copies of lost current logs stay on
        the disk until the directory is back."""
        lost = [tp for tp, log in self.logs.items() if self._manager.dir_of(log) == path]
        for tp in dict.fromkeys([*lost, *gone]):
            log = self.logs.pop(tp, None)
            if log is not None:
                log.deleted = True
                log.close_files()

    def cut(self, tp: TopicPartition, offset: int) -> None:
        """Cuts the future log where the current log is being cut."""
        log = self.logs.get(tp)
        if log is None or offset >= log.log_end_offset:
            return
        try:
            log.truncate_to(offset)
        except OSError as error:
            self._manager.fail_dir(self._manager.dir_of(log), error)

    def replace_current(self, tp: TopicPartition, high_watermark: int) -> Log:
        """Makes the future log, which holds all that the current one does, the current one.  Raises
        OSError; the directory that failed is then offline, with the partition.
        """
        manager = self._manager
        current, future = manager.logs[tp], self.logs[tp]
        path, start = manager.dir_of(future), current.log_start_offset
        cleaned = manager.cleaned_to(current)
        try:
            future.write_all()
            future.close_files()
            manager.note_moved(path, tp, start, high_watermark, cleaned)
        except OSError as error:
            manager.fail_dir(path, error)
            raise
        del self.logs[tp]
        manager.remove(tp)
        try:
            manager.disk.rename(future.dir, f"{path}/{tp}")
            log = load_log(
                manager.disk, manager.clock, f"{path}/{tp}", tp, current.config,
                clean=True, log_start_offset=start, hooks=manager,
            )  # fmt: skip
            log.recovery_point = min(future.recovery_point, log.log_end_offset)
            unsynced = {s.base_offset for s in future.segments if s.unsynced_indexes}
            for segment in log.segments:
                if segment.base_offset in unsynced:
                    segment.distrust_indexes()
            log.epochs.restore(current.epochs.entries)
            log.doubtful_from = current.doubtful_from
        except OSError as error:
            manager.fail_dir(path, error)
            raise
        log.producers.take_over(current.producers)
        log.update_high_watermark(high_watermark)
        manager.logs[tp] = log
        return log

    # --------------------------------------------------------------------------------- hooks

    def before_truncation(self, log: Log, offset: int) -> None:
        """Does nothing: no checkpoint knows of a future log."""

    def discard(self, log: Log, files: Sequence[File], paths: Sequence[str]) -> None:
        self._manager.discard(log, files, paths)

    def jitter_ms(self, limit: int) -> int:
        return self._manager.jitter_ms(limit)

    def start_moved(self, log: Log) -> None:
        """Does nothing: no client reads a future log."""

    def rolled(self, log: Log) -> None:
        """Does nothing: a future log is flushed before it counts."""
