"""The objects of verbs: the cluster, its links, the witness of its leaders, and open faults."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import trio

from highwater.child_processes import Pid
from highwater.cluster.faults.fault_model import Fault
from highwater.cluster.faults.targets import resolve
from highwater.cluster.faults.witness import PartitionState, Witness
from highwater.cluster.interface import Cluster, ClusterError, broker, node
from highwater.cluster.links.link_rules import Links, Rule
from highwater.kafka.types import TopicPartition

Led = dict[TopicPartition, PartitionState]
"""The partitions that a broker leads."""


async def at_once(verb: Callable[[str], Awaitable[object]], members: Sequence[str]) -> None:
    """Applies a verb to all these members at once.  When all are done, it raises the first
    ClusterError itself, not in an exception group."""
    failed: list[ClusterError] = []

    async def one(member: str) -> None:
        try:
            await verb(member)
        except ClusterError as error:
            failed.append(error)

    async with trio.open_nursery() as nursery:
        for member in members:
            nursery.start_soon(one, member)
    if failed:
        raise failed[0]


@dataclass(slots=True)
class Stage:
    cluster: Cluster
    zookeeper: Witness
    """The witness of leaders and ISRs; it uses the brokers' answers where there is no ZooKeeper."""
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
        return resolve(
            text, self.zookeeper, running, self.rng, self.names, others_than,
            partial(node, self.cluster),
        )  # fmt: skip

    def target(self, fault: Fault, default: str = "") -> str:
        """The one member at which a fault is aimed."""
        found = self.targets(fault.target or default)
        if len(found) != 1:
            raise ClusterError(f"{fault.name} needs one target, and {fault.target!r} is {found}")
        return found[0]

    def directions(self, fault: Fault) -> list[tuple[str, str]]:
        """From `from` (or the target) to `to`, and back unless `one_way`."""
        sources = self.targets(fault.params.get("from") or fault.target)
        sinks = self.targets(fault.params["to"], others_than=sources)
        pairs = [(a, b) for a in sources for b in sinks if a != b]
        if not fault.params.get("one_way"):
            pairs += [(b, a) for a, b in pairs]
        return pairs

    @property
    def links(self) -> Links:
        if self.cluster.links is None:
            raise ClusterError("this cluster was started without proxies: no link can be cut")
        return self.cluster.links

    def died(self, number: int, led: Led) -> None:
        """Is called when a broker was killed, before anything restarts it."""

    def problems(self) -> list[str]:
        """The reasons why the cluster is not whole: absent members, partitions that are not fully
        replicated."""
        found = [f"{m} is down" for m in self.cluster.members() if not self.cluster.running(m)]
        missing = set(self.cluster.brokers) - self.zookeeper.brokers
        found += [f"broker-{n} is not registered" for n in sorted(missing)]
        if self.zookeeper.controller is None:
            found.append("there is no controller")
        for tp, replicas in sorted(self.zookeeper.replicas.items()):
            state = self.zookeeper.partitions.get(tp)
            if state is None or state.leader < 0:
                found.append(f"{tp} has no leader")
            elif len(state.isr) < len(replicas):
                found.append(f"{tp} has the ISR {list(state.isr)}")
        return found

    async def wait_healthy(self, timeout_s: float) -> list[str]:
        """Waits until the cluster is whole; gives the problems that remain after the time."""
        with trio.move_on_after(timeout_s):
            while self.problems():
                await trio.sleep(0.05)
        return self.problems()
