"""The disk of the operating system, behind `world.api.Disk`.

Appends and reads are plain system calls, made in the trio thread: they go to the page cache, and
cost a few microseconds.  Longer work (fsync, recovery) runs in worker threads, a few at a time.  So
do reads of bytes that have left the page cache, where the reader can wait.  `page_cache` tells
which bytes those are; the bytes written last need no such check.

A file that is closed while a thread still uses it is closed after that: otherwise its number could
already belong to another file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from itertools import count
from threading import get_ident
from typing import Any, TypeVar

import trio
import trio.to_thread

from highwater.world.api import Buffer, ColdRead, Disk, Pace, Steps
from highwater.world.real.apart import process_steps, thread_steps
from highwater.world.real.page_cache import ASKS, in_memory
from highwater.world.real.reserve import reserve
from highwater.world.real.slow_calls import SlowCalls, clock

T = TypeVar("T")

_THREADS = 8
_IOV_MAX = 1024
_HOT_BYTES = 16 << 20
"""A process's last appends are in memory: nothing evicts them before they are written back."""
_LOOK_BYTES = 4 << 20
"""Bytes per check."""
_SCRATCH_BYTES = 256 << 10
_ENOUGH_BYTES = 64 << 10
_LOAD_BYTES = 256 << 10
_sync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
_CANNOT_TELL = -1


class RealFile:
    """An open file; one writer.  `fileno` is for sendfile, and only this implementation has it."""

    __slots__ = (
        "_closing", "_disk", "_fd", "_in_use", "_old", "_reserved", "_slow", "path", "size",
    )  # fmt: skip

    def __init__(self, disk: RealDisk, path: str, fd: int) -> None:
        self.path = path
        self._disk = disk
        self._slow = disk.slow
        self.size = os.fstat(fd).st_size
        self._old = self.size if ASKS else _CANNOT_TELL
        """The start of this process's own appends; of the bytes below it nothing is known."""
        self._fd = fd
        self._in_use = 0
        self._reserved = False
        self._closing = False

    def fileno(self) -> int:
        return self._fd

    def append(self, views: Sequence[Buffer]) -> None:
        if len(views) == 1:
            view = views[0]
            expected = len(view)
            began = clock()
            written = os.pwrite(self._fd, view, self.size)
            self._slow.ended(began)
            self.size += written
            if written != expected:
                self._append_rest(memoryview(view)[written:])
            return
        for start in range(0, len(views), _IOV_MAX):
            some = views[start : start + _IOV_MAX]
            expected = sum(map(len, some))
            began = clock()
            written = os.pwritev(self._fd, some, self.size)
            self._slow.ended(began)
            self.size += written
            if written != expected:
                self._append_rest(memoryview(b"".join(some))[written:])

    def _append_rest(self, view: memoryview) -> None:
        """Continues a short write until all is there or the system gives an error (ENOSPC)."""
        while view:
            written = os.pwrite(self._fd, view, self.size)
            if written == 0:
                raise OSError(errno.EIO, "the write took nothing", self.path)
            self.size += written
            view = view[written:]

    def read(self, position: int, n: int) -> bytes:
        hurried = self._disk.hurried
        if hurried and hurried == get_ident() and not self.cached(position, n):
            raise ColdRead(self.path, partial(self.load, position, n))
        began = clock()
        data = os.pread(self._fd, n, position)
        self._slow.ended(began)
        if len(data) == n or position + len(data) >= self.size:
            return data
        parts = [data]
        while n := n - len(data):
            position += len(data)
            data = os.pread(self._fd, n, position)
            if not data:
                break
            parts.append(data)
        return b"".join(parts)

    def read_to_send(self, position: int, n: int) -> bytes:
        return self.read(position, n)

    def write_at(self, position: int, data: Buffer) -> None:
        if position + len(data) > self.size:
            raise ValueError(f"{self.path}: a write at {position} would pass the end {self.size}")
        view = memoryview(data)
        while view:
            began = clock()
            written = os.pwrite(self._fd, view, position)
            self._slow.ended(began)
            position += written
            view = view[written:]

    def truncate(self, size: int) -> None:
        began = clock()
        os.ftruncate(self._fd, size)
        self._slow.ended(began)
        self.size = size
        self._old = min(self._old, size)

    def reserve(self, n: int) -> None:
        began = clock()
        reserve(self._fd, n, self.path)
        self._slow.ended(began)
        self._reserved = True

    def release(self) -> None:
        if self._reserved:  # a cut to the file's own size frees the room behind its end
            self._reserved = False
            os.ftruncate(self._fd, self.size)

    async def flush(self) -> None:
        if self._closing:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        await self._in_thread(_sync, self._fd, self._disk.limiter)

    def cached(self, position: int, n: int) -> int:
        old = self._old
        if old == _CANNOT_TELL or position >= self.size:
            return n
        if position >= old and position >= self.size - _HOT_BYTES:
            return n
        n = min(n, self.size - position, _LOOK_BYTES)
        try:
            found = in_memory(self._fd, position, n, self._disk.scratch)
        except OSError:  # this file system cannot tell
            self._old = _CANNOT_TELL
            return n
        # fewer are there by chance: the look-up of a batch's start has read its first page
        return found if found >= min(n, _ENOUGH_BYTES) else 0

    async def load(self, position: int, n: int) -> None:
        if not self._closing:
            read = partial(_read_through, position=position, n=n)
            await self._in_thread(read, self._fd, self._disk.readers)

    async def _in_thread(
        self, work: Callable[[int], object], fd: int, limiter: trio.CapacityLimiter
    ) -> None:
        """Runs `work` in a thread; if the file is closed meanwhile, its number stays its own."""
        self._in_use += 1
        try:
            await trio.to_thread.run_sync(work, fd, limiter=limiter)
        finally:
            self._in_use -= 1
            self._close_if_asked()

    def close(self) -> None:
        if not self._closing:
            self.release()
        self._closing = True
        self._close_if_asked()

    def _close_if_asked(self) -> None:
        if self._closing and not self._in_use and self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


