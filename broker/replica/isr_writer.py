"""Writes ISR changes to ZooKeeper, under the version that the leader knew, and notifies the
controller.

One attempt can end in three ways.  It succeeded: the partition commits it.  The version was wrong:
another write came before, either an earlier attempt whose answer was lost (then the znode holds
exactly what was to be written, one version on) or the controller's (then the change is dropped).
The outcome is unknown (the connection was lost): it is tried again until one of the first two is
known; meanwhile the partition counts both ISRs.

/isr_change_notification carries the partitions whose ISR changed, so that the controller can spread
the new state.  The first change after a quiet time is told almost at once, later ones in batches,
at most one every NOTIFY_EVERY_S.  (Kafka waits for 5 s without changes, 60 s at most; its brokers'
Metadata is that much behind.)
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

import trio

from highwater.broker.replica.partition import IsrChange, Partition
from highwater.kafka import znodes
from highwater.kafka.types import BrokerId, TopicPartition, ZkVersion
from highwater.world.api import (
    BadVersion,
    ConnectionLoss,
    NoNode,
    SessionExpired,
    ZkError,
    ZooKeeper,
)

log = logging.getLogger(__name__)

IN_FLIGHT = 10
RETRY_S = 0.1
NOTIFY_LINGER_S, NOTIFY_EVERY_S = 0.05, 2.5


class IsrWriter:
    """A queue of at most one change a partition (`Isr` allows no more), and IN_FLIGHT writers."""

    def __init__(
        self,
        partition: Callable[[TopicPartition], Partition | None],
        settled: Callable[[IsrChange, ZkVersion | None], None],
        zk: Callable[[], ZooKeeper | None],
    ) -> None:
        """`settled` is told the version at which a change stands, or None if it never will."""
        self._partition = partition
        self._settled = settled
        self._zk = zk
        self._queue: deque[IsrChange] = deque()
        self._wake = trio.Event()
        self._changed: dict[TopicPartition, None] = {}
        self._news = trio.Event()

    def submit(self, change: IsrChange) -> None:
        self._queue.append(change)
        self._wake.set()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._notify)
            limit = trio.CapacityLimiter(IN_FLIGHT)
            while True:
                while self._queue:
                    await limit.acquire_on_behalf_of(change := self._queue.popleft())
                    nursery.start_soon(self._settle, change, limit)
                self._wake = trio.Event()
                await self._wake.wait()

    async def _settle(self, change: IsrChange, limit: trio.CapacityLimiter) -> None:
        try:
            while self._wanted(change):
                zk = self._zk()
                if zk is not None:
                    try:
                        settled = await self._write(zk, change)
                    except (ConnectionLoss, SessionExpired):
                        pass
                    except ZkError as e:
                        log.error("%s: ISR could not be written: %s", change.tp, e)
                        self._settled(change, None)
                        return
                    else:
                        self._settled(change, settled)
                        if settled is not None:
                            self._note(change.tp)
                        return
                await trio.sleep(RETRY_S)
        finally:
            limit.release_on_behalf_of(change)

    def _wanted(self, change: IsrChange) -> bool:
        partition = self._partition(change.tp)
        return (
            partition is not None
            and partition.is_leader
            and partition.leader_epoch == change.leader_epoch
            and partition.isr.pending == change.isr
        )

    async def _write(self, zk: ZooKeeper, change: IsrChange) -> ZkVersion | None:
        """The version at which the change stands, or None if something newer does."""
        path = znodes.state_path(change.tp)
        state = znodes.PartitionState(
            change.controller_epoch,
            change.leader,
            change.leader_epoch,
            tuple(BrokerId(b) for b in change.isr),
        )
        data = znodes.encode_partition_state(state)
        try:
            stat = await zk.set(path, data, change.zk_version)
            return ZkVersion(stat.version)
        except NoNode:
            return None
        except BadVersion:
            found, stat = await zk.get(path)
            ours = found == data and stat.version == change.zk_version + 1
            return ZkVersion(stat.version) if ours else None

    def _note(self, tp: TopicPartition) -> None:
        self._changed[tp] = None
        self._news.set()

    async def _notify(self) -> None:
        while True:
            await self._news.wait()
            await trio.sleep(NOTIFY_LINGER_S)
            self._news = trio.Event()
            changed, self._changed = list(self._changed), {}
            zk = self._zk()
            try:
                if zk is None:
                    raise ConnectionLoss(znodes.ISR_CHANGES, "no session")
                data = znodes.encode_isr_change(changed)
                await zk.create(znodes.ISR_CHANGE_PREFIX, data, sequential=True)
            except ZkError as e:
                log.info("ISR changes of %d partitions are not told yet: %s", len(changed), e)
                self._changed = {**dict.fromkeys(changed), **self._changed}
                self._news.set()
            await trio.sleep(NOTIFY_EVERY_S)
