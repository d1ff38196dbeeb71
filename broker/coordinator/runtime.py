"""The base of all coordinators: partitions that come and go, and writes that wait.

Each name (of a group, of a producer, of a share-partition) belongs to one partition of the
coordinator's topic, and the broker that leads that partition coordinates it.  For each term of
leadership there is a Shard.  A broker that becomes leader first reads the partition.  It serves
none of its names before it has read everything and the HW has reached the end that the log had when
the read began: records below that end may have been acknowledged by an earlier leader, and are not
known to be committed until the HW is there.  A broker that no longer leads drops the shard at once.

A change is appended with acks=all, and no client is answered before the HW has passed it.  Where it
counts only then, the code that loads replays it.

Source: CoordinatorRuntime of Kafka 3.7 and later; GroupMetadataManager, TransactionStateManager.
"""

from __future__ import annotations

import errno
import logging
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

import trio

from highwater.base.event_loop import monotonic_ms
from highwater.broker.coordinator.partition_loading import Loaded, LoadError, load
from highwater.broker.coordinator.pending import DelayedWrite, Waiting
from highwater.broker.coordinator.shard import PendingWrite, Shard, partition_for
from highwater.broker.replica.partition import Role
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.types import TopicPartition

if TYPE_CHECKING:
    from highwater.broker.metadata.metadata_cache import MetadataCache
    from highwater.broker.replica.partition import Partition
    from highwater.broker.replica.replica_manager import ReplicaManager
    from highwater.broker.request.purgatory import Purgatories
    from highwater.kafka.config import Config
    from highwater.world.api import World

log = logging.getLogger(__name__)

