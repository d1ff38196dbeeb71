"""The real world: sockets, files, ZooKeeper through kazoo, the machine's clock and chance."""

from __future__ import annotations

import random
from contextlib import AbstractAsyncContextManager

from highwater.common.world.api import ZooKeeper
from highwater.common.world.real.clock import RealClock
from highwater.common.world.real.network import RealNetwork
from highwater.common.world.real.zookeeper import open_zookeeper


class RealWorld:
    """`world.api.World` of this machine.  `seed` makes `random` repeatable (tests)."""

    def __init__(self, seed: int | None = None) -> None:
        from highwater.common.world.real.disk import RealDisk

        self.clock = RealClock()
        self.network = RealNetwork()
        self.disk = RealDisk()
        self.random = random.Random(seed)

    def zookeeper(
        self, connect: str, session_timeout_ms: int, connection_timeout_ms: int
    ) -> AbstractAsyncContextManager[ZooKeeper]:
        return open_zookeeper(connect, session_timeout_ms, connection_timeout_ms)
