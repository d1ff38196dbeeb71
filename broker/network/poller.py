"""Lets a processor wait for all of its connections at once.

A task for each connection would be the plain trio way, but costs a task switch and a system call
(re-arming epoll) for each request, and kilobytes for each idle connection.  A poller has the shape
of Kafka's Selector instead: add a connection once, then ask which ones have news.

News is *edge-triggered*: a connection is reported when something arrives or drains, and then not
again until the next time.  So the processor itself remembers `readable`, and may leave bytes in the
socket (the channel is full, a request is in flight) without repeated reports.  It calls `want_read`
after it has drained a socket, and `want_write` when a send would block; a poller whose kernel
reports again by itself ignores both.

`RealNetwork.poller()` uses epoll; the simulated network has a poller of its own.  `TaskPoller`
works with any Network, by waiting in short-lived tasks: it serves systems without epoll.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from highwater.base.waker import Waker

if TYPE_CHECKING:
    from highwater.world.api import Connection, Network

READ: Final = 1
WRITE: Final = 4
"""The bits of an event (as epoll has them); anything else (errors, hang-ups) counts as both."""


class Poller(Protocol):
    def add(self, connection: Connection, token: Any) -> None:
        """Makes `wait` report the token of this connection from now on."""

    def remove(self, connection: Connection, token: Any) -> None:
        """Called before the connection is closed."""

    def want_read(self, connection: Connection, token: Any) -> None: ...

    def want_write(self, connection: Connection, token: Any) -> None: ...

    async def wait(self) -> list[tuple[Any, int]]:
        """Returns tokens and event bits; nothing after `wake`.  A checkpoint."""

    def wake(self) -> None:
        """Makes `wait` return now."""


class TaskPoller:
    """A poller that uses tasks in `wait_readable` and `wait_writable`."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._events: dict[Any, int] = {}
        self._armed: dict[Any, int] = {}
        self._waker = Waker()
        self._woken = False

    def add(self, connection: Connection, token: Any) -> None:
        self._armed[token] = 0
        self.want_read(connection, token)

    def remove(self, connection: Connection, token: Any) -> None:
        self._armed.pop(token, None)
        self._events.pop(token, None)

    def want_read(self, connection: Connection, token: Any) -> None:
        self._arm(connection, token, READ)

    def want_write(self, connection: Connection, token: Any) -> None:
        self._arm(connection, token, WRITE)

    def _arm(self, connection: Connection, token: Any, bit: int) -> None:
        armed = self._armed.get(token)
        if armed is not None and not armed & bit:
            self._armed[token] = armed | bit
            self._nursery.start_soon(self._wait_one, connection, token, bit)

    async def _wait_one(self, connection: Connection, token: Any, bit: int) -> None:
        try:
            if bit == READ:
                await connection.wait_readable()
            else:
                await connection.wait_writable()
        except (OSError, trio.ClosedResourceError):
            pass  # the next system call reports it
        armed = self._armed.get(token)
        if armed is not None:
            self._armed[token] = armed & ~bit
            self._events[token] = self._events.get(token, 0) | bit
            self._waker.wake()

    async def wait(self) -> list[tuple[Any, int]]:
        if self._events or self._woken:
            await trio.lowlevel.checkpoint()
        else:
            await self._waker.sleep()
        self._woken = False
        events, self._events = self._events, {}
        return list(events.items())

    def wake(self) -> None:
        self._woken = True
        self._waker.wake()


@asynccontextmanager
async def open_poller(network: Network) -> AsyncIterator[Poller]:
    """Opens the network's own poller, or a TaskPoller if it has none."""
    own = getattr(network, "poller", None)
    poller = own() if own is not None else None
    if poller is not None:
        try:
            yield poller
        finally:
            poller.close()
    else:
        async with trio.open_nursery() as nursery:
            yield TaskPoller(nursery)
            nursery.cancel_scope.cancel()
