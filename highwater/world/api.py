"""World: everything outside the program, behind small Protocols.

Two implementations exist, `real` and `sim`, and one contract suite runs on both.  They promise:

* Time.  Tasks, sleeping and monotonic time are trio's own (`trio.sleep`, `trio.current_time`),
  because trio itself runs under a virtual clock in `sim`.  Only the wall clock is behind a seam.
* Network.  Non-blocking system calls come first; the caller waits through `wait_readable` or
  `wait_writable` only after a call has returned None ("would block").
* Disk.  Appends and reads are synchronous (page cache).  `flush` is awaited, and it alone makes
  bytes survive a power loss.
* ZooKeeper.  One object is one session.  Once it has expired it is dead: open another.  A result
  and a watch have no promised order: after a watch has fired, read again, and set the next watch
  with that read.
* Random.  A seeded `random.Random`; nothing else may decide by chance.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from random import Random

T = TypeVar("T")
J = TypeVar("J")
R = TypeVar("R", covariant=True)
Buffer = bytes | bytearray | memoryview


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump, and differs between brokers."""

    def perf_ns(self) -> int:
        """Nanoseconds for measuring short spans (virtual in `sim`)."""


class Connection(Protocol):
    """A connected byte stream.  Errors of the peer are `OSError` (ConnectionResetError,
    BrokenPipeError).
    """

    peer: tuple[str, int]
    local: tuple[str, int]

    def recv_into(self, buffer: memoryview) -> int | None:
        """Bytes read (0: the peer closed), or None where it would block."""

    def send(self, views: Sequence[Buffer], more: bool = False) -> int | None:
        """Bytes taken of the views, in order, or None where it would block."""

    def send_file(self, file: File, position: int, n: int) -> int | None:
        """As `send`, from a file; 0 where the file ends before `position` (it became shorter)."""

    async def wait_readable(self) -> None: ...

    async def wait_writable(self) -> None: ...

    def close(self) -> None:
        """Idempotent; wakes tasks that wait on it with `trio.ClosedResourceError`."""


class Listener(Protocol):
    address: tuple[str, int]

    async def accept(self) -> Connection: ...

    def close(self) -> None: ...


class Network(Protocol):
    async def listen(self, host: str, port: int, backlog: int = 50) -> Listener:
        """Raises OSError (EADDRINUSE) where the port is taken.  Port 0 picks a free one."""

    async def connect(self, host: str, port: int) -> Connection:
        """Raises OSError; bound it with `trio.fail_after` / `move_on_after`."""


class File(Protocol):
    """An open file.  `size` is kept by the object: one writer a file."""

    path: str
    size: int

    def append(self, views: Sequence[Buffer]) -> None:
        """All of the views at the end, or OSError; after an error `size` may lie in between."""

    def read(self, position: int, n: int) -> bytes:
        """Up to n bytes; fewer only at the end of the file."""

    def write_at(self, position: int, data: Buffer) -> None:
        """Overwrites within the file (index entries); never past its end."""

    def truncate(self, size: int) -> None: ...

    def reserve(self, n: int) -> None:
        """Has the disk keep room for a file of n bytes; its size stays.  Raises OSError (ENOSPC).

        Does nothing where the system has no way to do so.
        """

    def release(self) -> None:
        """Gives back what was reserved and not used."""

    async def flush(self) -> None:
        """fsync: data and size survive a power loss after it returned."""

    def cached(self, position: int, n: int) -> int:
        """How many of these bytes, from the first on, are in memory as far as is cheaply known.

        0: who reads them waits for the disk; `load` them first.
        """

    async def load(self, position: int, n: int) -> None:
        """Brings these bytes into memory, however long the disk takes; others go on meanwhile.

        They may be gone again before they are read, as may the file: nothing is raised.
        """

    def close(self) -> None: ...


class ColdRead(Exception):
    """A read that would have to wait for the disk: await `load`, and try again."""

    def __init__(self, path: str, load: Callable[[], Awaitable[None]]) -> None:
        super().__init__(f"what is to be read of {path} is not in memory")
        self.load = load


class Lock(Protocol):
    def release(self) -> None: ...


class ApartError(Exception):
    """Who did the work is no more, or could not be started."""


class Steps(Protocol[R]):
    """Work that goes on only when it is asked for its next result."""

    async def next(self) -> R | None:
        """None: that was the last.  Raises what the work raised, or ApartError."""


Pace = Callable[[int], None]
"""Told how many bytes were just read or written, it sleeps where that was too fast."""


