"""The server's shell: connections, the clock and the disk, on trio.

Each connection has a task that reads its requests and one that sends what `Service` has put out
for it, once the changes before it are written.

With `sync` an answer waits until those changes are on the disk itself, as with forceSync=yes of
Java's server.  One fsync, in a thread, serves all answers that wait when it begins.  Answers that
come meanwhile wait for the next one, even those to reads, because they may show a change that a
power loss would undo.  While no change is in progress, nothing waits.
"""

from __future__ import annotations

import resource
import secrets
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import Final

import trio

from highwater.zookeeper import four_letter_words as words
from highwater.zookeeper.ensemble import Ensemble
from highwater.zookeeper.line import All, Line
from highwater.zookeeper.service import Connection, Service
from highwater.zookeeper.store import Store

FIRST_S: Final = 10.0
"""How long a client may take to send its first frame."""
MOST_CONNECTIONS: Final = 10_000
_SPARE_FILES: Final = 64
MOST_OUTSTANDING: Final = 1000
"""While more requests wait for the disk, no more are read (Java's globalOutstandingLimit)."""


class DiskFails(Exception):
    """A change could not be written: the server ends, and acknowledges nothing more."""


@dataclass(frozen=True, slots=True)
class Options:
    sync: bool = False
    words: frozenset[str] = words.allowed("*")
    per_host: int = 0
    """The most connections of one address; 0: any number, as maxClientCnxns."""
    most: int = 0
    """The most connections; 0: as many as files may be open, and at most MOST_CONNECTIONS."""

    def most_connections(self) -> int:
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _SPARE_FILES
        return self.most or max(1, min(MOST_CONNECTIONS, files))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Server:
    """The server.  Sessions' time-outs are 2 to 20 times `tick_ms`; without a store a restart
    begins empty."""

    def __init__(
        self, tick_ms: int = 2000, store: Store | None = None, options: Options | None = None
    ) -> None:
        self._store = store
        self._options = options or Options()
        self._sync = store is not None and self._options.sync
        self.ensemble = Ensemble() if store is None else store.load()
        self._tick_ms = tick_ms
        self._lines: dict[Connection, Line] = {}
        self._hosts: Counter[str] = Counter()
        self._most = self._options.most_connections()
        self._full: set[str] = set()
        """The limits that are reached, and were reported."""
        self._rejected = 0
        self._all = All()
        self._began_ms = 0
        self._config: dict[str, object] = {}
        self._held: dict[Line, None] = {}
        """The connections whose `out` waits for the disk."""
        self._asked: list[tuple[Line, float]] = []
        """(connection, when the request came) for answers that wait for the disk."""
        self._to_sync = trio.Event()
        self._synced = trio.Event()
        self._syncing = False
        self.service = Service(
            self.ensemble,
            tick_ms=tick_ms,
            password=lambda: secrets.token_bytes(16),
            # the high byte is the server's number, the rest rises with time, as Java's does
            first_session=(1 << 56) | ((_wall_ms() << 16) & ((1 << 56) - 1)),
            wall_ms=_wall_ms,
            note=(lambda record: None) if store is None else store.note,
        )

    async def serve(
        self,
        port: int,
        host: str = "127.0.0.1",
        task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serves until cancelled; `task_status` gets the port."""
        listeners = await trio.open_tcp_listeners(port, host=host)
        own = int(listeners[0].socket.getsockname()[1])
        self._config = self._conf(own)
        self._began_ms = self._now()
        self.service.resume(self._began_ms)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._expire)
            if self._store is not None:
                nursery.start_soon(self._reaps, self._store)
            if self._sync:
                nursery.start_soon(self._syncs)
            nursery.start_soon(trio.serve_listeners, self._connection, listeners)
            task_status.started(own)

    def _conf(self, port: int) -> dict[str, object]:
        folder = None if self._store is None else self._store.folder
        return {
            "clientPort": port, "dataDir": folder, "dataLogDir": folder, "tickTime": self._tick_ms,
            "maxClientCnxns": self._options.per_host, "minSessionTimeout": 2 * self._tick_ms,
            "maxSessionTimeout": 20 * self._tick_ms, "forceSync": "yes" if self._sync else "no",
            "serverId": 0,
        }  # fmt: skip

    async def _expire(self) -> None:
        while True:
            await trio.sleep(self._tick_ms / 2000)
            self.service.expire(self._now())
            self._wake()

    async def _reaps(self, store: Store) -> None:
        """Deletes old files whenever a snapshot has ended; in a thread, because the files are large
        and the disk may be busy."""
        while True:
            await trio.sleep(self._tick_ms / 2000)
            clean = store.reap(_say)
            if clean is not None:
                try:
                    await trio.to_thread.run_sync(clean)
                except OSError as error:
                    _say(f"{store.folder} keeps what nobody needs: {error}")

    @staticmethod
    def _now() -> int:
        return int(trio.current_time() * 1000)

    # --- answers, once changes are written

    def _wake(self, line: Line | None = None, asked_s: float = 0.0) -> None:
        """Writes the changes, and only then lets the answers go out: to the requester (`line`), and
        to those who are notified."""
        if self._store is not None:
            try:
                self._store.write(self.ensemble)
            except OSError as error:
                raise DiskFails(str(error)) from error
        found = [self._lines[one] for one in self.service.told if one in self._lines]
        self.service.told.clear()
        if line is not None:
            found.append(line)
        if self._sync and (self._syncing or (self._store is not None and self._store.unsynced)):
            self._held |= dict.fromkeys(found)
            if line is not None:
                self._asked.append((line, asked_s))
            self._to_sync.set()
            return
        for one in found:
            one.send(one.take_out())
        if line is not None:
            self._answered(line, asked_s)

    def _answered(self, line: Line, asked_s: float) -> None:
        ms = int((trio.current_time() - asked_s) * 1000)
        line.client.traffic.answer(ms)
        line.client.answered_ms = self._now()
        self._all.traffic.answer(ms)

    async def _syncs(self) -> None:
        assert self._store is not None
        while True:
            await self._to_sync.wait()
            self._to_sync = trio.Event()
            out = [(line, line.take_out()) for line in self._held]
            self._held.clear()
            asked, self._asked = self._asked, []
            if self._store.unsynced:
                self._syncing = True
                try:
                    await trio.to_thread.run_sync(self._store.sync())
                except OSError as error:
                    raise DiskFails(str(error)) from error
                self._syncing = False
            for line, frames in out:
                line.send(frames)
            for line, asked_s in asked:
                self._answered(line, asked_s)
            self._synced.set()
            self._synced = trio.Event()

    # --- connections

    async def _connection(self, stream: trio.SocketStream) -> None:
        async with stream:
            try:
                line = Line(stream, self._all, _wall_ms())
            except OSError:
                return  # the client has gone already
            host = line.connection.host
            if not self._may_come(host):
                return
            self._lines[line.connection] = line
            self._hosts[host] += 1
            try:
                with line.scope:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._send, line)
                        await self._requests(line)
            except* (trio.BrokenResourceError, trio.ClosedResourceError):
                pass
            finally:
                self._lines.pop(line.connection, None)
                self._hosts[host] -= 1
                if not self._hosts[host]:
                    del self._hosts[host]
                line.end()
                self.service.lost(line.connection)

    def _may_come(self, host: str) -> bool:
        """Whether the limits allow one more connection; reports each limit once while it is
        reached."""
        most = self._options.per_host
        limits = {
            f"{host} has {most} connections, as --max-client-connections allows": (
                bool(most) and self._hosts[host] >= most
            ),
            f"there are {self._most} connections, which is the most": (
                len(self._lines) >= self._most
            ),
        }
        for line, reached in limits.items():
            if not reached:
                self._full.discard(line)
                continue
            if line not in self._full:
                self._full.add(line)
                _say(f"{line}: others are refused")
            self._rejected += 1
            return False
        return True

    async def _send(self, line: Line) -> None:
        await line.sends()
        line.scope.cancel()

    async def _requests(self, line: Line) -> None:
        """Serves a connection's requests until it ends; then its last answers are still sent."""
        connection, first = line.connection, None
        with trio.move_on_after(FIRST_S):
            word = words.known(await line.word())
            if word:
                self._count(line)
                connection.out.append(
                    words.answer(word, self._view(), self._options.words).encode()
                )
            else:
                first = await line.frame()
        if first is not None:
            self._count(line)
            asked_s = trio.current_time()
            self.service.begin(connection, first, self._now())
            self._wake(line, asked_s)
            while not connection.closing and (frame := await line.frame()) is not None:
                self._count(line)
                asked_s = trio.current_time()
                if not connection.closing:  # another connection may have taken the session over
                    self.service.handle(connection, frame, self._now())
                    line.client.asked(frame, self.ensemble.zxid)
                self._wake(line, asked_s)
                await self._room(line)
        connection.closing = True
        line.send(line.take_out() if line not in self._held else [])
        await trio.sleep_forever()

    async def _room(self, line: Line) -> None:
        await line.room()
        while len(self._asked) >= MOST_OUTSTANDING:
            await self._synced.wait()

    def _count(self, line: Line) -> None:
        line.client.traffic.received += 1
        self._all.traffic.received += 1

    def _view(self) -> words.View:
        return words.View(
            service=self.service, clients=[line.client for line in self._lines.values()],
            traffic=self._all.traffic, config=self._config, now_ms=self._now(), wall_ms=_wall_ms(),
            uptime_ms=self._now() - self._began_ms,
            folder=None if self._store is None else self._store.folder, rejected=self._rejected,
        )  # fmt: skip
