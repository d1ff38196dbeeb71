"""The two clusters that the rows share, and the turns in which they are measured.

Both sides stay up, with Kafka's own defaults (the profile `kafka`); an idle cluster costs the other
one little.  Before a row is measured it is repeated on both sides until neither gets faster: the
JVM compiles for a while.  Then come the pairs: A B, A B, and so on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import trio

from highwater.bench.figures.rows import Line, Samples
from highwater.bench.figures.sides import Sides
from highwater.bench.figures.warm_memory import WarmMemory, written_back_mb
from highwater.bench.loads.bench_topics import create_topic, delete_topic, until_gone
from highwater.cluster.processes.process_cluster import ProcessCluster

FLAT = 1.1
MUCH_MB = 50
"""From here on it matters where the memory for a load comes from (`warm_memory`)."""
_PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured; megabytes and seconds are those of one sample."""

    pairs: int = 5
    warm: int = 8
    """The most samples before the pairs."""
    megabytes: float = 300
    seconds: float = 10
    writes: int = 3000
    partitions: int = 1000
    kills: int = 5
    their_kills: int = 5
    compacted: int = 10_000_000
    idle_s: float = 20
    restart_mb: float = 10_737
    brokers: int = 3
    security: str = "plaintext"


Once = Callable[[Plan, ProcessCluster, str], Awaitable[Sequence[float]]]
"""Measures once, on one cluster, by a topic of its own; gives a figure for each line."""
QUICK = Plan(2, 1, 2, 2, 100, 20, 1, 1, 100_000, 2, 20)
DEFAULT = Plan()
FULL = Plan(kills=30, their_kills=30)


def flat(rates: Sequence[float]) -> bool:
    """Whether the last two samples are hardly above the best before them.

    >>> flat([10, 20, 30]), flat([10, 20, 21, 20])
    (False, True)
    """
    return len(rates) > 2 and max(rates[-2:]) <= FLAT * max(rates[:-2])


class Turns(Sides):
    """The sides and their clusters, which start with the first row that needs them."""

    def __init__(self, plan: Plan, sides: Sides, stack: AsyncExitStack) -> None:
        super().__init__(sides.sides, sides.progress)
        self.plan = plan
        self._stack = stack
        self._clusters: list[ProcessCluster] = []
        self._topics = 0
        self._warm: WarmMemory | None = None

    async def clusters(self) -> list[ProcessCluster]:
        """The clusters that stay up, Highwater's first."""
        if not self._clusters:
            for side in self.sides:
                self.progress(f"{side.name}: starts")
                plan = self.plan
                cluster = side.cluster(plan.brokers, _PROPERTIES, security=plan.security)
                self._clusters.append(await self._stack.enter_async_context(cluster))
            if self.plan.megabytes >= MUCH_MB:
                warm = WarmMemory(self.sides[0].folder, self.progress)
                self._warm = self._stack.enter_context(warm)
        return self._clusters

    async def stop(self) -> None:
        """Ends the clusters, for a row that has the machine for itself."""
        self._clusters, self._warm = [], None
        await self._stack.aclose()

    async def in_turn(self, lines: Sequence[Line], once: Once, partitions: int = 3) -> Samples:
        """Warms both sides up, until the first line's figure gets no better, and gives the pairs'
        samples."""
        clusters = await self.clusters()
        speeds: list[list[float]] = [[] for _ in clusters]
        for number in range(self.plan.warm):
            if all(map(flat, speeds)):
                break
            self.progress(f"warm-up {number + 1}")
            for cluster, seen in zip(clusters, speeds, strict=True):
                first, *_ = await self._once(once, cluster, partitions)
                seen.append(first if lines[0].more_is_better else 1 / first)
        samples = Samples()
        for number in range(self.plan.pairs):
            said = []
            for index, cluster in enumerate(clusters):
                found = await self._once(once, cluster, partitions)
                for line, value in zip(lines, found, strict=True):
                    samples.add(line.name, index, value)
                said.append(", ".join(f"{value:.2f}" for value in found))
            self.progress(f"pair {number + 1} of {self.plan.pairs}: {'; '.join(said)}")
        return samples

    async def once_on_last(self, once: Once) -> Sequence[float]:
        """A sample of the last side alone, which is Apache Kafka where there are two."""
        return await self._once(once, (await self.clusters())[-1], 3)

    async def _once(self, once: Once, cluster: ProcessCluster, partitions: int) -> Sequence[float]:
        self._topics += 1
        topic, replicas = f"bench-{self._topics}", min(3, self.plan.brokers)
        config = {"min.insync.replicas": str(min(2, replicas)), "file.delete.delay.ms": "1000"}
        where = cluster.direct_bootstrap
        if self._warm is not None:
            await trio.to_thread.run_sync(self._warm.fill)
        await create_topic(where, topic, partitions, replicas, config)
        before = written_back_mb()
        try:
            return await once(self.plan, cluster, topic)
        finally:
            if (written := written_back_mb() - before) > MUCH_MB:
                self.progress(f"{written:.0f} MB went to the disk meanwhile")
            await delete_topic(where, topic)
            # its data would fill the memory that the other side's page cache needs
            await until_gone(cluster.folder, topic)


def broker_pids(cluster: ProcessCluster) -> list[int]:
    return [cluster.pid(f"broker-{number}") for number in cluster.brokers]
