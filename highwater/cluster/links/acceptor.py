"""Listening sockets at which a proxy accepts connections, except while it lends them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import trio


class Acceptor:
    def __init__(self, listeners: Sequence[trio.SocketListener]) -> None:
        self.listeners = listeners
        self._accepting = trio.CancelScope()
        self._here = trio.Event()
        self._here.set()

    async def run(
        self, handler: Callable[[trio.SocketStream], Awaitable[object]], nursery: trio.Nursery
    ) -> None:
        """Accepts until it is cancelled; connections live on in `nursery`."""
        try:
            while True:
                while not self._here.is_set():
                    await self._here.wait()
                # what serves them closes them, so it gets copies
                copies = [trio.SocketListener(one.socket.dup()) for one in self.listeners]
                with trio.CancelScope() as self._accepting:
                    await trio.serve_listeners(handler, copies, handler_nursery=nursery)
        finally:
            for listener in self.listeners:
                listener.socket.close()

    def lend(self) -> list[int]:
        """Accepts no more; gives the sockets' descriptors, which stay its own."""
        self._here = trio.Event()
        self._accepting.cancel()
        return [listener.socket.fileno() for listener in self.listeners]

    def take_back(self) -> None:
        """Accepts again."""
        self._here.set()
