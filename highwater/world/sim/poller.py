"""The processors' poller in simulation: no task for each connection or wait."""

from __future__ import annotations

from typing import Any, Protocol

import trio

from highwater.world.sim.parking import Waiters


class Watchable(Protocol):
    """An end of a connection (`network.SimConnection`)."""

    def watched_by(self, poller: SimPoller | None, token: Any) -> None:
        """Reports its news to the poller from now on."""


class SimPoller:
    """Waits for many connections at once, edge-triggered, as `world.real.network.EpollPoller`."""

    def __init__(self) -> None:
        self._events: dict[Any, int] = {}
        self._sleeping = Waiters()
        self._woken = False

    def add(self, connection: Watchable, token: Any) -> None:
        connection.watched_by(self, token)

    def remove(self, connection: Watchable, token: Any) -> None:
        connection.watched_by(None, None)
        self._events.pop(token, None)

    def want_read(self, connection: Watchable, token: Any) -> None:
        """Does nothing: it is edge-triggered."""

    def want_write(self, connection: Watchable, token: Any) -> None:
        """Does nothing: it is edge-triggered."""

    def news(self, token: Any, bits: int) -> None:
        self._events[token] = self._events.get(token, 0) | bits
        self._sleeping.wake_all()

    def wake(self) -> None:
        self._woken = True
        self._sleeping.wake_all()

    async def wait(self) -> list[tuple[Any, int]]:
        if self._events or self._woken:
            await trio.lowlevel.checkpoint()
        else:
            await self._sleeping.sleep()
        self._woken = False
        events, self._events = self._events, {}
        return list(events.items())

    def close(self) -> None:
        self._events.clear()