ALL = -1
HW_POLL_S = 0.01
LOAD_RETRY_S = 1.0
LOADS_REMEMBERED = 50
TOLD_AGAIN_MS = 10_000
STORE_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The error for a requester whose records could not be stored, by the error of the write."""

R = TypeVar("R")
S = TypeVar("S", bound=Shard[Any, Any])


class Coordinator(ABC, Generic[S, R]):
    """One coordinator.  Its methods raise ApiError if this broker cannot answer for a name."""

    topic: ClassVar[str]
    coordinates: ClassVar[str]
    """What its names are, in the plural, for logs."""

    def __init__(
        self,
        config: Config,
        world: World,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        purgatories: Purgatories,
        completed: Callable[[str, Iterable[Hashable]], None],
    ) -> None:
        self.config = config
        self.world = world
        self.replicas = replicas
        self.metadata = metadata
        self.purgatories = purgatories
        self._completed = completed
        self.shards: dict[int, S] = {}
        self.load_times: deque[int] = deque(maxlen=LOADS_REMEMBERED)
        """Milliseconds of the latest loads, for the metrics."""
        self._nursery: trio.Nursery | None = None
        self._told_ms: dict[str, float] = {}
        """When the log last named each topic or partition without a coordinator."""
        replicas.on_role_change.append(self.role_changed)

    @property
    @abstractmethod
    def partitions(self) -> int:
        """The number of partitions with which the topic is created."""

    @abstractmethod
    def new_shard(self, partition: Partition) -> S: ...

    @abstractmethod
    def decode(self, key: bytes | None, value: bytes | None) -> R | None:
        """Returns None for a record to skip; raises ValueError for one that cannot be read."""

    @abstractmethod
    def took_over(self, shard: S) -> None:
        """Called when the shard is loaded, and is served from now on."""

    @abstractmethod
    def gave_up(self, shard: S) -> None:
        """Called when another broker coordinates the shard; pending writes are refused next."""

    @abstractmethod
    def settled(self, shard: S, pending: PendingWrite[Any, Any], code: ErrorCode) -> None:
        """Carries out the `then` of a write whose result is known."""

    def committed_late(self, shard: S, pending: PendingWrite[Any, Any]) -> None:
        """Called for a write that was answered with a time-out and is replayed only now."""

    # ---------------------------------------------------------------- where a name belongs

    def partition_of(self, name: str) -> TopicPartition:
        known = len(self.metadata.partitions_of(self.topic))
        return TopicPartition(self.topic, partition_for(name, known or self.partitions))

    def shard_of(self, name: str) -> S:
        shard = self.shards.get(self.partition_of(name).partition)
        if shard is None or not shard.leads:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        if not shard.loaded:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self.advance(shard)
        return shard

    def not_available(self, what: str, why: str) -> None:
        """Logs why the names of `what` have no coordinator; not for each client that asks again."""
        now_ms = monotonic_ms()
        if now_ms - self._told_ms.get(what, -math.inf) >= TOLD_AGAIN_MS:
            self._told_ms[what] = now_ms
            log.warning("no coordinator for %s of %s: %s", self.coordinates, what, why)

    # ---------------------------------------------------------------- carrying out

    def _wall_ms(self) -> int:
        return self.world.clock.wall_ms()

    def _wait_for_hw(self, shard: S, pending: PendingWrite[Any, Any], timeout_ms: int) -> None:
        """Settles the write once the HW has passed it, or with an error if that takes too long."""
        shard.pending.append(pending)
        delayed = DelayedWrite(
            shard.partition.tp,
            pending,
            timeout_ms,
            lambda: self.advance(shard),
            lambda code: self._settle(shard, pending, code),
        )
        self.purgatories.submit(delayed, lambda _: None)

    def advance(self, shard: S) -> None:
        """Replays in order what the HW has passed, and settles it."""
        while shard.leads:
            done = shard.take_committed()
            if done is None:
                return
            if isinstance(done, PendingWrite):
                if done.settled:
                    self.committed_late(shard, done)
                self._settle(shard, done, ErrorCode.NONE)

    def _settle(self, shard: S, pending: PendingWrite[Any, Any], code: ErrorCode) -> None:
        if not pending.settled:
            pending.settled = True
            self.settled(shard, pending, code)

    def _answer(self, answers: Iterable[tuple[Any, object]]) -> None:
        for ticket, answer in answers:
            assert isinstance(ticket, Waiting)
            self.answer(ticket, answer)

    def answer(self, ticket: Waiting, answer: object) -> None:
        """Answers a waiting request, but not at once: the latest requester is answered first, then
        those that waited for it."""
        ticket.answer = answer
        self._completed(Waiting.kind, ticket.keys)

    # ---------------------------------------------------------------- roles

    def role_changed(self, partition: Partition) -> None:
        """Called by the replica manager when this broker's role may have changed."""
        tp = partition.tp
        if tp.topic != self.topic:
            return
        shard = self.shards.get(tp.partition)
        if shard is not None and (shard.partition is not partition or not shard.leads):
            shard.closed = True
            del self.shards[tp.partition]
            self.gave_up(shard)
            while shard.pending:
                lost = shard.pending.popleft()
                if isinstance(lost, PendingWrite):
                    self._settle(shard, lost, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            log.info("%s: %d %s are coordinated elsewhere", tp, shard.names, self.coordinates)
            shard = None
        if shard is None and partition.role is Role.LEADER and self._nursery is not None:
            shard = self.shards[tp.partition] = self.new_shard(partition)
            self._nursery.start_soon(self._load, shard)

    async def _load(self, shard: S) -> None:
        started, tp = monotonic_ms(), shard.partition.tp
        records = 0
        while shard.leads:
            try:
                records = await self._read(shard)
                break
            except (LoadError, OSError, ApiError) as e:
                if shard.leads and isinstance(e, OSError) and e.errno != errno.EBADF:
                    self.replicas.disk_failed(shard.partition, e)
                elif shard.leads:  # the file was closed because it was compacted or moved
                    log.error("%s cannot be loaded, trying again: %s", tp, e)
                    shard.forget()
                    await trio.sleep(LOAD_RETRY_S)
        if not shard.leads:
            return
        shard.loaded = True
        self.load_times.append(monotonic_ms() - started)
        self.took_over(shard)
        log.info(
            "%s: %d %s loaded from %d records in %d ms",
            tp, shard.names, self.coordinates, records, monotonic_ms() - started,
        )  # fmt: skip

    async def _read(self, shard: S) -> int:
        """Reads all records, and waits for the HW to reach the log's end; returns their number."""
        source = shard.partition.leader_log()
        end = source.log_end_offset
        loaded: Loaded[R] = await load(
            source, end, self.world.disk, self.decode, shard.replay, lambda: shard.leads
        )
        shard.undecided(loaded)
        while shard.leads and shard.partition.high_watermark < end:
            await trio.sleep(HW_POLL_S)
        return loaded.count

    async def _every(self, interval_ms: int, what: Callable[[], None]) -> None:
        while True:
            await trio.sleep(interval_ms / 1000)
            try:
                what()
            except Exception:
                log.exception("upkeep of %s failed; it is tried again", self.coordinates)
