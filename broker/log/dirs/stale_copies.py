"""Throws away copies of partitions that went offline with their log directory and were replaced.

A replica may be deleted while its directory is offline, and assigned to the broker again; its new
log is then made in another directory.  When the failed directory is back, both have the partition.
Apache Kafka refuses to start until somebody deletes one of the two, and that may be the wrong one.

Here the new folder gets a mark: the controller called the replica new, so whatever an offline
directory holds of it is older.  At the next start the marked folder wins.  Marks are removed when
every directory is there again.  If neither folder has a mark, or both have, the start is refused.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from highwater.broker.log.dirs.directory import LogDirectoryError
from highwater.broker.log.dirs.guard import Guard

if TYPE_CHECKING:
    from highwater.broker.log.log_manager import LogManager
    from highwater.kafka.types import TopicPartition

logger = logging.getLogger(__name__)

MARK = "newer-than-offline-copies"


class StaleCopies:
    """The stale copies of one log manager."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager

    def mark(self, folder: str) -> None:
        """Marks a log that has just been made, if any directory is offline.  Raises OSError."""
        if self._manager.offline_dirs:
            self._manager.disk.replace(f"{folder}/{MARK}", b"")

    def is_stale(self, tp: TopicPartition, folder: str) -> bool:
        """Whether a folder found at the start is older than a log already loaded; the folder is
        then thrown away.  If the loaded log is the older one, that is thrown away instead.

        Raises LogDirectoryError if nothing shows which is older, and OSError.
        """
        manager = self._manager
        other = manager.get(tp)
        if other is None:
            return False
        newer = self._marked(folder)
        try:
            loaded_newer = self._marked(other.dir)
        except OSError as error:  # the other directory's: as if it had been offline before
            manager.fail_dir(manager.dir_of(other), error)
            return False
        if newer == loaded_newer:
            raise LogDirectoryError(
                f"partition {tp} is in {other.dir} and in {folder}: remove one of the two, the one "
                "whose log directory has failed recently"
            )
        stale, kept = (other.dir, folder) if newer else (folder, other.dir)
        logger.warning("%s is thrown away: %s was made while it was offline", stale, kept)
        if not newer:
            manager.trash.add((), (manager.trash.rename(tp, folder),), 0)
            manager.forget_offsets(tp, folder.rpartition("/")[0])
            return True
        try:
            manager.delete(tp)
        except OSError:
            pass  # its directory is offline now, and the copy waits for the next start
        return False

    def settle(self) -> None:
        """Removes the marks when all directories are there; runs when everything is loaded."""
        manager = self._manager
        if manager.offline_dirs or len(manager.live_dirs()) < 2:
            return
        for _, log in sorted(manager.logs.items()):
            with Guard(manager.fail_dir, manager.dir_of(log)):
                if self._marked(log.dir):
                    manager.disk.remove(f"{log.dir}/{MARK}")

    def _marked(self, folder: str) -> bool:
        return self._manager.disk.exists(f"{folder}/{MARK}")
