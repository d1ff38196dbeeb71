"""Creates the logs of new partitions: chooses their directories, and works off the loop.

A new log is a folder with three files, each of which may take tens of milliseconds while the file
system writes its journal.  So the logs of a large LeaderAndIsr are made in a worker thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from highwater.broker.log.log import Log
from highwater.broker.log.log_config import LogConfig
from highwater.broker.log.recovery import load_log
from highwater.kafka.types import TopicPartition

if TYPE_CHECKING:
    from highwater.broker.log.log_manager import LogManager

CREATED_AT_ONCE = 10
"""The number of logs that one call of the worker thread makes."""
MANY = 100

_Wanted = Sequence[tuple[TopicPartition, LogConfig]]


class LogCreation:
    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self.grown: Callable[[], None] = lambda: None
        """Called when many logs have been made."""

    def create_one(self, tp: TopicPartition, config: LogConfig) -> Log:
        """Creates a log at once.  On an OSError, takes its directory offline and raises it."""
        (path,) = self._places((tp,))
        try:
            log = self._make(tp, path, config)
        except OSError as error:
            self._manager.fail_dir(path, error)
            raise
        self._manager.logs[tp] = log
        return log

    async def create(self, wanted: Mapping[TopicPartition, LogConfig]) -> None:
        """Creates all logs, as long as a directory is left.  A directory that fails goes offline;
        `create_one` then finds another for its logs, or raises that there is none.
        """
        todo = list(wanted.items())
        for first in range(0, len(todo), CREATED_AT_ONCE):
            some = todo[first : first + CREATED_AT_ONCE]
            try:
                places = self._places([tp for tp, _ in some])
            except OSError:
                return
            made = await self._manager.disk.run(partial(self._make_some, some, places))
            for (tp, _), path, log in zip(some, places, made, strict=True):
                if isinstance(log, OSError):
                    self._manager.fail_dir(path, log)
                elif path in self._manager.offline_dirs:
                    log.close_files()
                else:
                    self._manager.logs[tp] = log
        if len(todo) >= MANY:
            self.grown()

    def _make_some(self, wanted: _Wanted, places: Sequence[str]) -> list[Log | OSError]:
        made: list[Log | OSError] = []
        for (tp, config), path in zip(wanted, places, strict=True):
            try:
                made.append(self._make(tp, path, config))
            except OSError as error:
                made.append(error)
        return made

    def _make(self, tp: TopicPartition, path: str, config: LogConfig) -> Log:
        manager, folder = self._manager, f"{path}/{tp}"
        log = load_log(manager.disk, manager.clock, folder, tp, config, hooks=manager)
        manager.copies.mark(folder)
        return log

    def _places(self, tps: Sequence[TopicPartition]) -> list[str]:
        """The log directory for each: the preferred one, else the one with the fewest logs.

        Raises OSError if none is left.
        """
        manager = self._manager
        live = manager.live_dirs()
        if not live:
            raise OSError(f"no log directory is left for {tps[0]}")
        counts = dict.fromkeys(live, 0)
        for other in manager.logs.values() if len(live) > 1 else ():
            counts[manager.dir_of(other)] += 1
        places = []
        for tp in tps:
            fewest = min(counts, key=lambda path: counts[path])
            wish = manager.futures.preferred.pop(tp, "")
            places.append(wish if wish in counts else fewest)
            counts[places[-1]] += 1
        return places
