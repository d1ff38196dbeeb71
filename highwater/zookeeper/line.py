"""One connection's socket: the frames that arrive, and the bytes that wait to be sent.

Theory of operation.  `Connection.out` has answers whose changes may not be on the disk yet; only
what is given to `send` goes out.  A client that does not read its answers gets no further request
served until it does (`room`).  That does not limit notifications of its watches, so a client for
which too many bytes wait is cut off.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from typing import Final

import trio

from highwater.zookeeper.four_letter_words import Client, Traffic
from highwater.zookeeper.service import Connection

LARGEST: Final = 0xFFFFF
"""jute.maxbuffer: a client that announces a larger frame is cut off, as by Java's server."""
ENOUGH: Final = 1 << 20
"""While more bytes wait for a client, its requests are not read."""
MOST_WAITING: Final = 16 << 20
"""If more bytes wait for a client, it is cut off."""
MOST_IN_ALL: Final = 256 << 20
"""If more bytes wait for all clients together, the next one that would get more is cut off."""
LINGER_S: Final = 5.0
"""How long a client may take to read the last answers on a connection that ends."""
_TURN: Final = 32
"""How many frames of one client are served before others have their turn."""
_SIZE = struct.Struct(">i")


@dataclass(slots=True)
class All:
    """The state that all connections share."""

    waiting: int = 0
    """How many bytes wait to be sent to all clients."""
    traffic: Traffic = field(default_factory=Traffic)


class Line:
    """One connection's socket; making it raises OSError if the client has gone already."""

    def __init__(self, stream: trio.SocketStream, all_: All, wall_ms: int) -> None:
        host, port = stream.socket.getpeername()[:2]
        self.connection = Connection(str(host))
        self.client = Client(int(port), self.connection, wall_ms)
        self.scope = trio.CancelScope()
        """The scope of all work for this connection."""
        self._stream = stream
        self._got = bytearray()
        self._turn = 0
        self._all = all_
        self._size = 0
        self._sending: list[bytes] = []
        self._ready = trio.Event()
        self._read = trio.Event()

    # --- what comes

    async def frame(self) -> bytes | None:
        """The next frame; None at the end, or if its size is too large or negative."""
        self._turn += 1
        if self._turn >= _TURN:
            self._turn = 0
            await trio.lowlevel.checkpoint()
        head = await self._take(_SIZE.size)
        if head is None:
            return None
        (size,) = _SIZE.unpack(head)
        return await self._take(size) if 0 <= size <= LARGEST else None

    async def word(self) -> bytes:
        """The first four bytes, which are not consumed."""
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
            got = await self._stream.receive_some(65536)
            if not got:
                return False
            self._got += got
        return True

    # --- what goes

    def take_out(self) -> list[bytes]:
        """Takes the frames in `Connection.out`; the caller sends them once their changes are on the
        disk."""
        out, self.connection.out = self.connection.out, []
        self.client.queued += len(out)
        return out

    def send(self, out: list[bytes]) -> None:
        """Sends frames, in the order of the calls.  Mostly the kernel takes them at once; then no
        other task is needed."""
        if out and not self._size and not self.connection.closing:
            data = b"".join(out)
            gone = self._write(data)
            if gone == len(data):
                self._count_sent(len(out))
                return
            out = [data[gone:], *[b""] * (len(out) - 1)]
        size = sum(map(len, out))
        self._size += size
        self._all.waiting += size
        self._sending += out
        if self._size > MOST_WAITING or (size and self._all.waiting > MOST_IN_ALL):
            self.scope.cancel()
        if self.connection.closing:
            self.scope.deadline = min(self.scope.deadline, trio.current_time() + LINGER_S)
        self._ready.set()

    def _write(self, data: bytes) -> int:
        """Returns how many of the bytes the kernel has taken."""
        try:
            return os.write(self._stream.socket.fileno(), data)
        except OSError:  # it would block, or the client has gone, which `sends` will notice
            return 0

    async def room(self) -> None:
        """Waits until the client has read enough of its answers."""
        while self._size > ENOUGH:
            await self._read.wait()

    async def sends(self) -> None:
        """Sends what `send` has queued; returns when the connection is closing and all is sent."""
        while True:
            await self._ready.wait()
            self._ready = trio.Event()
            while self._sending:
                out, self._sending = self._sending, []
                data = b"".join(out)
                await self._stream.send_all(data)
                self._sent(len(data), len(out))
            if self.connection.closing and not self.client.queued and not self.connection.out:
                return

    def _sent(self, size: int, frames: int) -> None:
        self._size -= size
        self._all.waiting -= size
        self._count_sent(frames)
        self._read.set()
        self._read = trio.Event()

    def _count_sent(self, frames: int) -> None:
        self.client.queued -= frames
        self.client.traffic.sent += frames
        self._all.traffic.sent += frames

    def end(self) -> None:
        """Takes the bytes that still wait for this connection out of the common sum."""
        self._all.waiting -= self._size
        self._size = 0
