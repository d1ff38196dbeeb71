"""A simulated disk as one process has it: every call ends where the process was killed."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from highwater.world.sim.disk import UNBOUNDED, SimDisk, SimFile, os_error, split
from highwater.world.sim.disk_steps import SimSteps
from highwater.world.sim.inode import Inode
from highwater.world.sim.kernel import Life

if TYPE_CHECKING:
    from highwater.world.api import Disk, Pace

T = TypeVar("T")


class ProcessDisk:
    """`world.api.Disk` as one process sees its machine's disk."""

    def __init__(self, disk: SimDisk, process: Life) -> None:
        self._disk = disk
        self._process = process
        disk.forget_the_dead()

    def _enter(self, path: str, *, grave: bool = True) -> SimDisk:
        self._process.check()
        self._disk.check(self._process, path, grave=grave)
        return self._disk

    def open(self, path: str, *, create: bool = False) -> SimFile:
        disk = self._enter(path)
        disk.perhaps_fail(self._process, "open", path)
        if create and disk.find(path) is None:
            disk.put(path, Inode())
        return SimFile(disk, self._process, path, disk.file(path))

    @contextmanager
    def not_waiting(self) -> Iterator[None]:
        self._disk.waits = False
        try:
            yield
        finally:
            self._disk.waits = True

    def exists(self, path: str) -> bool:
        return self._enter(path).find(path) is not None

    def list(self, path: str) -> list[str]:
        return sorted(self._enter(path).folder(path))

    def make_dirs(self, path: str) -> None:
        disk = self._enter(path)
        folder, above = disk.root, ""
        for part in path.split("/"):
            if not part:
                continue
            above += f"/{part}"
            if part not in folder:
                disk.put(above, {})
            node = folder[part]
            if isinstance(node, Inode):
                raise os_error(errno.ENOTDIR, path)
            folder = node

    def is_dir(self, path: str) -> bool:
        return isinstance(self._enter(path).find(path), dict)

    def size(self, path: str) -> int:
        return len(self._enter(path).file(path).data)

    def space(self, path: str) -> tuple[int, int]:
        disk = self._enter(path, grave=False)
        disk.folder(path)
        total = UNBOUNDED if disk.capacity is None else disk.capacity
        return total, max(0, total - disk.used)

    def read_all(self, path: str) -> bytes:
        file = self.open(path)
        try:
            return file.read(0, file.size)
        finally:
            file.close()

    def rename(self, old: str, new: str) -> None:
        disk = self._enter(old)
        disk.check(self._process, new)
        disk.perhaps_fail(self._process, "rename", new)
        node = disk.find(old)
        if node is None:
            raise os_error(errno.ENOENT, old)
        target = disk.find(new)
        if isinstance(target, dict) and (target or isinstance(node, Inode)):
            raise os_error(errno.ENOTEMPTY if target else errno.EISDIR, new)
        disk.folder(split(new)[0])
        if isinstance(target, Inode):
            disk.used -= len(target.data)
        disk.put(new, node)
        disk.put(old, None)
        # one step of the journal: a rename is never half done
        second, first = disk._journal.pop(), disk._journal.pop()

        before = node.renamed if isinstance(node, Inode) else None

        def undo() -> None:
            second()
            first()
            if isinstance(node, Inode):
                node.renamed = before

        disk._journal.append(undo)
        if isinstance(node, Inode):
            node.renamed = new, disk.kernel.timeline.now

    def remove(self, path: str) -> None:
        disk = self._enter(path)
        found = disk.file(path)
        disk.perhaps_fail(self._process, "remove", path)
        disk.used -= len(found.data)
        disk.put(path, None)

    def remove_tree(self, path: str) -> None:
        disk = self._enter(path)
        disk.folder(path)
        disk.perhaps_fail(self._process, "remove", path)
        disk.put(path, None)
        disk.used = sum(len(inode.data) for _, inode in disk.files())

    def replace(self, path: str, data: bytes) -> None:
        beside, _ = self._write_beside(path, data)
        self.rename(beside, path)

    async def replace_durably(self, path: str, data: bytes) -> None:
        beside, inode = self._write_beside(path, data)
        await self._disk.sync(inode, path, lambda: self._synced("flush", path))
        self.rename(beside, path)
        await self._disk.sync(None, path, lambda: self._synced("sync", split(path)[0]))

    def _write_beside(self, path: str, data: bytes) -> tuple[str, Inode]:
        disk = self._enter(path)
        disk.temporary += 1
        beside = f"{path}.{disk.temporary}.tmp"
        inode = Inode()
        disk.put(beside, inode)
        failing = disk.strikes(self._process, "append", path)
        if failing is not None:
            data = data[: int(len(data) * failing.share)]
        room = disk.take(path, len(data))
        inode.overwrite(0, data[:room])
        if failing is not None:
            raise os_error(failing.number, path)
        if room < len(data):
            raise disk.full(self._process, path)
        return beside, inode

    async def sync_dir(self, path: str) -> None:
        self._enter(path).folder(path)
        await self._disk.sync(None, path, lambda: self._synced("sync", path))

    def _synced(self, call: str, path: str) -> None:
        self._enter(path).perhaps_fail(self._process, call, path)

    def lock(self, path: str) -> SimLock:
        disk = self._enter(path)
        holder = disk.locks.get(path)
        if holder is not None and holder.alive:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        self.open(path, create=True).close()
        disk.locks[path] = self._process
        return SimLock(disk, self._process, path)

    async def run(self, work: Callable[[], T]) -> T:
        """Runs the work inline, with checkpoints around it, because a thread would run
        concurrently.
        """
        self._process.check()
        await trio.sleep(self._disk.random.uniform(0.0, 0.001))
        result = work()
        await trio.sleep(self._disk.random.uniform(0.0, 0.001))
        return result

    @asynccontextmanager
    async def apart(
        self,
        work: Callable[[Disk, Any, Pace], Iterator[T]],
        job: object,
        *,
        bytes_per_second: float,
        small: bool = False,
    ) -> AsyncIterator[SimSteps[T]]:
        steps: SimSteps[T] = SimSteps(self.run, bytes_per_second)
        steps.begin(work(self, job, steps.pace))
        yield steps


class SimLock:
    """`world.api.Lock`."""

    def __init__(self, disk: SimDisk, process: Life, path: str) -> None:
        self._disk = disk
        self._process = process
        self._path = path

    def release(self) -> None:
        if self._disk.locks.get(self._path) is self._process:
            del self._disk.locks[self._path]
