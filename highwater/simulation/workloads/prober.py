"""A client that lists end offsets, and that makes and deletes a topic.

End offsets (C13) must never fall behind the known ones.  The client's topic is made, written to and
deleted again and again, so that the controller moves during such operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from highwater.kafka.types import TopicPartition
from highwater.simulation.workloads.plain_client import Failed, SimClient
from highwater.simulation.workloads.workload import make_batch

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from highwater.simulation.workloads.workload import Workload

_LATEST = -1


class Prober:
    """See the module's docstring."""

    def __init__(self, workload: Workload, client: SimClient) -> None:
        self._workload = workload
        self._client = client
        self._topics = 0

    async def run(self, tps: list[TopicPartition]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._end_offsets, tps)
            nursery.start_soon(self._topics_come_and_go)

    async def _try(self, call: Awaitable[object], tp: TopicPartition | None = None) -> bool:
        try:
            await call
        except Failed as failed:
            self._workload.history.errors[failed.name] += 1
            if tp is not None:
                self._client.forget(tp)
            return False
        return True

    async def _end_offsets(self, tps: list[TopicPartition]) -> None:
        while True:
            await self._client.pause(0.1, 0.6)
            tp = self._client.random.choice(tps)
            if await self._try(self._workload.list_offset(self._client, tp, _LATEST), tp):
                self._workload.history.count["end offsets"] += 1

    async def _topics_come_and_go(self) -> None:
        count = self._workload.history.count
        while True:
            await self._client.pause(2.0, 8.0)
            self._topics += 1
            name = f"temporary-{self._topics}"
            tp = TopicPartition(name, 0)
            if not await self._try(self._client.create_topic(name, 2, 2)):
                await self._try(self._client.delete_topic(name))
                continue
            count["topics created"] += 1
            await self._try(self._client.produce(tp, make_batch([b"x"], None, 0), 1), tp)
            await self._client.pause(0.1, 2.0)
            for _ in range(20):
                if await self._try(self._client.delete_topic(name)):
                    count["topics deleted"] += 1
                    break
                await self._client.pause(0.2, 1.0)
