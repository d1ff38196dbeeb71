"""A simulated disk: written bytes, synced bytes, and those that a power loss leaves.

Theory of operation.  An `Inode` holds the bytes as every reader sees them (the page cache), and the
way back to the last sync: the size then, and the old bytes of every place changed since.  Names
live in folders.  Each change of a name is kept with its undoing until something is synced, since a
journaling file system writes its journal in order and every fsync commits it.

A killed process leaves the page cache as it is.  After a power loss (`SimDisk.power_loss`) each
file has its synced bytes, plus, by chance: nothing, a part, or all of the later ones, perhaps with
pages of zeros in the middle (pages are written in any order).  Of the changes of names a prefix
survives.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import trio

from highwater.world.api import ColdRead
from highwater.world.sim.inode import Inode
from highwater.world.sim.kernel import Kernel, Life

if TYPE_CHECKING:
    from highwater.world.api import Buffer
    from highwater.world.sim.failing_call import FailingCall
    from highwater.world.sim.next_sync import NextSync

UNBOUNDED = 1 << 40
"""The size of a disk without a limit."""


def os_error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def split(path: str) -> tuple[str, str]:
    """Folder and name."""
    folder, _, name = path.rstrip("/").rpartition("/")
    return folder, name


Folder = dict[str, "Inode | Folder"]


class Met(NamedTuple):
    """An error of a disk that is broken or full, as a process met it and must not pass over it."""

    process: Life
    path: str
    number: int


class SimDisk:
    """One machine's disk, whatever process uses it; a process has it as a `ProcessDisk`."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.kernel = kernel
        self.name = name
        self.random = kernel.random("disk", name)
        self.root: Folder = {}
        self.used = 0
        self.temporary = 0
        self.capacity: int | None = None
        self.flush_delay_s: tuple[float, float] = (0.0005, 0.004)
        self.cold = 0.0
        """The probability that a read has to wait for the disk, where its caller need not."""
        self.cold_random = kernel.random("cold reads", name)
        self.load_most_s = 0.05
        self.loads = 0
        self.waits = True
        self.broken: dict[str, int] = {}
        """Path prefix -> errno of every operation under it (EIO)."""
        self.failing: FailingCall | None = None
        self.met: list[Met] = []
        """The errors that processes met, without those that cost only an answer: of a sendfile, or
        of the request for the size of the disk."""
        self.errors = 0
        """How many errors faults have caused."""
        self.next_sync: NextSync | None = None
        self.tear = ""
        """The next power loss tears a file whose path ends so, if there is one to tear."""
        self.torn: list[str] = []
        """The files that were torn so."""
        self.locks: dict[str, Life] = {}
        self.handles: dict[SimFile, None] = {}
        """The open files."""
        self.touched: dict[str, dict[str, None]] = {}
        """Folder -> names of changed files in it, for observers, which empty it.  An entry under ""
        means that a folder itself was made, removed or renamed.
        """
        self.closed: list[tuple[Life, str, float]] = []
        """(who closed a renamed file, its last name, for how long (s) it had had that name)"""
        self._journal: list[Callable[[], None]] = []

    # -- names ----------------------------------------------------------------------------------

    def check(self, process: Life, path: str, *, grave: bool = True) -> None:
        """Raises the error of a broken path; a grave one counts as met."""
        for prefix, number in self.broken.items():
            if path.startswith(prefix):
                self.errors += 1
                if grave:
                    self.met.append(Met(process, path, number))
                raise os_error(number, path)

    def strikes(self, process: Life, call: str, path: str) -> FailingCall | None:
        """The failing call, if it is this one."""
        failing = self.failing
        if failing is None or not failing.strikes(process, call, path):
            return None
        self.failing = failing.next()
        self.errors += 1
        return failing

    def perhaps_fail(self, process: Life, call: str, path: str) -> None:
        if self.failing is not None:
            failing = self.strikes(process, call, path)
            if failing is not None:
                raise os_error(failing.number, path)

    def full(self, process: Life, path: str) -> OSError:
        self.errors += 1
        self.met.append(Met(process, path, errno.ENOSPC))
        return os_error(errno.ENOSPC, path)

    def folder(self, path: str) -> Folder:
        node = self.find(path)
        if node is None:
            raise os_error(errno.ENOENT, path)
        if isinstance(node, Inode):
            raise os_error(errno.ENOTDIR, path)
        return node

    def find(self, path: str) -> Inode | Folder | None:
        node: Inode | Folder = self.root
        for part in path.split("/"):
            if not part:
                continue
            if isinstance(node, Inode):
                return None
            found = node.get(part)
            if found is None:
                return None
            node = found
        return node

    def file(self, path: str) -> Inode:
        node = self.find(path)
        if node is None:
            raise os_error(errno.ENOENT, path)
        if not isinstance(node, Inode):
            raise os_error(errno.EISDIR, path)
        return node

    def touch(self, folder: str, name: str) -> None:
        names = self.touched.get(folder)
        if names is None:
            self.touched[folder] = {name: None}
        else:
            names[name] = None

    def put(self, path: str, node: Inode | Folder | None) -> None:
        """Changes one name, with its undoing in the journal."""
        above, name = split(path)
        folder = self.folder(above)
        old = folder.get(name)
        if isinstance(old, dict) or isinstance(node, dict):
            self.touch("", path)
        else:
            self.touch(above, name)
        if node is None:
            del folder[name]
        else:
            folder[name] = node

        def undo() -> None:
            if old is None:
                folder.pop(name, None)
            else:
                folder[name] = old

        self._journal.append(undo)

    def take(self, path: str, n: int) -> int:
        """Takes room for n more bytes, or for as many as fit."""
        if self.capacity is not None:
            n = max(0, min(n, self.capacity - self.used))
        self.used += n
        return n

    def has_room(self, n: int) -> bool:
        return self.capacity is None or n <= self.capacity - self.used

    async def sync(self, inode: Inode | None, path: str, check: Callable[[], None]) -> None:
        """fsync of a file, or of a folder: takes time, and commits the journal."""
        mark = inode.begin_sync() if inode else None
        names = len(self._journal)
        lasts_s = self.random.uniform(*self.flush_delay_s)
        awaited = self.next_sync
        if awaited is not None and inode is not None and path.endswith(awaited.suffix):
            awaited.lasts_s, awaited.under_way, self.next_sync = lasts_s, True, None
            awaited.begun.set()
        else:
            awaited = None
        try:
            await self.kernel.timeline.sleep(lasts_s)
            check()
        except BaseException:
            if inode and mark in inode._syncing:
                inode._syncing.remove(mark)
            raise
        finally:
            if awaited is not None:
                awaited.under_way = False
        if inode and mark:
            inode.end_sync(mark)
        del self._journal[:names]

    # -- faults ---------------------------------------------------------------------------------

    def power_loss(self) -> int:
        """Leaves the disk as a power cut does; gives the number of bytes that files lost."""
        kept = self.random.randint(0, len(self._journal))
        if self.tear:
            kept = len(self._journal)
        for undo in reversed(self._journal[kept:]):
            undo()
        self._journal.clear()
        self.locks.clear()
        self.touch("", self.name)
        if self.tear and (found := self.tearable()):
            path, inode = self.random.choice(found)
            inode.tear(self.random)
            self.torn.append(path)
        self.tear = ""
        lost = sum(inode.power_loss(self.random) for _, inode in self.files())
        self.used = sum(len(inode.data) for _, inode in self.files())
        self.kernel.note("power loss", self.name, lost)
        return lost

    def tearable(self) -> list[tuple[str, Inode]]:
        """The files that may be torn."""
        return [(path, i) for path, i in self.files() if i.can_tear and path.endswith(self.tear)]

    @property
    def names_are_synced(self) -> bool:
        """Whether a power loss would undo no creation, removal or renaming."""
        return not self._journal

    def files(self) -> list[tuple[str, Inode]]:
        """Every file, in the order of paths."""
        found: list[tuple[str, Inode]] = []

        def walk(folder: Folder, path: str) -> None:
            for name in sorted(folder):
                node = folder[name]
                if isinstance(node, Inode):
                    found.append((f"{path}/{name}", node))
                else:
                    walk(node, f"{path}/{name}")

        walk(self.root, "")
        return found

    def forget_the_dead(self) -> None:
        """A process that has ended holds no file open."""
        self.handles = {file: None for file in self.handles if file.process.alive}


