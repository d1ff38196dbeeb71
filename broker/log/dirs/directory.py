"""One log directory: its lock, its owner, and its checkpoint files.

A directory belongs to one process (`.lock`) and to one broker of one cluster (`meta.properties`).
Both are checked before anything in it is read, since two brokers on one log destroy it silently.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from highwater.broker.log import checkpoints
from highwater.kafka.types import TopicPartition
from highwater.world.api import Disk, Lock

logger = logging.getLogger(__name__)

Offsets = dict[TopicPartition, int]


class LogDirectoryError(Exception):
    """Raised for a log directory that this broker must not use; the text says what to do."""


class LogDirectory:
    """The directory's files; errors of the disk are OSError."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self.path = path
        self.clean = False
        """Whether the last shutdown flushed everything."""
        self.written: dict[str, Offsets] = {}
        """The content of each checkpoint file."""
        self.planned: dict[str, Offsets] = {}
        """The content that `settle` will write."""
        self._lock: Lock | None = None

    def lock(self) -> None:
        """Creates the directory if it is missing, and locks it for this process."""
        self.disk.make_dirs(self.path)
        path = f"{self.path}/{checkpoints.LOCK}"
        try:
            self._lock = self.disk.lock(path)
        except BlockingIOError as error:
            raise LogDirectoryError(
                f"log directory {self.path} is in use by another process, which holds {path}: "
                "stop that broker, or give this one another log.dirs"
            ) from error

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    async def claim(self, cluster_id: str, broker_id: int) -> None:
        """Checks that meta.properties names this broker, or writes it."""
        path = f"{self.path}/{checkpoints.META_PROPERTIES}"
        known: dict[str, str] = {}
        if self.disk.exists(path):
            known = checkpoints.decode_properties(self.disk.read_all(path))
            stored_cluster = known.get("cluster.id", cluster_id)
            if stored_cluster != cluster_id:
                raise LogDirectoryError(
                    f"log directory {self.path} belongs to cluster {stored_cluster}, and "
                    f"zookeeper.connect leads to cluster {cluster_id}: correct zookeeper.connect, "
                    "or give this broker another log.dirs"
                )
            stored_id = known.get("broker.id", known.get("node.id", str(broker_id)))
            if stored_id != str(broker_id):
                raise LogDirectoryError(
                    f"log directory {self.path} belongs to broker.id {stored_id}, and this broker "
                    f"is {broker_id}: set broker.id={stored_id}, or give it another log.dirs"
                )
        wanted = {"version": "0", "broker.id": str(broker_id), "cluster.id": cluster_id, **known}
        if wanted != known:
            await self.disk.replace_durably(path, checkpoints.encode_properties(wanted))

    async def take_clean_shutdown(self) -> None:
        """Finds out whether the shutdown was clean, and durably removes the sign of it.

        If it were still there after a crash, the next start would trust a log not flushed.
        """
        path = f"{self.path}/{checkpoints.CLEAN_SHUTDOWN}"
        self.clean = self.disk.exists(path)
        if self.clean:
            self.disk.remove(path)
            await self.disk.sync_dir(self.path)

    async def sign_clean_shutdown(self, broker_epoch: int) -> None:
        """Writes the sign of a clean shutdown, after everything else is flushed."""
        await self.disk.sync_dir(self.path)
        await self.disk.replace_durably(
            f"{self.path}/{checkpoints.CLEAN_SHUTDOWN}",
            checkpoints.encode_clean_shutdown(broker_epoch),
        )

    def read(self, name: str) -> Offsets:
        """The content of a checkpoint file; empty if the file is missing or damaged."""
        path = f"{self.path}/{name}"
        offsets: Offsets = {}
        if self.disk.exists(path):
            try:
                offsets = checkpoints.decode_offsets(self.disk.read_all(path))
            except checkpoints.MalformedFileError as error:
                logger.warning("%s is not used: %s", path, error)
        self.written[name] = dict(offsets)
        return offsets

    def current(self, name: str) -> Offsets:
        """The content that a checkpoint file has now, or will have after the next `settle`."""
        return self.planned.get(name, self.written.get(name, {}))

    def write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replaces a checkpoint file at once, and plans to do so durably.

        A crash of this process keeps the new content; a power loss before `settle` may lose it.
        """
        self.disk.replace(f"{self.path}/{name}", checkpoints.encode_offsets(offsets))
        self.written[name] = self.planned[name] = dict(offsets)

    def plan(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Plans that the next `settle` replaces a checkpoint file; the old one stays until then."""
        if offsets != self.current(name):
            self.planned[name] = dict(offsets)

    async def settle(self) -> None:
        """Writes what was planned, durably."""
        while self.planned:
            name, offsets = self.planned.popitem()
            self.written[name] = offsets
            path = f"{self.path}/{name}"
            await self.disk.replace_durably(path, checkpoints.encode_offsets(offsets))
            newer = self.written[name]
            if newer is not offsets:  # a plain write was faster, and has been overwritten
                self.disk.replace(path, checkpoints.encode_offsets(newer))
