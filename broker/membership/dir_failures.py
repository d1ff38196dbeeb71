"""Reports the failure of a log directory: one line, news for the controller, and perhaps the end.

The directory's partitions are offline from that moment (`ReplicaManager.dir_failed`).  The
controller learns of the failure from a sequential znode in /log_dir_event_notification.  It sends
this broker a LeaderAndIsr with everything, sees from the answers which partitions are lost here,
and elects other leaders for them.  A broker without any directory is useless: it halts, without the
mark of a clean shutdown, and its leaders move because it is gone.

Source: kafka.server.ReplicaManager.handleLogDirFailure, LogDirFailureHandler.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Sequence

import trio

from highwater.broker.membership.registration import HaltError
from highwater.kafka import znodes
from highwater.kafka.types import BrokerId
from highwater.world.api import ZkError, ZooKeeper

log = logging.getLogger(__name__)

RETRY_S = 0.2


class DirFailures:
    """`run` reports failures, and raises HaltError when no directory is left."""

    def __init__(
        self, broker_id: BrokerId, log_dirs: Sequence[str], zk: Callable[[], ZooKeeper | None]
    ) -> None:
        self._broker_id = broker_id
        self._log_dirs = log_dirs
        self._zk = zk
        self._failed: dict[str, OSError] = {}
        self._news = trio.Event()
        self._last = trio.Event()

    def add(self, log_dir: str, error: OSError, partitions: int) -> None:
        """Notes that a directory with so many partitions is offline now."""
        self._failed[log_dir] = error
        if self.none_left is None:
            log.error(
                "log directory %s is offline, with %d partitions: %s; %s, and restart the broker",
                log_dir,
                partitions,
                _cause(error),
                _remedy(error),
            )
            self._news.set()
        else:
            self._last.set()

    @property
    def none_left(self) -> str | None:
        """The line for the log, if every directory has failed."""
        if len(self._failed) < len(self._log_dirs):
            return None
        each = "; ".join(f"{path}: {_cause(e)}" for path, e in self._failed.items())
        remedies = dict.fromkeys(map(_remedy, self._failed.values()))
        return f"no log directory is left ({each}): {', '.join(remedies)}, and restart the broker"

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell)
            await self._last.wait()
            raise HaltError(self.none_left)

    async def _tell(self) -> None:
        while True:
            await self._news.wait()
            self._news = trio.Event()
            while not await self._told():
                await trio.sleep(RETRY_S)

    async def _told(self) -> bool:
        """Creates one znode for all failures so far; a second one for the same does no harm."""
        zk = self._zk()
        if zk is None:
            return False
        data = znodes.encode_log_dir_event(self._broker_id)
        try:
            await zk.create(znodes.LOG_DIR_EVENT_PREFIX, data, sequential=True)
        except ZkError as e:
            log.info("the controller is not told of the failed log directory yet: %s", e)
            return False
        return True


def _cause(error: OSError) -> str:
    return error.strerror or str(error)


def _remedy(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free space there"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "let the broker write there"
    if error.errno == errno.EFBIG:
        return "let files grow (ulimit -f)"
    return "repair or replace the disk"