def _read_through(fd: int, position: int, n: int) -> None:
    """Reads into the page cache; an error is left to the later reader."""
    scratch, end = bytearray(_LOAD_BYTES), position + n
    with memoryview(scratch) as view, suppress(OSError):
        os.posix_fadvise(fd, position, n, os.POSIX_FADV_WILLNEED)
        while position < end:
            got = os.preadv(fd, [view[: end - position]], position)
            if not got:
                return
            position += got


def _whole_in_memory(fd: int, scratch: memoryview) -> bool:
    position, size = 0, os.fstat(fd).st_size
    try:
        while position < size and ASKS:
            found = in_memory(fd, position, min(size - position, _LOOK_BYTES), scratch)
            if not found:
                return False
            position += found
    except OSError:
        pass  # this file system cannot tell
    return True


def _load_all(path: str) -> None:
    with suppress(OSError), open(path, "rb") as file:
        _read_through(file.fileno(), 0, os.fstat(file.fileno()).st_size)


def _mode(path: str) -> int | None:
    """The mode of a file; None if nothing is there.  `os.path.exists` returns False also for a disk
    that fails, and then a log would go on without an index that cannot be read.
    """
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


class RealLock:
    """An flock: it ends with the process, however the process ends."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RealDisk:
    """Paths are absolute strings; errors are OSError, as the operating system words them."""

    def __init__(self, slow: SlowCalls | None = None) -> None:
        self.limiter = trio.CapacityLimiter(_THREADS)
        self.readers = trio.CapacityLimiter(_THREADS)
        """A limiter of their own, so that slow reads keep no flush waiting for a thread."""
        self.slow = slow if slow is not None else SlowCalls()
        self.scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self.hurried = 0
        """The thread whose reads must not wait for the disk; 0: there is none."""
        self._temporary = count()

    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        began = clock()
        fd = os.open(path, flags, 0o644)
        self.slow.ended(began)
        try:
            return self._file(path, fd)
        except OSError:
            os.close(fd)
            raise

    def _file(self, path: str, fd: int) -> RealFile:
        return RealFile(self, path, fd)

    @contextmanager
    def not_waiting(self) -> Iterator[None]:
        self.hurried = get_ident()
        try:
            yield
        finally:
            self.hurried = 0

    def exists(self, path: str) -> bool:
        return _mode(path) is not None

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def is_dir(self, path: str) -> bool:
        mode = _mode(path)
        return mode is not None and stat.S_ISDIR(mode)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def space(self, path: str) -> tuple[int, int]:
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def read_all(self, path: str) -> bytes:
        with open(path, "rb") as file:
            if (
                self.hurried
                and self.hurried == get_ident()
                and not _whole_in_memory(file.fileno(), self.scratch)
            ):
                load = partial(trio.to_thread.run_sync, _load_all, path, limiter=self.readers)
                raise ColdRead(path, load)
            return file.read()

    def rename(self, old: str, new: str) -> None:
        began = clock()
        os.replace(old, new)
        self.slow.ended(began)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def replace(self, path: str, data: bytes) -> None:
        began = clock()
        self._replace(path, data, durably=False)
        self.slow.ended(began)

    async def replace_durably(self, path: str, data: bytes) -> None:
        await self.run(lambda: self._replace(path, data, durably=True))

    def _replace(self, path: str, data: bytes, durably: bool) -> None:
        temporary = f"{path}.{next(self._temporary)}.tmp"  # two threads may replace one file
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            if durably:
                os.fsync(fd)
        except OSError:
            os.close(fd)
            with suppress(OSError):
                os.remove(temporary)
            raise
        os.close(fd)
        os.replace(temporary, path)
        if durably:
            self._sync_dir(os.path.dirname(path))

    async def sync_dir(self, path: str) -> None:
        await self.run(lambda: self._sync_dir(path))

    def _sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> RealLock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return RealLock(fd)

    async def run(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, limiter=self.limiter)

    @asynccontextmanager
    async def apart(
        self,
        work: Callable[[Disk, Any, Pace], Iterator[T]],
        job: object,
        *,
        bytes_per_second: float,
        small: bool = False,
    ) -> AsyncIterator[Steps[T]]:
        if small:
            yield thread_steps(work, self, job, bytes_per_second)
        else:
            async with process_steps(work, job, bytes_per_second) as steps:
                yield steps
