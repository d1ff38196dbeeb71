"""Writes ISR changes to ZooKeeper, under the version that the leader knew, and notifies the
controller.

One attempt can end in three ways.  It succeeded: the partition commits the change.  The version
was wrong: another write came first, either an earlier attempt whose answer was lost (then the znode
holds exactly what was to be written, one version on) or the controller's (then the change is
dropped).  The outcome is unknown (the connection was lost): the writer tries again until it knows
which of the first two happened; meanwhile the partition counts both ISRs.

When a deleted topic is created again, its znodes' versions begin at 0 again.  So a write that was
sent for the old topic, and arrives late, could succeed on the new one.  `quiet` waits until no such
write can arrive; StopReplica is answered only then, and without that answer the controller does not
delete the znodes.  A write whose connection was lost can arrive until ZooKeeper has answered a
later operation of its session, or the session has ended.  (Kafka's brokers have no such wait.)

/isr_change_notification names the partitions whose ISR changed, so that the controller can spread
the new state.  The first change after a quiet time is reported almost at once, later ones in
batches, at most one every NOTIFY_EVERY_S.  (Kafka waits until 5 s pass without a change, 60 s at
most; its brokers' metadata lags by as much.)
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable

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
    """A queue with at most one change a partition (`Isr` allows no more), and IN_FLIGHT writers."""

    def __init__(
        self,
        partition: Callable[[TopicPartition], Partition | None],
        settled: Callable[[IsrChange, ZkVersion | None], None],
        zk: Callable[[], ZooKeeper | None],
    ) -> None:
        """`settled` gets the znode's version that has the change, or None if none will."""
        self._partition = partition
        self._settled = settled
        self._zk = zk
        self._queue: deque[IsrChange] = deque()
        self._wake = trio.Event()
        self._unsettled: Counter[TopicPartition] = Counter()
        self._ended = trio.Event()
        self._changed: dict[TopicPartition, None] = {}
        self._news = trio.Event()

    def submit(self, change: IsrChange) -> None:
        self._queue.append(change)
        self._unsettled[change.tp] += 1
        self._wake.set()

    async def quiet(self, tps: Iterable[TopicPartition]) -> None:
        """Waits until no write can arrive for these partitions, which are not led any more."""
        for tp in tps:
            while self._unsettled[tp]:
                await self._ended.wait()

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
        sent: ZooKeeper | None = None
        """The session whose write may still arrive."""
        try:
            while True:
                zk = self._zk()
                if sent is not zk:
                    sent = None  # that session has ended, and its writes with it
                if self._wanted(change):
                    sent = zk
                    if zk is not None and await self._answered(zk, change):
                        return
                elif sent is None or await self._overtaken(sent, change.tp):
                    return
                await trio.sleep(RETRY_S)
        finally:
            limit.release_on_behalf_of(change)
            self._unsettled[change.tp] -= 1
            if not self._unsettled[change.tp]:
                del self._unsettled[change.tp]
            self._ended.set()
            self._ended = trio.Event()

    async def _answered(self, zk: ZooKeeper, change: IsrChange) -> bool:
        """Tries once; False if the outcome is unknown."""
        try:
            settled = await self._write(zk, change)
        except (ConnectionLoss, SessionExpired):
            return False
        except ZkError as e:
            log.error("%s: ISR could not be written: %s", change.tp, e)
            settled = None
        self._settled(change, settled)
        if settled is not None:
            self._note(change.tp)
        return True

    async def _overtaken(self, zk: ZooKeeper, tp: TopicPartition) -> bool:
        """Whether ZooKeeper has answered an operation that follows the write in its session."""
        try:
            await zk.exists(znodes.state_path(tp))
        except ConnectionLoss:
            return False
        except ZkError:
            pass
        return True

    def _wanted(self, change: IsrChange) -> bool:
        partition = self._partition(change.tp)
        return (
            partition is not None
            and partition.is_leader
            and partition.leader_epoch == change.leader_epoch
            and partition.isr.pending == change.isr
        )

    async def _write(self, zk: ZooKeeper, change: IsrChange) -> ZkVersion | None:
        """The znode's version that has the change, or None if the znode holds something newer."""
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
