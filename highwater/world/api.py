"""World: everything outside the program, behind small Protocols.

Two implementations exist, `real` and `sim`, and one contract suite runs on both.  They promise:

* Time.  Tasks, sleeping and monotonic time are trio's own (`trio.sleep`, `trio.current_time`),
  because trio itself runs under a virtual clock in `sim`.  Only the wall clock is behind a seam.
* Network.  Non-blocking system calls come first; the caller waits through `wait_readable` or
  `wait_writable` only after a call has returned None ("would block").
* Disk.  Appends and reads are synchronous (page cache).  `flush` is awaited, and it alone makes
  bytes survive a power loss.
* ZooKeeper.  One object is one session.  An expired session is dead: open another.  Results and
  watches come in no promised order: after a watch has fired, read again, and set the next watch
  with that read.
* Random.  A seeded `random.Random`; no other source of chance is allowed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

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
    small_bytes: int
    """Up to this many bytes of a file are cheaper to read and send together with the bytes before
    them than to send by `send_file`."""

    def recv_into(self, buffer: memoryview) -> int | None:
        """Gives the number of bytes read (0: the peer closed), or None where it would block."""

    def send(self, views: Sequence[Buffer], more: bool = False) -> int | None:
        """Gives the number of bytes taken from the views, in order; None where it would block."""

    def send_file(self, file: File, position: int, n: int) -> int | None:
        """As `send`, but from a file; returns 0 if the file now ends before `position`."""

    async def wait_readable(self) -> None: ...

    async def wait_writable(self) -> None: ...

    def close(self) -> None:
        """Closes, idempotently; wakes tasks that wait on it with `trio.ClosedResourceError`."""


class Listener(Protocol):
    address: tuple[str, int]

    async def accept(self) -> Connection: ...

    def close(self) -> None: ...


class Loan(Protocol):
    """Listening sockets that a harness lends to this process, until it asks for them.

    The connections that came through them are handed over, too: another socket takes the place of
    each connection's own, so that from then on the harness is between the two, and no byte is lost.
    """

    listeners: Sequence[tuple[str, Listener]]
    """(name of this process's own listener, the lent listener)"""

    async def recalled(self) -> None:
        """Returns when the harness asks for them, or has ended."""

    def exchange(self, connection: Connection) -> tuple[int, int]:
        """Puts another socket under a connection: gives the descriptors of the old one and of the
        new one's other end, for `hand_over`."""

    async def hand_over(self, descriptors: tuple[int, int], about: Any, unread: Buffer) -> None:
        """Gives them to the harness, with what it must know (JSON), and bytes to be read again."""

    def close(self) -> None:
        """Ends the loan and closes the listeners, idempotently."""


class Network(Protocol):
    async def listen(self, host: str, port: int, backlog: int = 50) -> Listener:
        """Listens; raises OSError (EADDRINUSE) if the port is taken.  Port 0 picks a free one."""

    async def connect(self, host: str, port: int) -> Connection:
        """Connects, or raises OSError; limit its time with `trio.fail_after` / `move_on_after`."""


class File(Protocol):
    """An open file.  The object keeps `size`: one writer a file."""

    path: str
    size: int

    def append(self, views: Sequence[Buffer]) -> None:
        """Appends all views, or raises OSError; `size` may then lie in between."""

    def read(self, position: int, n: int) -> bytes:
        """Gives up to n bytes; fewer only at the end of the file."""

    def read_to_send(self, position: int, n: int) -> bytes:
        """As `read`, for a connection: an error ends the connection, not the log directory."""

    def write_at(self, position: int, data: Buffer) -> None:
        """Overwrites within the file (index entries); never past its end."""

    def truncate(self, size: int) -> None: ...

    def reserve(self, n: int) -> None:
        """Reserves room for a file of n bytes; its size stays.  Raises OSError (ENOSPC).

        Does nothing where the system has no way to do so.
        """

    def release(self) -> None:
        """Gives back reserved, unused room."""

    async def flush(self) -> None:
        """fsync: after it has returned, data and size survive a power loss."""

    def cached(self, position: int, n: int) -> int:
        """The number of these bytes, from the first on, known cheaply to be in memory.

        0: a read waits for the disk; `load` them first.
        """

    async def load(self, position: int, n: int) -> None:
        """Brings these bytes into memory, however long the disk takes; other tasks run meanwhile.

        Bytes or file may be gone again before a read: nothing is raised.
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
    """The process of the work has ended, or could not be started."""


class Steps(Protocol[R]):
    """Work that continues only when asked for its next result."""

    async def next(self) -> R | None:
        """The next result; None after the last.  Raises the work's exception, or ApartError."""


Pace = Callable[[int], None]
"""Called with the number of bytes just read or written; sleeps if that was too fast."""


class Disk(Protocol):
    """Paths are absolute strings.  Errors are OSError, in the operating system's words."""

    def open(self, path: str, *, create: bool = False) -> File: ...

    def not_waiting(self) -> AbstractContextManager[None]:
        """Within it `read` and `read_all` raise ColdRead rather than wait for the disk; the code
        within must not await.
        """

    def exists(self, path: str) -> bool:
        """OSError where that cannot be told."""

    def list(self, path: str) -> list[str]:
        """Names in a folder, sorted."""

    def make_dirs(self, path: str) -> None: ...

    def is_dir(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def space(self, path: str) -> tuple[int, int]:
        """Bytes of this folder's volume: in total, and still usable."""

    def read_all(self, path: str) -> bytes: ...

    def rename(self, old: str, new: str) -> None:
        """Renames atomically, folders too; replaces a file at `new`."""

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def replace(self, path: str, data: bytes) -> None:
        """Writes a temporary file and renames it: a reader sees the old or the new content.

        Survives a process crash; only `replace_durably` survives a power loss.
        """

    async def replace_durably(self, path: str, data: bytes) -> None:
        """As `replace`, but on return the new content survives a power loss (checkpoint files)."""

    async def sync_dir(self, path: str) -> None:
        """Makes creations, renames and removals in this folder survive a power loss."""

    def lock(self, path: str) -> Lock:
        """Takes an exclusive lock that ends with the process; raises BlockingIOError where held."""

    async def run(self, work: Callable[[], T]) -> T:
        """Runs work with over a millisecond of CPU or with cold reads in a worker thread (inline in
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
        """Runs seconds of Python on files without holding up this process's event loop.

        `work` is a function of a module, and yields one result a step.  It, `job` and the results
        are pickled, because on a real machine a process of its own makes the steps, which ends with
        the context.  `small`: a worker thread will do.  Inline in `sim`.
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


class NotAllowed(ZkError):
    """ZooKeeper refuses the login, or the user may not do this; `told` is "problem: remedy"."""

    def __init__(self, path: str, told: str) -> None:
        super().__init__(path, told)
        self.told = told


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

    A `watch` is one-shot, and is dropped silently when the session ends: `on_session` tells it.
    """

    session_id: int
    session_timeout_ms: int
    on_session: list[Callable[[SessionState], None]]
    expired: bool

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> tuple[str, Stat]:
        """Creates a znode.  Without data it holds null, as in Kafka, because Apache Kafka takes a
        znode of no bytes for broken JSON.  Both are read as b"".
        """

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        """Reads a znode; raises NoNode, and then sets no watch."""

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        """The watch fires on creation too."""

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]: ...

    async def set(self, path: str, data: bytes, version: int = -1) -> Stat: ...

    async def delete(self, path: str, version: int = -1) -> None: ...

    async def multi(self, ops: Sequence[ZkOp]) -> list[Stat | str | None]:
        """Carries out all or nothing: Create gives its path, SetData its Stat, the others None;
        raises the first cause.
        """

    async def close(self) -> None:
        """Ends the session: its ephemerals vanish at once."""


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
