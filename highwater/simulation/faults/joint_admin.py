"""The administrator's calls of joints; each is noted, so that the checks allow for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from highwater.simulation.faults.staged_faults import NothingToBreak

if TYPE_CHECKING:
    from highwater.kafka.types import TopicPartition
    from highwater.simulation.cluster import SimCluster
    from highwater.simulation.faults.staged_faults import StagedFaults
    from highwater.simulation.workloads.plain_client import SimClient
    from highwater.world.chance import Random

MOST_PARTITIONS = 10
Call = Callable[[], Awaitable[None]]


class JointAdmin:
    """Each function but `elect` returns a call that must still be made."""

    def __init__(self, cluster: SimCluster, admin: SimClient, staged: StagedFaults) -> None:
        self._cluster = cluster
        self._admin = admin
        self._staged = staged

    async def elect(self, tp: TopicPartition) -> None:
        await self._staged.admin_call(self._admin.elect_preferred(tp))

    def move(self, tp: TopicPartition, target: list[int] | None) -> Call:
        """Moves the partition to these brokers; None cancels the present move."""
        return partial(self._staged.reassign, tp, target)

    def trim(self, tp: TopicPartition, random: Random) -> Call:
        """Deletes records, in half of the cases up to the HW, else up to some offset below it."""
        truth, deletions = self._cluster.rules.partitions[tp], self._cluster.requested.deletions
        first = deletions[tp]
        if truth.end <= first:
            raise NothingToBreak(f"all of {tp} has been deleted")
        offset = truth.end if random.random() < 0.5 else random.randint(first + 1, truth.end)
        deletions[tp] = offset
        self._cluster.rules.shortened.add(tp.topic)
        return partial(self._trim, tp, offset)

    async def _trim(self, tp: TopicPartition, offset: int) -> None:
        self._admin.forget(tp)

        async def trim() -> None:
            await self._admin.delete_records(tp, offset)

        await self._staged.admin_call(trim())

    def grow(self, topic: str) -> Call:
        there = sum(tp.topic == topic for tp in self._cluster.rules.partitions)
        if there >= MOST_PARTITIONS:
            raise NothingToBreak(f"{topic} has {there} partitions already")
        return partial(self._grow, topic, there + 1)

    async def _grow(self, topic: str, partitions: int) -> None:
        async def grow() -> None:
            await self._admin.grow_topic(topic, partitions)
            self._cluster.requested.grown(topic, partitions)

        await self._staged.admin_call(grow())
