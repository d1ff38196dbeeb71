"""The faults of a simulated run: which, when, on whom, and how long, all taken from the seed.

A fault is planned by kind and time alone; its target is found when it fires ("leader",
"controller", "any"), and each one ends by itself.  `heal` ends whatever is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from highwater.chaos.simulated.client import Failed, SimClient
from highwater.common.types import TopicPartition

if TYPE_CHECKING:
    from highwater.chaos.simulated.cluster import BrokerNode, SimCluster
    from highwater.common.world.chance import Random
    from highwater.common.world.sim import Host


@dataclass(frozen=True, slots=True)
class Fault:
    """One entry of the schedule."""

    at: float
    kind: str
    target: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.at:.1f} s: {self.kind} of {self.target} for {self.seconds:.1f} s"


TARGETS = ("leader", "leader", "controller", "any")

WEIGHTS = {
    "kill": 4,
    "bounce": 3,
    "stop": 2,
    "pause": 3,
    "partition": 3,
    "one way": 3,
    "isolate": 2,
    "cut from zookeeper": 2,
    "expire session": 2,
    "drop zookeeper connections": 1,
    "slow zookeeper": 1,
    "reset connections": 2,
    "slow links": 1,
    "swap leader": 3,
    "reassign": 2,
    "jump clock": 1,
    "kill all": 1,
}


def schedule(random: Random, seconds: float, power_loss: bool) -> list[Fault]:
    """At least three faults, one every few seconds; some overlap."""
    weights = dict(WEIGHTS)
    if power_loss:
        weights["power loss"] = 12
    kinds, chances = list(weights), list(weights.values())
    planned = [
        Fault(
            round(random.uniform(0, seconds * 0.9), 3),
            random.choices(kinds, chances)[0],
            random.choice(TARGETS),
            round(random.choice((0.2, 1.0, 3.0, 9.0)) * random.uniform(0.5, 1.5), 3),
        )
        for _ in range(random.randint(3, 3 + int(seconds / 4)))
    ]
    return sorted(planned, key=lambda fault: fault.at)


class Faults:
    """Carries a schedule out."""

    def __init__(
        self, cluster: SimCluster, admin: SimClient, tps: list[TopicPartition], random: Random
    ) -> None:
        self._cluster = cluster
        self._admin = admin
        self._tps = tps
        self._random = random
        self.done: Counter[str] = Counter()
        self.pairs: Counter[str] = Counter()
        self._active: dict[object, str] = {}
        self._verbs: dict[str, Callable[[Fault, BrokerNode], Awaitable[None]]] = {
            "kill": self._kill,
            "bounce": self._bounce,
            "stop": self._stop,
            "pause": self._pause,
            "partition": self._partition,
            "one way": self._one_way,
            "isolate": self._isolate,
            "cut from zookeeper": self._cut_zookeeper,
            "expire session": self._expire,
            "drop zookeeper connections": self._drop_zookeeper,
            "slow zookeeper": self._slow_zookeeper,
            "reset connections": self._reset,
            "slow links": self._slow_links,
            "swap leader": self._swap,
            "reassign": self._reassign,
            "jump clock": self._jump_clock,
            "kill all": self._kill_all,
            "power loss": self._power_loss,
        }

    async def run(self, planned: list[Fault]) -> None:
        start = trio.current_time()
        async with trio.open_nursery() as nursery:
            for fault in planned:
                await trio.sleep_until(start + fault.at)
                nursery.start_soon(self._one, fault)

    async def _one(self, fault: Fault) -> None:
        node = self._resolve(fault.target)
        self._cluster.trace.add("faults", f"{fault.kind} of {node.name} ({fault.target})")
        self._cluster.kernel.note("fault", fault.kind, node.id)
        self.done[fault.kind] += 1
        for other in sorted(set(self._active.values())):
            self.pairs[f"{other} + {fault.kind}"] += 1
        token = object()
        self._active[token] = fault.kind
        try:
            await self._verbs[fault.kind](fault, node)
        finally:
            del self._active[token]

    def _resolve(self, target: str) -> BrokerNode:
        cluster = self._cluster
        found: int | None = None
        if target == "leader":
            found = cluster.leader_of(self._random.choice(self._tps))
        elif target == "controller":
            found = cluster.controller()
        if found is None or found not in cluster.nodes:
            found = self._random.choice(sorted(cluster.nodes))
        return cluster.nodes[found]

    def _other(self, node: BrokerNode) -> BrokerNode:
        others = [n for i, n in sorted(self._cluster.nodes.items()) if n is not node]
        return self._random.choice(others)

    def heal(self) -> None:
        """Ends every fault there is."""
        cluster = self._cluster
        cluster.simulation.fabric.heal_all()
        cluster.simulation.zookeeper.slow_s = 0.0
        for node in cluster.nodes.values():
            cluster.thaw(node.id)
            if not node.host.up:
                cluster.power_on(node.id)

    # -- verbs ----------------------------------------------------------------------------------

    async def _kill(self, fault: Fault, node: BrokerNode) -> None:
        self._cluster.kill(node.id)
        await trio.sleep(fault.seconds)
        self._cluster.start(node.id)

    async def _bounce(self, fault: Fault, node: BrokerNode) -> None:
        self._cluster.kill(node.id)
        await trio.sleep(0.01)
        self._cluster.start(node.id)

    async def _stop(self, fault: Fault, node: BrokerNode) -> None:
        self._cluster.stop(node.id)
        process = node.world.process if node.world else None
        if process is not None:
            with trio.move_on_after(30):
                await process.ended.wait()
        self._cluster.kill(node.id)
        await trio.sleep(fault.seconds)
        self._cluster.start(node.id)

    async def _pause(self, fault: Fault, node: BrokerNode) -> None:
        self._cluster.freeze(node.id)
        await trio.sleep(fault.seconds)
        self._cluster.thaw(node.id)

    async def _cut(self, pairs: list[tuple[Host, Host]], seconds: float) -> None:
        fabric = self._cluster.simulation.fabric
        for source, target in pairs:
            fabric.cut(source, target)
        await trio.sleep(seconds)
        for source, target in pairs:
            fabric.heal(source, target)

    async def _partition(self, fault: Fault, node: BrokerNode) -> None:
        a, b = node.host, self._other(node).host
        await self._cut([(a, b), (b, a)], fault.seconds)

    async def _one_way(self, fault: Fault, node: BrokerNode) -> None:
        a, b = node.host, self._other(node).host
        await self._cut([(a, b)] if self._random.random() < 0.5 else [(b, a)], fault.seconds)

    async def _isolate(self, fault: Fault, node: BrokerNode) -> None:
        pairs = []
        for other in self._cluster.nodes.values():
            if other is not node:
                pairs += [(node.host, other.host), (other.host, node.host)]
        await self._cut(pairs, fault.seconds)

    async def _cut_zookeeper(self, fault: Fault, node: BrokerNode) -> None:
        a, b = node.host, self._cluster.simulation.zookeeper.host
        await self._cut([(a, b), (b, a)], fault.seconds)

    async def _expire(self, fault: Fault, node: BrokerNode) -> None:
        services = node.services
        if services is not None and services.session is not None:
            self._cluster.simulation.zookeeper.expire(services.session.session_id)

    async def _drop_zookeeper(self, fault: Fault, node: BrokerNode) -> None:
        self._cluster.simulation.zookeeper.break_connections()

    async def _slow_zookeeper(self, fault: Fault, node: BrokerNode) -> None:
        service = self._cluster.simulation.zookeeper
        service.slow_s = 0.3
        await trio.sleep(fault.seconds)
        service.slow_s = 0.0

    async def _reset(self, fault: Fault, node: BrokerNode) -> None:
        fabric, other = self._cluster.simulation.fabric, self._other(node)
        fabric.break_connections(node.host, other.host)
        fabric.break_connections(other.host, node.host)

    async def _slow_links(self, fault: Fault, node: BrokerNode) -> None:
        fabric = self._cluster.simulation.fabric
        links = []
        for other in self._cluster.nodes.values():
            if other is not node:
                links += [
                    fabric.link(node.host, other.host),
                    fabric.link(other.host, node.host),
                ]
        usual = [link.delay_s for link in links]
        for link in links:
            link.delay_s = (0.02, 0.3)
        await trio.sleep(fault.seconds)
        for link, delay in zip(links, usual, strict=True):
            link.delay_s = delay

    async def _admin_call(self, call: Awaitable[None]) -> None:
        try:
            await call
        except Failed as failed:
            self._cluster.trace.add("faults", f"refused: {failed}")

    async def _swap(self, fault: Fault, node: BrokerNode) -> None:
        """Another order of the same replicas, then the election of the preferred leader."""
        tp = self._random.choice(self._tps)
        truth = self._cluster.rules.partitions.get(tp)
        if truth is None:
            return
        replicas = list(truth.assigned)
        self._random.shuffle(replicas)
        await self._admin_call(self._admin.reassign(tp, replicas))
        await trio.sleep(0.5)
        await self._admin_call(self._admin.elect_preferred(tp))

    async def _reassign(self, fault: Fault, node: BrokerNode) -> None:
        """Other replicas where there are brokers to spare; else fewer, then all again."""
        tp = self._random.choice(self._tps)
        truth = self._cluster.rules.partitions.get(tp)
        if truth is None:
            return
        brokers = sorted(self._cluster.nodes)
        count = min(len(brokers), 3)
        if count == len(brokers) and self._random.random() < 0.5:
            smaller = self._random.sample(brokers, max(2, count - 1))
            await self._admin_call(self._admin.reassign(tp, smaller))
            await trio.sleep(fault.seconds)
        await self._admin_call(self._admin.reassign(tp, self._random.sample(brokers, count)))

    async def _jump_clock(self, fault: Fault, node: BrokerNode) -> None:
        node.host.clock.jump(self._random.choice((-3_600_000, -5_000, 5_000, 86_400_000)))
        node.host.clock.set_drift(self._random.uniform(-0.01, 0.01))

    async def _kill_all(self, fault: Fault, node: BrokerNode) -> None:
        for other in self._cluster.nodes.values():
            self._cluster.kill(other.id)
        await trio.sleep(fault.seconds)
        for other in self._cluster.nodes.values():
            self._cluster.start(other.id)

    async def _power_loss(self, fault: Fault, node: BrokerNode) -> None:
        """Without a flush of every batch only where no other member has to catch up: what
        acks=all promises then (the bounced broker leaves the ISR before it can lead)."""
        cluster = self._cluster
        if not cluster.shape.flush_every_batch and cluster.whole() is not None:
            cluster.trace.add("faults", f"a kill instead: {cluster.whole()}")
            await self._kill(fault, node)
            return
        cluster.power_loss(node.id)
        await trio.sleep(fault.seconds)
        self._cluster.power_on(node.id)
