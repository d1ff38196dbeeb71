"""The faults of a simulated run: kind, time, target and length, all taken from the seed.

A fault is planned only by kind and time; its target is found when it fires ("leader", "controller",
"any"), and it ends without help.  `heal` ends all faults that are left.

Every fault must be seen to have happened: a verb looks at the world for its effect (the process is
gone, no byte passes, the session does not exist).  A fault without an effect breaks L4, because a
run with faults that never happened proves nothing.  Where there is nothing to break (the broker is
down already), the fault counts as skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio

from highwater.kafka.types import TopicPartition
from highwater.simulation.faults import disk_faults, joints
from highwater.simulation.faults.directory_faults import (
    FAIL,
    MOVE,
    DirectoryFaults,
    has_lost_a_directory,
)
from highwater.simulation.faults.joint_players import Joints
from highwater.simulation.faults.joint_writer import Writers
from highwater.simulation.faults.staged_faults import Fault, NothingToBreak, StagedFaults
from highwater.simulation.workloads.full_channel import FullChannel
from highwater.simulation.workloads.plain_client import SimClient

if TYPE_CHECKING:
    from highwater.simulation.cluster import BrokerNode, SimCluster
    from highwater.world.chance import Random
    from highwater.world.sim import Host


TARGETS = ("leader", "leader", "controller", "any")

WEIGHTS = {
    "kill": 4, "bounce": 3, "stop": 2, "pause": 3, "partition": 3, "one way": 3, "isolate": 2,
    "cut from zookeeper": 2, "expire session": 2, "drop zookeeper connections": 1,
    "slow zookeeper": 1, "reset connections": 2, "slow links": 1, "swap leader": 3, "reassign": 2,
    "jump clock": 1, "kill all": 1, "power loss": 2, "hold": 4, "stale request": 2,
    "there and back": 3, "zombie controller": 2, "late write": 3, "reset clients": 2,
    "full disk": 1, "failing disk": 1, "full channel": 2,
}  # fmt: skip
CARELESS_ONE_IN = 8
"""In one of this many seeds power is lost at any time, on several brokers at once.  Then a loss is
expected if batches are not flushed; it is counted separately, and must occur over many seeds."""


LONG_STALL_S = 1.0
"""A broker that stands still for longer may have missed what it writes every second."""


def random_length(random: Random) -> float:
    """A number of seconds: mostly shorter than a session, sometimes longer."""
    return round(random.choice((0.2, 1.0, 3.0, 9.0)) * random.uniform(0.5, 1.5), 3)


def schedule(
    random: Random, seconds: float, power_loss: bool, disk_errors: bool = False
) -> list[Fault]:
    """At least three faults, one every few seconds; some overlap."""
    weights = dict(WEIGHTS)
    if power_loss:
        weights["power loss"] = 14
    if disk_errors:
        weights |= disk_faults.WEIGHTS
    kinds, chances = list(weights), list(weights.values())
    planned = [
        Fault(
            round(random.uniform(0, seconds * 0.9), 3),
            random.choices(kinds, chances)[0],
            random.choice(TARGETS),
            random_length(random),
        )
        for _ in range(random.randint(3, 3 + int(seconds / 4)))
    ]
    return sorted(planned, key=lambda fault: fault.at)


def stalls(random: Random, seconds: float) -> list[Fault]:
    """Faults that pause the whole machine every few seconds: mostly for less than a heartbeat
    interval, sometimes for longer than a session."""
    planned = []
    at = random.expovariate(1 / 2.5)
    while at < seconds * 0.9:
        short = random.random() < 0.9
        lasts = random.uniform(0.05, 0.4) if short else random.uniform(0.6, 7.0)
        planned.append(Fault(round(at, 3), "stand still", "any", round(lasts, 3)))
        at += lasts + random.expovariate(1 / 2.5)
    return planned


class Faults:
    """Carries out a schedule."""

    def __init__(
        self,
        cluster: SimCluster,
        admin: SimClient,
        tps: list[TopicPartition],
        random: Random,
        writers: Writers | None = None,
    ) -> None:
        """`writers`: make the producers for joints that write, if the run has any."""
        self._cluster = cluster
        self._admin = admin
        self._tps = tps
        self._random = random
        self._careless = cluster.kernel.random("careless").randrange(CARELESS_ONE_IN) == 0
        self.skipped: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.pairs: Counter[str] = Counter()
        self._active: dict[object, str] = {}
        """The faults that are active."""
        cluster.rules.lateness.under_way = lambda: bool(self._active)
        self._staged = StagedFaults(cluster, admin, tps, random, self.done)
        self.late_requests = self._staged.late_requests
        self._channel = FullChannel(cluster, tps[0].topic)
        disks = disk_faults.DiskFaults(cluster, random, self._power_loss, self.done)
        self._verbs: dict[str, Callable[[Fault, BrokerNode], Awaitable[None]]] = {
            "kill": self._kill, "bounce": self._bounce, "stop": self._stop, "pause": self._pause,
            "partition": self._partition, "one way": self._one_way, "isolate": self._isolate,
            "cut from zookeeper": self._cut_zookeeper, "expire session": self._expire,
            "drop zookeeper connections": self._drop_zookeeper,
            "slow zookeeper": self._slow_zookeeper, "reset connections": self._reset,
            "slow links": self._slow_links, "swap leader": self._swap, "reassign": self._reassign,
            "jump clock": self._jump_clock, "kill all": self._kill_all,
            "power loss": self._power_loss, "hold": self._staged.hold,
            "stale request": self._staged.stale_request,
            "there and back": self._staged.there_and_back, "late write": self._staged.late_write,
            "zombie controller": self._staged.zombie_controller,
            "reset clients": self._reset_clients, "full disk": disks.full_disk,
            "failing disk": disks.failing_disk, "failing call": disks.failing_call,
            "power loss in a flush": disks.power_loss_in_a_flush,
            "torn file": disks.torn_file,
            "full channel": self._full_channel,
            "stand still": self._stand_still,
        }  # fmt: skip
        directories = DirectoryFaults(cluster, tps, random, lambda: len(self._active) == 1)
        self._verbs |= {MOVE: directories.move, FAIL: directories.fail}
        players = Joints(cluster, admin, tps, self._staged, writers)
        self._verbs |= dict.fromkeys(sorted(joints.KINDS), players.play)

    def under_way(self) -> list[str]:
        """The kinds of the active faults."""
        return list(dict.fromkeys(self._active.values()))

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
        token = object()
        others = sorted(set(self._active.values()))
        self._active[token] = fault.kind
        lateness = self._cluster.rules.lateness
        lateness.disturb()
        try:
            await self._verbs[fault.kind](fault, node)
        except NothingToBreak as nothing:
            self._cluster.trace.add("faults", f"no {fault.kind}: {nothing}")
            self.skipped[fault.kind] += 1
        else:
            self.done[fault.kind] += 1
            for other in others:
                self.pairs[" + ".join(sorted((other, fault.kind)))] += 1
        finally:
            del self._active[token]
            lateness.disturb()

    def _seen(self, effect: bool, what: str) -> None:
        """Records whether the fault's effect was seen in the world."""
        if not effect:
            self._cluster.rules.broken("L4", f"a fault had no visible effect: {what}")

    def _kill_now(self, node: BrokerNode) -> None:
        if not node.running:
            raise NothingToBreak(f"{node.name} is down")
        self._cluster.kill(node.id)
        self._seen(not node.running, f"{node.name} lives on after a kill")

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

    def heal(self) -> None:
        """Ends every fault."""
        cluster = self._cluster
        cluster.rules.lateness.disturb()
        cluster.simulation.fabric.heal_all()
        cluster.simulation.zookeeper.slow_s = 0.0
        for node in cluster.nodes.values():
            cluster.thaw(node.id)
            node.host.disk.capacity = None
            node.host.disk.broken.clear()
            node.host.disk.failing = node.host.disk.next_sync = None
            if not node.host.up:
                cluster.power_on(node.id)
            if has_lost_a_directory(node):
                cluster.kill(node.id)  # the caller of `heal` starts all brokers that are down

    # -- verbs ----------------------------------------------------------------------------------

    async def _kill(self, fault: Fault, node: BrokerNode) -> None:
        self._kill_now(node)
        await trio.sleep(fault.seconds)
        self._cluster.start(node.id)

    async def _bounce(self, fault: Fault, node: BrokerNode) -> None:
        self._kill_now(node)
        await trio.sleep(0.01)
        self._cluster.start(node.id)

    async def _stop(self, fault: Fault, node: BrokerNode) -> None:
        if not node.running:
            raise NothingToBreak(f"{node.name} is down")
        self._cluster.stop(node.id)
        process = node.world.process if node.world else None
        if process is not None:
            with trio.move_on_after(30):
                await process.ended.wait()
        self._cluster.kill(node.id)
        self._seen(not node.running, f"{node.name} did not stop")
        await trio.sleep(fault.seconds)
        self._cluster.start(node.id)

    async def _pause(self, fault: Fault, node: BrokerNode) -> None:
        if not node.running or node.world is None:
            raise NothingToBreak(f"{node.name} is down")
        self._cluster.freeze(node.id)
        self._seen(node.world.process.frozen, f"{node.name} runs on in its pause")
        await trio.sleep(fault.seconds)
        self._cluster.thaw(node.id)

    async def _cut(self, pairs: list[tuple[Host, Host]], seconds: float) -> None:
        fabric = self._cluster.simulation.fabric
        for source, target in pairs:
            fabric.cut(source, target)
            self._seen(not fabric.passable(source, target), f"{source} still reaches {target}")
        await trio.sleep(seconds)
        for source, target in pairs:
            fabric.heal(source, target)

    async def _partition(self, fault: Fault, node: BrokerNode) -> None:
        a, b = node.host, self._staged.other(node).host
        await self._cut([(a, b), (b, a)], fault.seconds)

    async def _one_way(self, fault: Fault, node: BrokerNode) -> None:
        a, b = node.host, self._staged.other(node).host
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
        if services is None or services.session is None:
            raise NothingToBreak(f"{node.name} has no session")
        zookeeper, session = self._cluster.simulation.zookeeper, services.session.session_id
        zookeeper.expire(session)
        self._seen(session not in zookeeper.ensemble.sessions, f"the session of {node.name} lives")

    async def _drop_zookeeper(self, fault: Fault, node: BrokerNode) -> None:
        self._cluster.simulation.zookeeper.break_connections()

    async def _slow_zookeeper(self, fault: Fault, node: BrokerNode) -> None:
        service = self._cluster.simulation.zookeeper
        service.slow_s = 0.3
        await trio.sleep(fault.seconds)
        service.slow_s = 0.0

    async def _reset(self, fault: Fault, node: BrokerNode) -> None:
        fabric, other = self._cluster.simulation.fabric, self._staged.other(node)
        pairs = [(node.host, other.host), (other.host, node.host)]
        if not sum(fabric.break_connections(a, b) for a, b in pairs):
            raise NothingToBreak(f"{node.name} and {other.name} have no connection")

    async def _reset_clients(self, fault: Fault, node: BrokerNode) -> None:
        """Resets every client connection to one broker: sent requests have an unknown outcome."""
        fabric = self._cluster.simulation.fabric
        brokers = {other.name for other in self._cluster.nodes.values()}
        clients = [h for n, h in sorted(fabric.hosts.items()) if n not in brokers]
        clients = [h for h in clients if h is not self._cluster.simulation.zookeeper.host]
        if not sum(fabric.break_connections(host, node.host) for host in clients):
            raise NothingToBreak(f"no client is connected to {node.name}")

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

    async def _swap(self, fault: Fault, node: BrokerNode) -> None:
        """Reorders the replicas, then elects the preferred leader."""
        tp = self._random.choice(self._tps)
        truth = self._cluster.rules.partitions.get(tp)
        if truth is None:
            return
        replicas = list(truth.assigned)
        self._random.shuffle(replicas)
        await self._staged.reassign(tp, replicas)
        await trio.sleep(0.5)
        await self._staged.admin_call(self._admin.elect_preferred(tp))

    async def _reassign(self, fault: Fault, node: BrokerNode) -> None:
        """Assigns other replicas if there are spare brokers; else fewer, and then all again."""
        tp = self._random.choice(self._tps)
        truth = self._cluster.rules.partitions.get(tp)
        if truth is None:
            return
        brokers = sorted(self._cluster.nodes)
        count = min(len(brokers), 3)
        if count == len(brokers) and self._random.random() < 0.5:
            smaller = self._random.sample(brokers, max(2, count - 1))
            await self._staged.reassign(tp, smaller)
            await trio.sleep(fault.seconds)
        await self._staged.reassign(tp, self._random.sample(brokers, count))

    async def _jump_clock(self, fault: Fault, node: BrokerNode) -> None:
        before = node.host.clock.wall_ms()
        node.host.clock.jump(self._random.choice((-3_600_000, -5_000, 5_000, 86_400_000)))
        self._seen(abs(node.host.clock.wall_ms() - before) > 1000, "the clock did not jump")
        node.host.clock.set_drift(self._random.uniform(-0.01, 0.01))

    async def _kill_all(self, fault: Fault, node: BrokerNode) -> None:
        for other in self._cluster.nodes.values():
            self._cluster.kill(other.id)
        await trio.sleep(fault.seconds)
        for other in self._cluster.nodes.values():
            self._cluster.start(other.id)

    async def _power_loss(self, fault: Fault, node: BrokerNode) -> None:
        """Takes the power only if every batch is flushed or no other member must catch up: then
        acks=all promises that nothing is lost (the bounced broker leaves the ISR before it can
        lead).  A careless seed takes it at any time."""
        cluster = self._cluster
        if not node.host.up:
            raise NothingToBreak(f"{node.name} has no power")
        safe = cluster.shape.flush_every_batch or cluster.whole() is None
        if not safe and not self._careless:
            raise NothingToBreak(f"beyond what acks=all promises: {cluster.whole()}")
        victims = [node]
        if self._careless and not cluster.shape.flush_every_batch and self._random.random() < 0.5:
            victims.append(self._staged.other(node))
        victims = [v for v in victims if v.host.up]
        for victim in victims:
            cluster.power_loss(victim.id)
            self._seen(not victim.host.up and not victim.running, f"{victim.name} has power")
        await trio.sleep(fault.seconds)
        for victim in victims:
            cluster.power_on(victim.id)

    async def _stand_still(self, fault: Fault, node: BrokerNode) -> None:
        """Stops brokers, ZooKeeper and clients at once, like a virtual machine stopped by its host:
        time passes, and then everything due by then is due at once."""
        timeline = self._cluster.kernel.timeline
        began = timeline.now
        timeline.advance(began + fault.seconds)
        for other in self._cluster.nodes.values() if fault.seconds >= LONG_STALL_S else ():
            other.disturbed = True
        self._seen(timeline.now >= began + fault.seconds, "time went on")

    async def _full_channel(self, fault: Fault, node: BrokerNode) -> None:
        why = await self._channel.fill(node)
        if why is not None:
            raise NothingToBreak(why)