class Disk(Protocol):
    """Paths are absolute strings.  Errors are OSError, as the operating system words them."""

    def open(self, path: str, *, create: bool = False) -> File: ...

    def not_waiting(self) -> AbstractContextManager[None]:
        """Within it `read` and `read_all` raise ColdRead rather than wait for the disk; for code
        that awaits nothing.
        """

    def exists(self, path: str) -> bool: ...

    def list(self, path: str) -> list[str]:
        """Names in a folder, sorted."""

    def make_dirs(self, path: str) -> None: ...

    def is_dir(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def space(self, path: str) -> tuple[int, int]:
        """Bytes of the volume that has this folder: all, and those that can still be used."""

    def read_all(self, path: str) -> bytes: ...

    def rename(self, old: str, new: str) -> None:
        """Atomic; replaces a file at `new`; folders too."""

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def replace(self, path: str, data: bytes) -> None:
        """Write a temporary file beside it and rename: a reader sees the old or the new content.

        Survives a process crash.  Survives a power loss only after `sync_file` (then whole, old
        or new).
        """

    async def replace_durably(self, path: str, data: bytes) -> None:
        """As `replace`, and on return the new content survives a power loss: checkpoint files."""

    async def sync_dir(self, path: str) -> None:
        """Makes creations, renames and removals in this folder survive a power loss."""

    def lock(self, path: str) -> Lock:
        """An exclusive lock that ends with the process; raises BlockingIOError where it is held."""

    async def run(self, work: Callable[[], T]) -> T:
        """Runs work of more than a millisecond of CPU or cold reads in a worker thread (inline in
        `sim`).
        """

    def apart(
        self,
        work: Callable[[Disk, J, Pace], Iterator[R]],
        job: J,
        *,
        bytes_per_second: float,
        small: bool = False,
    ) -> AbstractAsyncContextManager[Steps[R]]:
        """Runs seconds of Python on files where they cannot hold up this process's event loop.

        `work` is a function of a module, and yields one result a step; it, `job` and the results
        are pickled, because on a real machine the steps are made by a process of their own, which
        ends with the context.  `small`: a worker thread will do.  Inline in `sim`.
        """


@dataclass(frozen=True, slots=True)
class Stat:
    czxid: int
    mzxid: int
    version: int
    ephemeral_owner: int
    num_children: int = 0


class WatchKind(Enum):
    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"
    CHILD = "child"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    kind: WatchKind
    path: str


class SessionState(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


class ZkError(Exception):
    """A failed ZooKeeper operation; `path` is the znode."""

    def __init__(self, path: str = "", detail: str = "") -> None:
        super().__init__(" ".join(filter(None, (type(self).__name__, path, detail))))
        self.path = path


class NoNode(ZkError): ...


class NodeExists(ZkError): ...


class BadVersion(ZkError): ...


class NotEmpty(ZkError): ...


class ConnectionLoss(ZkError):
    """The outcome of a write is unknown."""


class SessionExpired(ZkError): ...


class RolledBack(ZkError):
    """An operation of a failed multi that was not itself the cause."""


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    path: str
    data: bytes
    version: int = -1


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Check:
    path: str
    version: int


ZkOp = Create | SetData | Delete | Check
Watcher = Callable[[WatchEvent], None]
"""Called in the trio thread, once; must return at once (put the event into a queue)."""


class ZooKeeper(Protocol):
    """One session.  Every operation may raise ConnectionLoss or SessionExpired.

    A `watch` is one-shot, and is dropped silently when the session ends: `on_session` tells that.
    """

    session_id: int
    session_timeout_ms: int
    on_session: list[Callable[[SessionState], None]]
    expired: bool

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> tuple[str, Stat]:
        """Without data the znode holds null, as Kafka makes them: Apache Kafka takes a znode of no
        bytes for broken JSON.  Both are read as b"".
        """

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        """Raises NoNode, and then sets no watch."""

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        """The watch fires on creation too."""

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]: ...

    async def set(self, path: str, data: bytes, version: int = -1) -> Stat: ...

    async def delete(self, path: str, version: int = -1) -> None: ...

    async def multi(self, ops: Sequence[ZkOp]) -> list[Stat | str | None]:
        """All or nothing: Create gives its path, SetData its Stat, the others None; raises the
        first cause.
        """

    async def close(self) -> None:
        """Ends the session: its ephemerals go at once."""


class World(Protocol):
    clock: Clock
    network: Network
    disk: Disk
    random: Random

    def zookeeper(
        self, connect: str, session_timeout_ms: int, connection_timeout_ms: int
    ) -> AbstractAsyncContextManager[ZooKeeper]:
        """Opens one session; raises ConnectionLoss where no server answered in time.  Closes it on
        exit.
        """
