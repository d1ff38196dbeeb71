"""The replica fetchers of one broker, and the partitions that each of them fetches.

For each leader broker there are num.replica.fetchers fetchers (`fetcher`).
Source: AbstractFetcherManager, ReplicaFetcherManager.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from zlib import crc32

import trio

from highwater.base.event_loop import in_turns
from highwater.broker.replica.fetcher import Address, ReplicaFetcher
from highwater.kafka.types import TopicPartition

if TYPE_CHECKING:
    from highwater.broker.replica.replica_manager import ReplicaManager

AT_ONCE = 100
"""The number of partitions of a LeaderAndIsr assigned before other tasks run."""


class FetcherManager:
    """Assigns partitions to fetchers by leader; a partition whose leader has no address waits for
    the next LeaderAndIsr.
    """

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._owner: dict[TopicPartition, ReplicaFetcher] = {}
        self._nursery: trio.Nursery | None = None

    @property
    def count(self) -> int:
        return len(self._fetchers)

    def at_work(self) -> list[ReplicaFetcher]:
        """Fetchers that have partitions."""
        return [fetcher for fetcher in self._fetchers.values() if fetcher.states]

    def follow(self, partitions: dict[TopicPartition, Address | None]) -> None:
        """Starts fetching; each partition's leader and epoch are read from the partition."""
        for tp, address in partitions.items():
            partition = self._manager.partitions.get(tp)
            if partition is None or address is None:
                continue
            number = crc32(str(tp).encode()) % self._manager.config.num_replica_fetchers
            key = (int(partition.leader), number)
            fetcher = self._fetchers.get(key)
            if fetcher is None:
                fetcher = self._fetchers[key] = ReplicaFetcher(self._manager, *key, address)
                if self._nursery is not None:
                    self._nursery.start_soon(fetcher.run)
            try:
                fetcher.add(partition, address)
            except OSError as e:
                self._manager.disk_failed(partition, e)
            else:
                self._owner[tp] = fetcher

    async def follow_all(self, partitions: dict[TopicPartition, Address | None]) -> None:
        """Like `follow`, for a LeaderAndIsr, which may name thousands."""
        async for tp, address in in_turns(partitions.items(), AT_ONCE):
            self.follow({tp: address})

    def resize(self) -> None:
        """Applies num.replica.fetchers: every partition goes to the fetcher with its new number."""
        addresses: dict[TopicPartition, Address | None] = {
            tp: fetcher.address for tp, fetcher in self._owner.items()
        }
        states = {tp: fetcher.states.get(tp) for tp, fetcher in self._owner.items()}
        self.stop(addresses)
        self.follow(addresses)
        for tp, before in states.items():
            owner = self._owner.get(tp)
            now = None if owner is None else owner.states.get(tp)
            if before is not None and now is not None:
                now.in_sync = before.in_sync  # else a throttle would take it out of the ISR

    def stop(self, tps: Iterable[TopicPartition]) -> None:
        """Stops fetching: from here on no answer changes these logs."""
        for tp in tps:
            fetcher = self._owner.pop(tp, None)
            if fetcher is not None:
                fetcher.remove(tp)

    def look_at(self, tp: TopicPartition) -> None:
        """Makes it due: its next fetch may have something new to say about it."""
        fetcher = self._owner.get(tp)
        if fetcher is not None:
            fetcher.look_at(tp)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for fetcher in self._fetchers.values():
                nursery.start_soon(fetcher.run)
            task_status.started()
            await trio.sleep_forever()