class SimFile:
    """`world.api.File`."""

    def __init__(self, disk: SimDisk, process: Life, path: str, inode: Inode) -> None:
        self._disk = disk
        self.process = process
        self._inode = inode
        self._closed = False
        self.path = path
        disk.handles[self] = None
        self.size = len(inode.data)
        self._folder, self._name = split(path)

    def _check(self, *, grave: bool = True) -> None:
        self.process.check()
        if self._closed:
            raise os_error(errno.EBADF, self.path)
        if self._disk.broken:
            self._disk.check(self.process, self.path, grave=grave)

    def append(self, views: Sequence[Buffer]) -> None:
        self._check()
        data = b"".join(views)
        self._disk.touch(self._folder, self._name)
        failing = self._disk.strikes(self.process, "append", self.path)
        if failing is not None:
            data = data[: int(len(data) * failing.share)]
        room = self._disk.take(self.path, len(data))
        position = len(self._inode.data)
        self._inode.overwrite(position, data[:room])
        self.size = position + room
        if failing is not None:
            raise os_error(failing.number, self.path)
        if room < len(data):
            raise self._disk.full(self.process, self.path)

    def read_to_send(self, position: int, n: int) -> bytes:
        """The bytes that sendfile takes to a connection."""
        self._check(grave=False)
        self._disk.perhaps_fail(self.process, "send", self.path)
        return bytes(self._inode.data[position : position + n])

    def read(self, position: int, n: int) -> bytes:
        self._check()
        self._disk.perhaps_fail(self.process, "read", self.path)
        if not self._disk.waits and not self.cached(position, n):
            raise ColdRead(self.path, partial(self._load, "load"))
        return bytes(self._inode.data[position : position + n])

    def write_at(self, position: int, data: Buffer) -> None:
        self._check()
        self._disk.perhaps_fail(self.process, "write", self.path)
        if position + len(data) > len(self._inode.data):
            raise os_error(errno.EINVAL, self.path)
        self._disk.touch(self._folder, self._name)
        self._inode.overwrite(position, data)

    def truncate(self, size: int) -> None:
        self._check()
        self._disk.perhaps_fail(self.process, "truncate", self.path)
        now = len(self._inode.data)
        self._disk.touch(self._folder, self._name)
        if size > now:
            self._inode.overwrite(now, bytes(self._disk.take(self.path, size - now)))
        else:
            self._inode.truncate(size)
            self._disk.used -= now - size
        self.size = len(self._inode.data)

    def reserve(self, n: int) -> None:
        """Only checks that there is room, and does not keep it."""
        self._check()
        if not self._disk.has_room(n - self.size):
            raise self._disk.full(self.process, self.path)

    def release(self) -> None:
        self._check()

    async def flush(self) -> None:
        self._check()
        await self._disk.sync(self._inode, self.path, self._check_flush)

    def _check_flush(self) -> None:
        self._check()
        if self.stands:  # a deleted file need not be on the disk
            self._disk.perhaps_fail(self.process, "flush", self.path)

    def cached(self, position: int, n: int) -> int:
        disk = self._disk
        if not disk.cold or disk.cold_random.random() >= disk.cold:
            return n
        return disk.cold_random.choice((0, 0, min(n, 61)))

    async def load(self, position: int, n: int) -> None:
        await self._load("load to send")

    async def _load(self, call: str) -> None:
        self._disk.loads += 1
        await trio.sleep(self._disk.cold_random.uniform(0.0, self._disk.load_most_s))
        self.process.check()
        if self.stands and not self._closed:
            self._disk.check(self.process, self.path, grave=call == "load")
            self._disk.perhaps_fail(self.process, call, self.path)

    @property
    def stands(self) -> bool:
        """Whether the file still has its name."""
        return self._disk.find(self.path) is self._inode

    def close(self) -> None:
        renamed = self._inode.renamed
        if renamed is not None and not self._closed and self.process.alive:
            now = self._disk.kernel.timeline.now
            self._disk.closed.append((self.process, renamed[0], now - renamed[1]))
        self._closed = True
        self._disk.handles.pop(self, None)
