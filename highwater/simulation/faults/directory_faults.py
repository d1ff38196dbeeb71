"""Faults of brokers with two log directories: replicas move between them, and one of them fails.

A broker that meets an error in one directory takes it offline and goes on with the other (KIP-112).
Moves of replicas are requested from the broker that has them (KIP-113).  A directory that failed is
used again after a restart, which is what an operator would do.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import trio

from highwater.kafka.errors import ApiError
from highwater.kafka.types import NO_BROKER
from highwater.simulation.cluster import DATA, SPARE
from highwater.simulation.faults.staged_faults import Fault, NothingToBreak

if TYPE_CHECKING:
    from highwater.kafka.types import TopicPartition
    from highwater.simulation.cluster import BrokerNode, SimCluster
    from highwater.world.chance import Random
    from highwater.world.sim.disk import Met

OWNER = "/meta.properties"
MOVE, FAIL = "move a replica", "failing directory"
EVERY_S = {MOVE: 1.0, FAIL: 10.0}
LED_ELSEWHERE_S = 3.0
_STEP_S = 0.1
PATIENCE_S = 8.0
"""How long to wait for a broker to touch the directory that fails."""
OFFLINE_S = 3.0
"""How long a broker that met an error may take to give the directory up; it needs nothing from
ZooKeeper for that."""


def directory_faults(random: Random, seconds: float) -> list[Fault]:
    """The faults that `sim --log-dirs` adds to those of every run."""
    planned = []
    for kind, every in EVERY_S.items():
        at = random.expovariate(1 / every)
        while at < seconds * 0.9:
            target = random.choice(("leader", "any"))
            planned.append(Fault(round(at, 3), kind, target, round(random.uniform(0.2, 6.0), 3)))
            at += random.expovariate(1 / every)
    return planned


def has_lost_a_directory(node: BrokerNode) -> bool:
    return node.running and node.services is not None and bool(node.services.logs.offline_dirs)


def has_lost(node: BrokerNode, folder: str) -> bool:
    return node.services is not None and folder in node.services.logs.offline_dirs


def folder_of(path: str) -> str:
    """The log directory that a path is in."""
    return SPARE if path.startswith(SPARE) else DATA


async def goes_offline(cluster: SimCluster, node: BrokerNode, met: Met, why: str) -> None:
    """Checks R13 for a broker that met an error: in that life it takes the directory offline, or
    ends."""
    folder, spent = folder_of(met.path), 0.0

    def goes_on() -> bool:
        return met.process.alive and not has_lost(node, folder)

    while goes_on() and spent < OFFLINE_S:
        await trio.sleep(_STEP_S)
        if node.world is not None and not node.world.process.frozen:
            spent += _STEP_S
    if goes_on():
        cluster.rules.broken("R13", f"{node.name} goes on with {folder}, though {why}")


def met_since(node: BrokerNode, since: int, folder: str = "/", number: int = 0) -> Met | None:
    """An error that a broker has met in this directory after the first `since` ones; if possible,
    one of its present life.

    A start reads meta.properties twice, and the first reading may fail.
    """
    found = [m for m in node.host.disk.met[since:] if number in (0, m.number)]
    found = [m for m in found if m.path.startswith(folder) and not m.path.endswith(OWNER)]
    return max(found, key=lambda m: m.process.alive, default=None)


def start_anew(cluster: SimCluster, node: BrokerNode) -> None:
    """Restarts a broker that has lost a directory, if its disk is sound: without a restart it would
    never use that directory again."""
    if has_lost_a_directory(node) and not node.host.disk.broken:
        cluster.kill(node.id)
        cluster.start(node.id)


class DirectoryFaults:
    """The verbs of `Faults` for log directories."""

    def __init__(
        self,
        cluster: SimCluster,
        tps: Sequence[TopicPartition],
        random: Random,
        alone: Callable[[], bool],
    ) -> None:
        """`alone`: returns whether no other fault is active."""
        self._cluster = cluster
        self._alone = alone
        self._tps = tps
        self._random = random

    async def move(self, fault: Fault, node: BrokerNode) -> None:
        tp, services = self._random.choice(self._tps), node.services
        found = services.logs.logs.get(tp) if services is not None and node.running else None
        if services is None or found is None:
            raise NothingToBreak(f"{node.name} has no {tp} that could move")
        to = DATA if found.dir.startswith(SPARE) else SPARE
        try:
            services.replicas.moves.alter(tp, to)
        except ApiError as e:
            raise NothingToBreak(f"{node.name} does not move {tp}: {e}") from None

    async def fail(self, fault: Fault, node: BrokerNode) -> None:
        disk = node.host.disk
        if disk.broken or not node.running or node.world is None:
            raise NothingToBreak(f"{node.name} is down, or its disk fails already")
        folder, life = self._random.choice((DATA, SPARE)), node.world.process
        if has_lost(node, folder):
            raise NothingToBreak(f"{node.name} has lost {folder} already")
        there, since = self._replicas_in(folder, node), len(disk.met)
        disk.broken[folder] = errno.EIO
        with trio.move_on_after(PATIENCE_S):
            while life.alive and not has_lost(node, folder):
                await trio.sleep(0.05)
        met = met_since(node, since, folder)
        if met is not None:
            why = f"it met an error of {met.path}"
            await goes_offline(self._cluster, node, met, why)
        await self._led_elsewhere(node, there, fault.seconds, folder)
        disk.broken.pop(folder, None)
        start_anew(self._cluster, node)
        if met is None:
            raise NothingToBreak(f"{node.name} did not touch {folder}")

    def _replicas_in(self, folder: str, node: BrokerNode) -> list[TopicPartition]:
        logs = node.services.logs.logs if node.services is not None else {}
        return [tp for tp in self._tps if tp in logs and logs[tp].dir.startswith(folder)]

    async def _led_elsewhere(
        self, node: BrokerNode, there: Sequence[TopicPartition], seconds: float, folder: str
    ) -> None:
        """Waits for `seconds`, and checks R13 for the controller while no other fault is active."""
        stuck, end = 0.0, trio.current_time() + seconds
        while trio.current_time() < end:
            await trio.sleep(_STEP_S)
            led = [tp for tp in there if self._could_be_led_elsewhere(node, tp)]
            calm = self._alone() and has_lost(node, folder) and self._cluster.controller()
            stuck = stuck + _STEP_S if led and calm else 0.0
            if stuck > LED_ELSEWHERE_S:
                what = f"nobody leads {led[0]}, whose directory {node.name} has lost"
                self._cluster.rules.broken("R13", f"{what}, after {stuck:.1f} s without a fault")
                return

    def _could_be_led_elsewhere(self, node: BrokerNode, tp: TopicPartition) -> bool:
        truth, nodes = self._cluster.rules.partitions.get(tp), self._cluster.nodes
        if truth is None or truth.state is None or truth.state.leader not in (node.id, NO_BROKER):
            return False
        if tp.topic in self._cluster.rules.deleting:
            return False
        return any(b != node.id and nodes[b].ready.is_set() for b in truth.state.isr if b in nodes)
