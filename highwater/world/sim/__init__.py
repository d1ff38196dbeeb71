"""The simulated world: machines, processes, network, disks and ZooKeeper that a seed decides.

`run_simulation(seed, main)` runs `main(kernel)` in virtual time.  `Simulation(kernel)` is a world
of machines in it, and `SimWorld` is one process's view of it (`world.api.World`).
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from highwater.world.sim.disk import SimDisk
from highwater.world.sim.kernel import Kernel, SimulationStuck, run_simulation
from highwater.world.sim.network import Fabric, SimNetwork
from highwater.world.sim.process import Host, Process, ProcessCrashed
from highwater.world.sim.process_disk import ProcessDisk
from highwater.world.sim.zookeeper import ZooKeeperService, open_zookeeper

if TYPE_CHECKING:
    from highwater.world.api import Clock, Disk, Network, ZooKeeper

__all__ = [
    "Host",
    "Kernel",
    "Process",
    "ProcessCrashed",
    "SimWorld",
    "Simulation",
    "SimulationStuck",
    "run_simulation",
]

ZOOKEEPER_HOST = "zookeeper"
ZOOKEEPER = f"{ZOOKEEPER_HOST}:2181"


class SimWorld:
    """`world.api.World` of one life of one process."""

    def __init__(self, simulation: Simulation, process: Process) -> None:
        self._simulation = simulation
        self.process = process
        self.clock: Clock = process.host.clock
        self.network: Network = SimNetwork(simulation.fabric, process)
        self.disk: Disk = ProcessDisk(process.host.disk, process)
        self.random = simulation.kernel.random(process.host.name, process.life)

    def zookeeper(
        self, connect: str, session_timeout_ms: int, connection_timeout_ms: int
    ) -> AbstractAsyncContextManager[ZooKeeper]:
        return open_zookeeper(
            self._simulation.zookeeper,
            self.process,
            connect,
            session_timeout_ms,
            connection_timeout_ms,
        )


class Simulation:
    """All machines of one simulation, and their faults."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.fabric = Fabric(kernel)
        self.zookeeper = ZooKeeperService(kernel, self.fabric, self.add_host(ZOOKEEPER_HOST))

    def add_host(self, name: str) -> Host:
        host = Host(self.kernel, name)
        host.disk = SimDisk(self.kernel, name)
        self.fabric.hosts[name] = host
        return host

    def start(self, host: Host, name: str | None = None) -> SimWorld:
        """A new process on a machine; run its program with `world.process.run`."""
        return SimWorld(self, Process(host, name or host.name))

    def power_loss(self, host: Host) -> int:
        """Turns the machine off; gives the number of bytes that its files lost.  `power_on` brings
        it back.
        """
        host.up = False
        for process in list(host.processes):
            process.kill(goodbye=False)
        return host.disk.power_loss()

    def power_on(self, host: Host) -> None:
        host.up = True
        self.fabric.changed()
