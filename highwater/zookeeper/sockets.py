"""The server's shell: sockets, frames and the clock, on trio.

Each connection has a task that reads its requests and one that sends what `Service` has put out
for it.  A client that does not read is closed once so much waits for it.
"""

from __future__ import annotations

import secrets
import struct
import sys
import time
from typing import Final

import trio

from highwater.zookeeper.ensemble import Ensemble
from highwater.zookeeper.service import Connection, Service
from highwater.zookeeper.store import Store

LARGEST: Final = 0xFFFFF
"""jute.maxbuffer."""
MOST_WAITING: Final = 16 << 20
"""Bytes that wait for one client."""
FIRST_S: Final = 10.0
"""The time that a client has for its first frame."""
_SIZE = struct.Struct(">i")
_WORDS: Final = (b"ruok", b"srvr")


class DiskFails(Exception):
    """A change could not be written: the server ends, and acknowledges nothing more."""


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class _Line:
    """A connection's two ends: the machine's and the socket's."""

    def __init__(self, stream: trio.SocketStream) -> None:
        host = str(stream.socket.getpeername()[0])
        self.stream = stream
        self.connection = Connection(host)
        self.ready = trio.Event()
        self._got = bytearray()

    async def frame(self) -> bytes | None:
        """The next one; None at the end, and where it is too large or less than nothing."""
        head = await self._take(_SIZE.size)
        if head is None:
            return None
        (size,) = _SIZE.unpack(head)
        return await self._take(size) if 0 <= size <= LARGEST else None

    async def word(self) -> bytes:
        """The first four bytes, which stay."""
        await self._fill(_SIZE.size)
        return bytes(self._got[: _SIZE.size])

    async def _take(self, size: int) -> bytes | None:
        if not await self._fill(size):
            return None
        found = bytes(self._got[:size])
        del self._got[:size]
        return found

    async def _fill(self, size: int) -> bool:
        while len(self._got) < size:
            got = await self.stream.receive_some(65536)
            if not got:
                return False
            self._got += got
        return True


class Server:
    """`tick_ms` bounds the time-outs of sessions to 2 to 20 of it; without a store it forgets."""

    def __init__(self, tick_ms: int = 2000, store: Store | None = None) -> None:
        self._store = store
        self.ensemble = Ensemble() if store is None else store.load()
        self._tick_ms = tick_ms
        self._lines: dict[Connection, _Line] = {}
        self.service = Service(
            self.ensemble,
            tick_ms=tick_ms,
            password=lambda: secrets.token_bytes(16),
            # the high byte is the server's number, the rest rises with time, as Java's does
            first_session=(1 << 56) | ((time.time_ns() // 1_000_000 << 16) & ((1 << 56) - 1)),
            wall_ms=lambda: time.time_ns() // 1_000_000,
            note=(lambda record: None) if store is None else store.note,
        )

    async def serve(
        self,
        port: int,
        host: str = "127.0.0.1",
        task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Until cancelled; tells its port."""
        listeners = await trio.open_tcp_listeners(port, host=host)
        self.service.resume(self._now())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._expire)
            nursery.start_soon(trio.serve_listeners, self._connection, listeners)
            task_status.started(int(listeners[0].socket.getsockname()[1]))

    async def _expire(self) -> None:
        while True:
            await trio.sleep(self._tick_ms / 2000)
            self.service.expire(self._now())
            self._wake()
            if self._store is not None:
                self._store.reap(_say)

    @staticmethod
    def _now() -> int:
        return int(trio.current_time() * 1000)

    def _wake(self) -> None:
        """What was changed is on the disk before anybody hears of it."""
        if self._store is not None:
            try:
                self._store.write(self.ensemble)
            except OSError as error:
                raise DiskFails(str(error)) from error
        for connection in self.service.told:
            if (line := self._lines.get(connection)) is not None:
                line.ready.set()
        self.service.told.clear()

    async def _connection(self, stream: trio.SocketStream) -> None:
        line = _Line(stream)
        try:
            async with stream, trio.open_nursery() as nursery:
                self._lines[line.connection] = line
                nursery.start_soon(self._send, line, nursery.cancel_scope)
                await self._requests(line)
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self._lines.pop(line.connection, None)
            self.service.lost(line.connection)

    async def _requests(self, line: _Line) -> None:
        """Until it ends; what it is to be sent then is sent first."""
        connection, first = line.connection, None
        with trio.move_on_after(FIRST_S):
            if (word := await line.word()) in _WORDS:
                connection.out.append(self._told(word))
            else:
                first = await line.frame()
        if first is not None:
            self.service.begin(connection, first, self._now())
            self._wake()
            line.ready.set()
            while not connection.closing and (frame := await line.frame()) is not None:
                if not connection.closing:  # another may have taken the session over meanwhile
                    self.service.handle(connection, frame, self._now())
                self._wake()
                line.ready.set()
        connection.closing = True
        line.ready.set()
        await trio.sleep_forever()

    async def _send(self, line: _Line, scope: trio.CancelScope) -> None:
        connection = line.connection
        while True:
            await line.ready.wait()
            line.ready = trio.Event()
            out, connection.out = connection.out, []
            if sum(map(len, out)) > MOST_WAITING:
                break
            if out:
                await line.stream.send_all(b"".join(out))
            if connection.closing and not connection.out:
                break
        scope.cancel()

    def _told(self, word: bytes) -> bytes:
        if word == b"ruok":
            return b"imok"
        zk = self.ensemble
        lines = [
            "Zookeeper version: highwater",
            f"Connections: {len(self._lines)}",
            f"Zxid: {zk.zxid:#x}",
            "Mode: standalone",
            f"Node count: {len(zk.tree.nodes)}",
        ]
        return "".join(f"{line}\n" for line in lines).encode()
