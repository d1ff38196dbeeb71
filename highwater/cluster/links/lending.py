"""Lends one broker the sockets of the proxies in front of it, until a fault needs the proxies.

Theory of operation.  A byte that passes a proxy costs the agent as much work as the broker, and a
request takes twice the time.  So a broker that runs listens at its advertised ports itself, and the
proxies do nothing (`world.real.borrowed_sockets` describes the door by which the broker asks for
the sockets, and what goes through it).  Before the first fault that touches a link, all sockets are
recalled, and each connection goes on through its proxy without a break: rules, cuts and slownesses
meet the same traffic as if the proxy had always been there.  Nothing is lent again, because links
that were touched once will be touched again.

While the broker does not have the sockets (it has not started yet, or it has died), the proxies
accept, and refuse clients or let them in as always.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import trio

from highwater.cluster.links.proxy import Proxy
from highwater.cluster.links.session import Asked, Handed
from highwater.world.real.borrowed_sockets import receive, send, short_path

RECALL_S = 10.0
"""How long a broker may take to give everything back."""


class Lender:
    """Lends to one broker.  `path`: its door; `proxies`: listener -> the proxy in front of it."""

    def __init__(self, path: Path, proxies: Mapping[str, Proxy]) -> None:
        self.path = path
        self._proxies = proxies
        self._recalled = False
        self._door: trio.socket.SocketType | None = None
        self._over = trio.Event()
        """Set when the loan through `_door` is over."""

    async def serve(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Lends to each process of the broker in turn; OSError where the door cannot be made."""
        with trio.socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            self.path.unlink(missing_ok=True)
            with short_path(str(self.path)) as name:
                await listening.bind(name)
            listening.listen()
            task_status.started()
            try:
                while True:
                    door, _ = await listening.accept()
                    with door:
                        if not self._recalled:
                            await self._lend(door)
            finally:
                self.path.unlink(missing_ok=True)

    async def _lend(self, door: trio.socket.SocketType) -> None:
        self._door, self._over = door, trio.Event()
        names, descriptors = [], []
        for name, proxy in self._proxies.items():
            lent = proxy.acceptor.lend()
            names += [name] * len(lent)
            descriptors += lent
        try:
            with suppress(OSError):  # the broker has died
                await send(door, json.dumps(names).encode(), descriptors)
                while (got := await receive(door))[0]:
                    await self._take(got[1])
        finally:
            self._door = None
            for proxy in self._proxies.values():
                proxy.acceptor.take_back()
            self._over.set()

    async def _take(self, descriptors: list[int]) -> None:
        near, far, told = descriptors
        with os.fdopen(told, "rb") as file:
            file.seek(0)
            about, unread = json.loads(file.readline()), file.read()
        await self._proxies[about["listener"]].take_over(
            Handed(
                _stream(near),
                _stream(far),
                about["client_id"],
                [Asked(*request) for request in about["unanswered"]],
                about["unsent"],
                unread,
            )
        )

    def recall(self) -> None:
        """Asks for everything back; nothing is lent from now on."""
        self._recalled = True
        if self._door is not None:
            with suppress(OSError):  # the broker has died
                self._door.shutdown(socket.SHUT_WR)

    async def is_back(self) -> bool:
        """Whether everything came back in time after `recall`."""
        if self._door is not None:
            with trio.move_on_after(RECALL_S):
                await self._over.wait()
        return self._door is None


def _stream(descriptor: int) -> trio.SocketStream:
    plain = socket.socket(fileno=descriptor)
    plain.setblocking(False)
    return trio.SocketStream(trio.socket.from_stdlib_socket(plain))
