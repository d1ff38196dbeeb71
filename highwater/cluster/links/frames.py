"""Frames of one stream, as a proxy reads them: the head, by which it decides, then the rest."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable

import trio

CHUNK = 65536
FIRST = 32768
"""The bytes to read before a frame's size is known.  Each read allocates this much, and mostly gets
less: larger reads would leave more holes in the agent's memory."""
LOOK = 65536
"""The most bytes of a frame in its head."""
LARGEST = 256 << 20
"""A larger size is no size, but the first bytes of TLS or HTTP."""
SOON_S = 0.01
"""How long to wait for a whole head before its beginning may go on alone (`Early`)."""
_RESET = struct.pack("ii", 1, 0)
_SIZE = struct.Struct(">i")

Early = Callable[[bytes], Awaitable[bool]]
"""Takes the beginning of a head whose rest does not come soon; returns whether it passed it on."""


class Frames:
    """Reads frames: the head at once, the rest in pieces."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.buffer = bytearray()
        self.rest = 0
        self.ahead = 0
        """How many bytes of the last head were passed on before the head was whole."""

    async def _fill(self, n: int) -> bool:
        while len(self.buffer) < n:
            data = await self.stream.receive_some(max(FIRST, n - len(self.buffer)))
            if not data:
                return False
            self.buffer += data
        return True

    async def begun(self) -> bool:
        """Waits for the next frame's first byte; False if the stream ends instead."""
        return await self._fill(1)

    async def head(self, early: Early | None = None) -> tuple[bytes, int] | None:
        """The next frame's first bytes with the size field, and its size; None at the end."""
        self.ahead = 0
        if early is not None:
            with trio.move_on_after(SOON_S) as soon:
                await self._fill_head()
            begun = bytes(self.buffer)
            if soon.cancelled_caught and await early(begun):
                self.ahead = len(begun)
        found = await self._fill_head()
        if found is None:
            return None
        size, look = found
        head = self._taken(look)
        self.rest = 4 + size - look
        return head, size

    async def _fill_head(self) -> tuple[int, int] | None:
        """Fills the buffer with a whole head; returns the frame's size and the head's, or None at
        the end of the stream."""
        if not await self._fill(4):
            return None
        (size,) = _SIZE.unpack_from(self.buffer)
        size = max(size, 0)
        # bytes that are no frame are passed on as they come, and the far side closes the connection
        look = 4 + min(size, LOOK) if size <= LARGEST else len(self.buffer)
        return (size, look) if await self._fill(look) else None

    async def body(self) -> bytes:
        """Further bytes of the frame; empty where it is whole."""
        if not self.rest:
            return b""
        if not self.buffer:
            data = await self.stream.receive_some(min(CHUNK, self.rest))
            if not data:
                raise Ended
            self.rest -= len(data)
            return bytes(data)
        data = self._taken(self.rest)
        self.rest -= len(data)
        return data

    def _taken(self, most: int) -> bytes:
        """Takes the buffer's first bytes out of it."""
        with memoryview(self.buffer) as everything, everything[:most] as part:
            taken = bytes(part)
        del self.buffer[:most]
        return taken

    async def rest_of_frame(self) -> bytes:
        found = bytearray()
        while piece := await self.body():
            found += piece
        return bytes(found)


class Ended(Exception):
    """This connection is over: one side closed, or a rule dropped it."""


def reset_stream(stream: trio.SocketStream) -> None:
    """Closes with a reset, so that the peer knows at once and nothing lingers."""
    with contextlib.suppress(OSError):
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    stream.socket.close()
