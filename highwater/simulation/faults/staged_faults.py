"""Faults of several acts: a held or late request, a leadership that goes there and back, a
controller that wakes up.

They wait for the moment at which they hurt (a request of one API, the controller's next write), and
break something at that moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from highwater.kafka import znodes
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.header import api_name
from highwater.simulation import wire_tap
from highwater.simulation.workloads.plain_client import Failed, SimClient

if TYPE_CHECKING:
    from highwater.simulation.cluster import BrokerNode, SimCluster
    from highwater.world.chance import Random

HELD = (
    (wire_tap.LEADER_AND_ISR, 2),
    (wire_tap.STOP_REPLICA, 2),
    (wire_tap.UPDATE_METADATA, 2),
    (wire_tap.FETCH, 2),
    (wire_tap.OFFSETS_FOR_LEADER_EPOCH, 3),
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One entry of the schedule."""

    at: float
    kind: str
    target: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.at:.1f} s: {self.kind} of {self.target} for {self.seconds:.1f} s"


class NothingToBreak(Exception):
    """The fault's target is not there."""


class StagedFaults:
    """The verbs of `Faults` with several acts; `done` counts the faults."""

    def __init__(
        self,
        cluster: SimCluster,
        admin: SimClient,
        tps: list[TopicPartition],
        random: Random,
        done: Counter[str],
    ) -> None:
        self._cluster = cluster
        self._admin = admin
        self._tps = tps
        self._random = random
        self._late = cluster.kernel.random("late requests")
        self.done = done

    async def admin_call(self, call: Awaitable[None]) -> None:
        """Makes an administrative call; a refusal is an answer, too."""
        try:
            await call
        except Failed as failed:
            self._cluster.trace.add("faults", f"refused: {failed}")

    def other(self, node: BrokerNode) -> BrokerNode:
        others = [n for i, n in sorted(self._cluster.nodes.items()) if n is not node]
        return self._random.choice(others)

    async def hold(self, fault: Fault, node: BrokerNode) -> None:
        """Holds the next request of one API that this broker gets or sends, or its answer."""
        api_key = self._random.choices([a for a, _ in HELD], [w for _, w in HELD])[0]
        what = self._random.choice((wire_tap.REQUEST, wire_tap.ANSWER))
        name = node.name

        def wanted(source: str, target: str) -> bool:
            return name in (source, target)

        tap = self._cluster.tap
        hold = tap.hold(api_key, what, fault.seconds, wanted)
        with trio.move_on_after(10):
            while not hold.fired:
                await trio.sleep(0.1)
        tap.release(hold)
        if not hold.fired:
            raise NothingToBreak(f"no {api_name(api_key)} came by")
        self.done[f"hold {api_name(api_key)} {what}"] += 1
        await trio.sleep(fault.seconds)

    async def stale_request(self, fault: Fault, node: BrokerNode) -> None:
        await self._one_stale_request(node, self._random)

    async def _one_stale_request(self, node: BrokerNode, random: Random) -> None:
        """Sends a request as from a replaced controller, or one that does not know of a restart."""
        cluster = self._cluster
        found = cluster.tap.stale_request(node.name, node.services, random)
        if found is None:
            raise NothingToBreak(f"nothing that was sent to {node.name} is stale")
        sent, why = found
        cluster.trace.add("faults", f"{sent}, {why}, comes to {node.name} again")
        life = node.world
        try:
            error = await self._admin.control(node.name, cluster.control_port, sent)
        except Failed as failed:
            raise NothingToBreak(f"{node.name} did not answer: {failed}") from failed
        if error not in wire_tap.STALE and node.world is life:
            cluster.rules.broken("R10", f"{node.name} took {sent}, {why} (error {error})")

    async def reassign(self, tp: TopicPartition, replicas: list[int] | None) -> None:
        """Assigns replicas; None cancels a move."""
        truth = self._cluster.rules.partitions.get(tp)
        if truth is not None:
            self._cluster.requested.move(tp, truth.assigned, replicas)
            self._cluster.requested.cancelled.add(tp)  # this move may replace another one
        await self.admin_call(self._admin.reassign(tp, replicas))

    async def prefer(self, tp: TopicPartition, leader: int) -> None:
        """Makes a broker the preferred leader."""
        truth = self._cluster.rules.partitions.get(tp)
        if truth is not None and leader in truth.assigned:
            await self.reassign(tp, [leader, *(b for b in truth.assigned if b != leader)])

    async def there_and_back(self, fault: Fault, node: BrokerNode) -> None:
        """Moves the leadership to a member that is a little behind, and back.  A third replica has
        the records that are cut off meanwhile, and learns of neither change."""
        cluster, random = self._cluster, self._random
        tp = random.choice(self._tps)
        truth = cluster.rules.partitions.get(tp)
        leader = cluster.leader_of(tp)
        if truth is None or truth.state is None or leader is None:
            raise NothingToBreak(f"{tp} has no leader")
        others = [b for b in truth.state.isr if b != leader and cluster.nodes[b].running]
        if len(others) < 2:
            raise NothingToBreak(f"the ISR of {tp} has only {truth.state.isr}")
        random.shuffle(others)
        first, behind, deaf = (cluster.nodes[b] for b in (leader, *others[:2]))
        tap, lag_s = cluster.tap, cluster.shape.lag_ms / 1000
        # first, because every replica fetches again when it learns of another order
        await self.prefer(tp, behind.id)
        await trio.sleep(0.3)
        hold = tap.hold(
            wire_tap.FETCH,
            wire_tap.ANSWER,
            lag_s * 0.8,
            lambda source, target: (source, target) == (behind.name, first.name),
        )
        await trio.sleep(random.uniform(0.1, 0.5) * lag_s)
        tap.release(hold)
        if random.random() < 0.5:
            cluster.freeze(deaf.id)
        else:
            tap.hold(
                wire_tap.LEADER_AND_ISR,
                wire_tap.REQUEST,
                lag_s * 2,
                lambda _, target: target == deaf.name,
            )
        await self.admin_call(self._admin.elect_preferred(tp))
        await trio.sleep(random.uniform(0.2, 1.5))
        await self.prefer(tp, first.id)
        await self.admin_call(self._admin.elect_preferred(tp))
        await trio.sleep(random.uniform(0.0, 1.0))
        cluster.thaw(deaf.id)

    async def late_write(self, fault: Fault, node: BrokerNode) -> None:
        """Delays a write of the controller to ZooKeeper until the next controller has registered,
        but has not written anything yet."""
        cluster, random = self._cluster, self._random
        found = cluster.controller()
        if found is None or not cluster.nodes[found].running:
            raise NothingToBreak("there is no controller")
        zookeeper, fabric = cluster.simulation.zookeeper, cluster.simulation.fabric
        controller = cluster.nodes[found].host
        victim = self.other(cluster.nodes[found])
        if not victim.running:
            raise NothingToBreak(f"{victim.name} is down")
        fabric.cut(controller, zookeeper.host)
        cluster.kill(victim.id)
        await trio.sleep(random.uniform(0.05, 0.25) * cluster.shape.session_timeout_ms / 1000)
        replaced = trio.Event()

        def wrote(path: str, _: str) -> None:
            if path == znodes.CONTROLLER_EPOCH and not replaced.is_set():
                replaced.set()
                fabric.heal(controller, zookeeper.host)

        zookeeper.on_write.append(wrote)
        if cluster.controller() == found:
            zookeeper.delete(znodes.CONTROLLER)
        with trio.move_on_after(2.0):
            await replaced.wait()
        zookeeper.on_write.remove(wrote)
        fabric.heal(controller, zookeeper.host)
        await trio.sleep(fault.seconds)
        cluster.start(victim.id)

    async def zombie_controller(self, fault: Fault, node: BrokerNode) -> None:
        """Pauses the controller at work, has it replaced, and wakes it up before its session is
        over: it believes that it is still the controller."""
        cluster = self._cluster
        found = cluster.controller()
        if found is None or not cluster.nodes[found].running:
            raise NothingToBreak("there is no controller")
        controller = cluster.nodes[found]
        victim = self.other(controller)
        zookeeper, done = cluster.simulation.zookeeper, trio.Event()

        def wrote(path: str, who: str) -> None:
            if who.startswith(f"{controller.name}.") and path.startswith("/brokers/topics/"):
                done.set()
                zookeeper.on_write.remove(wrote)
                cluster.freeze(controller.id)

        zookeeper.on_write.append(wrote)
        if victim.running and self._random.random() < 0.7:
            cluster.kill(victim.id)
        with trio.move_on_after(2.0):
            await done.wait()
        if not done.is_set():
            zookeeper.on_write.remove(wrote)
            cluster.freeze(controller.id)
        if cluster.controller() == found:
            zookeeper.delete(znodes.CONTROLLER)
        await trio.sleep(self._random.uniform(0.1, 0.6) * cluster.shape.session_timeout_ms / 1000)
        cluster.thaw(controller.id)
        await trio.sleep(fault.seconds)
        cluster.start(victim.id)

    async def late_requests(self) -> None:
        """Sends a stale controller request now and then, until cancelled."""
        while True:
            await trio.sleep(self._late.expovariate(0.5))
            node = self._late.choice([n for _, n in sorted(self._cluster.nodes.items())])
            try:
                await self._one_stale_request(node, self._late)
            except NothingToBreak:
                continue
            self.done["late request"] += 1
