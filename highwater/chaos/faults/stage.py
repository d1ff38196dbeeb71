"""The objects of verbs: the cluster, its links, the witnesses, and the workload."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import trio

from highwater.chaos.faults.model import Fault
from highwater.chaos.faults.targets import resolve
from highwater.chaos.witnesses.deaths import DeathWitness
from highwater.chaos.witnesses.znode_watch import ZooKeeperWitness
from highwater.child_processes import Pid
from highwater.cluster.interface import Cluster, ClusterError, broker
from highwater.cluster.links.link_rules import Links, Rule
from highwater.cluster.run_folder import TopicInfo


class WorkloadControl(Protocol):
    """The verbs' requests to the workload."""

    async def burst(self, rate: float) -> None:
        """Sets the acks=1 records a second on the lossy topic; 0 goes back to the trickle."""

    def acked_by(self, process_prefix: str) -> int: ...


@dataclass(slots=True)
class Stage:
    cluster: Cluster
    zookeeper: ZooKeeperWitness
    deaths: DeathWitness
    workload: WorkloadControl
    topics: list[TopicInfo]
    rng: random.Random
    names: dict[str, list[str]] = field(default_factory=dict)
    rules: dict[str, Rule] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    """Members that a fault took away and that have not been restarted."""
    stopped_by_pause: set[str] = field(default_factory=set)
    clients: Callable[[], list[Pid]] = list
    """The processes of the present clients."""

    def targets(self, text: str, others_than: list[str] | None = None) -> list[str]:
        running = [n for n in self.cluster.brokers if self.cluster.running(broker(n))]
        return resolve(text, self.zookeeper, running, self.rng, self.names, others_than)

    def target(self, fault: Fault, default: str = "") -> str:
        """The one member at which a fault is aimed."""
        found = self.targets(fault.target or default)
        if len(found) != 1:
            raise ClusterError(f"{fault.name} needs one target, and {fault.target!r} is {found}")
        return found[0]

    @property
    def links(self) -> Links:
        if self.cluster.links is None:
            raise ClusterError("this cluster was started without proxies: no link can be cut")
        return self.cluster.links

    @property
    def lossy(self) -> TopicInfo:
        return next(t for t in self.topics if t.expect_loss)

    def problems(self) -> list[str]:
        """The reasons why the cluster is not whole: absent members, partitions that are not fully
        replicated."""
        found = [f"{m} is down" for m in self.cluster.members() if not self.cluster.running(m)]
        missing = set(self.cluster.brokers) - self.zookeeper.brokers
        found += [f"broker-{n} is not registered" for n in sorted(missing)]
        if self.zookeeper.controller is None:
            found.append("there is no controller")
        factor = {t.name: t.replication_factor for t in self.topics}
        for tp, state in sorted(self.zookeeper.partitions.items()):
            if state.leader < 0:
                found.append(f"{tp} has no leader")
            elif len(state.isr) < factor.get(tp.topic, 1):
                found.append(f"{tp} has the ISR {list(state.isr)}")
        return found

    async def wait_healthy(self, timeout_s: float) -> list[str]:
        """Waits until the cluster is whole; gives the problems that remain after the time."""
        with trio.move_on_after(timeout_s):
            while self.problems():
                await trio.sleep(0.05)
        return self.problems()
