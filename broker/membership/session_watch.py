"""Decides when a ZooKeeper session is over.

Usually the server says that the session has expired.  In one case no server says anything: a server
that has lost its data refuses clients that have seen later transactions than it has, by closing
their connections, for ever.  So a session that could not be resumed within its time-out is given up
if a second session can be opened and the first one still cannot be resumed; the next session then
finds out what has become of the cluster.  While no server answers at all, the session is kept: it
goes on if ZooKeeper comes back with its data.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from highwater.world.api import SessionState, World, ZkError, ZooKeeper

if TYPE_CHECKING:
    from highwater.kafka.config import Config

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 1.0


class SessionWatch:
    """Watches one session; also logs a line when ZooKeeper goes away, and when it is back."""

    def __init__(self, zk: ZooKeeper, config: Config, world: World) -> None:
        self.expired = False
        self._zk = zk
        self._config = config
        self._world = world
        self.connected = True
        self._changed = trio.Event()
        zk.on_session.append(self._enter)

    def _enter(self, state: SessionState) -> None:
        connect = self._config.zookeeper_connect
        if state is SessionState.SUSPENDED and self.connected:
            log.warning(
                "ZooKeeper at %s does not answer: what is served stays as it is until it is back",
                connect,
            )
        elif state is SessionState.CONNECTED and not self.connected:
            log.info("ZooKeeper at %s is back", connect)
        self.connected = state is SessionState.CONNECTED
        self.expired = self.expired or state is SessionState.EXPIRED
        self._changed.set()
        self._changed = trio.Event()

    async def over(self) -> str:
        """Waits until the session is over; returns the reason."""
        while not self.expired:
            if self.connected:
                await self._changed.wait()
            elif not await self._resumed() and await self._replaceable():
                return "could not be resumed"
        return "has expired"

    async def _resumed(self) -> bool:
        """Waits as long as a session lasts; False if it is still not connected then."""
        with trio.move_on_after(self._zk.session_timeout_ms / 1000):
            while not (self.connected or self.expired):
                await self._changed.wait()
        return self.connected or self.expired

    async def _replaceable(self) -> bool:
        """Whether a server accepts a new client, but still not this one."""
        config = self._config
        timeout = config.zookeeper_session_timeout_ms
        try:
            async with self._world.zookeeper(config.zookeeper_connect, timeout, timeout):
                return not await self._resumed()
        except ZkError:
            await trio.sleep(LOOK_AGAIN_S)
            return False
