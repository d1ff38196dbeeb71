"""The real world: sockets, files, ZooKeeper through kazoo, the machine's clock and chance."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from highwater.world.api import Clock, Disk, Network, ZooKeeper
from highwater.world.chance import seeded, unpredictable
from highwater.world.real.clock import RealClock
from highwater.world.real.disk import RealDisk
from highwater.world.real.network import RealNetwork
from highwater.world.real.slow_calls import SlowCalls
from highwater.world.real.zookeeper import PLAIN, open_zookeeper
from highwater.world.zookeeper_link import ZooKeeperLink


class RealWorld:
    """`world.api.World` of this machine.  `seed` makes `random` repeatable (tests); `door` is the
    file through which a harness slows the disk and moves the clock (`fault_door`), `link_door` the
    one by which it lends listening sockets (`borrowed_sockets`)."""

    def __init__(
        self,
        seed: int | None = None,
        door: str | None = None,
        link: ZooKeeperLink = PLAIN,
        link_door: str | None = None,
    ) -> None:
        self.clock: Clock = RealClock()
        self.network: Network = RealNetwork()
        self.slow_calls = SlowCalls()
        self.disk: Disk = RealDisk(self.slow_calls)
        if door:
            from highwater.world.real.fault_door import DoorClock, DoorDisk, FaultDoor

            spoilt = FaultDoor(Path(door))
            self.clock, self.disk = DoorClock(spoilt), DoorDisk(self.slow_calls, spoilt)
        if link_door:
            from highwater.world.real.borrowed_sockets import DoorNetwork

            self.network = DoorNetwork(link_door)
        self._link = link
        self.random = unpredictable() if seed is None else seeded(seed)

    def zookeeper(
        self, connect: str, session_timeout_ms: int, connection_timeout_ms: int
    ) -> AbstractAsyncContextManager[ZooKeeper]:
        return open_zookeeper(connect, session_timeout_ms, connection_timeout_ms, self._link)
