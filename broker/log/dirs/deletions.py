"""Keeps track of deleted logs until a power loss can no longer bring them back.

Deleting a log renames its folder.  Without a sync of the directory above, a power loss may undo the
rename after the topic was deleted everywhere and created again: its new replica would then take the
old records for its own.  So a broker settles deletions before it answers StopReplica.

A directory that fails keeps the logs that were to be deleted, and shows them again when it has been
repaired and the broker restarted.  Until then their deletion must not be reported as done.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from contextlib import AbstractContextManager

import trio

from highwater.kafka.types import TopicPartition
from highwater.world.api import Disk


class Deletions:
    def __init__(
        self,
        disk: Disk,
        guarded: Callable[[str], AbstractContextManager[object]],
        offline: Container[str],
    ) -> None:
        """`guarded` takes a log directory offline when its disk fails."""
        self._disk = disk
        self._guarded = guarded
        self._offline = offline
        self._deleted: dict[TopicPartition, str] = {}
        self._failed: set[TopicPartition] = set()
        self.all_known = True
        """False if a directory was offline at the broker's start: its logs are not known."""
        self._others: set[TopicPartition] = set()
        """Deleted logs that were in other directories than the offline ones."""
        self._settling = trio.Lock()

    def note(self, tp: TopicPartition, path: str) -> None:
        """Notes a deleted log, whose folder in this directory has its last name."""
        self._deleted[tp] = path
        if not self.all_known:
            self._others.add(tp)

    def failed(self, tp: TopicPartition) -> None:
        """Notes a log whose directory failed before the folder had its last name."""
        self._failed.add(tp)

    def may_come_back(self, tp: TopicPartition) -> bool:
        """Whether a log that is not here, or no longer, may be in an offline directory."""
        return tp in self._failed or not (self.all_known or tp in self._others)

    async def settle(self) -> list[TopicPartition]:
        """Makes all deletions durable; returns those whose directory has failed."""
        async with self._settling:  # a repeated request waits for the first one's sync
            deleted, self._deleted = self._deleted, {}
            for path in dict.fromkeys(deleted.values()):
                with self._guarded(path):
                    await self._disk.sync_dir(path)
            failed = [tp for tp, path in deleted.items() if path in self._offline]
            self._failed.update(failed)
            return failed
