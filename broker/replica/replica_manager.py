"""All partitions of one broker: LeaderAndIsr and StopReplica, appends, reads, ISR upkeep,
checkpoints.

`ReplicaManager` is the thin shell around the `Partition` machines.  Requests reach it through
plain, synchronous methods (append and read never await); its tasks write ISR changes to ZooKeeper,
look for lagging followers, checkpoint the HW and run the fetchers.

Changes are reported through `completed(kind, keys)`: whatever may let a delayed operation finish
(an HW that moved, an append, a role that changed) hands its partitions to the completion sink,
which looks into the purgatory.

Source: kafka.server.ReplicaManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import trio

from highwater.base.event_loop import in_turns, monotonic_ms
from highwater.broker.replica import log_topic_ids
from highwater.broker.replica.dir_moves import DirMoves
from highwater.broker.replica.feed import Feed
from highwater.broker.replica.fetch_sessions import FetchSessions
from highwater.broker.replica.fetcher_manager import FetcherManager
from highwater.broker.replica.isr_writer import IsrWriter
from highwater.broker.replica.partition import IsrChange, LeaderAndIsr, Partition, Role
from highwater.broker.replica.partition_states import LeaderAndIsrUpdate, StopReplica
from highwater.broker.replica.reading import ReadResult, diverging_end, slice_of
from highwater.broker.replica.throttles import ReplicationThrottles
from highwater.broker.replica.topic_stats import BrokerTopicStats
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.topic_names import is_valid_name
from highwater.kafka.types import UNKNOWN_EPOCH, BrokerId, TopicPartition, ZkVersion
from highwater.kafka.wire.fetch import CONSUMER_REPLICA_ID, FetchPartition

if TYPE_CHECKING:
    from highwater.broker.log.log import Log
    from highwater.broker.log.log_config import LogConfig
    from highwater.broker.log.log_manager import LogManager
    from highwater.broker.log.parts import AppendInfo, LogSlice, Origin
    from highwater.broker.log.verification import Verification
    from highwater.kafka.config import Config
    from highwater.kafka.wire.records import BatchHeader
    from highwater.world.api import World, ZooKeeper

log = logging.getLogger(__name__)

Completed = Callable[[str, Iterable[Hashable]], None]
READ_COMMITTED = 1
WORK_AT_ONCE = 15
"""Partitions of a LeaderAndIsr or StopReplica handled before other tasks run: about 5 ms."""


class ReplicaManager:
    """`is_alive` and `is_known` ask the metadata cache; `leader_lost` reports a fetcher's broken
    connection to it; `zk` returns the live session or None.
    """

    def __init__(
        self,
        config: Config,
        world: World,
        logs: LogManager,
        broker_id: BrokerId,
        *,
        is_alive: Callable[[int], bool],
        completed: Completed,
        zk: Callable[[], ZooKeeper | None],
        is_known: Callable[[TopicPartition], bool] = lambda _: False,
        leader_lost: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.config = config
        self.world = world
        self.logs = logs
        self.broker_id = broker_id
        self.is_alive = is_alive
        self.is_known = is_known
        self.leader_lost = leader_lost
        self.completed = completed
        self.partitions: dict[TopicPartition, Partition] = {}
        self.topic_stats = BrokerTopicStats()
        self.throttles = ReplicationThrottles(config)
        self.moves = DirMoves(self)
        self.fetchers = FetcherManager(self)
        self.isr_writer = IsrWriter(lambda tp: self.partitions.get(tp), self.isr_settled, zk)
        self.topic_overrides: dict[str, Mapping[str, str]] = {}
        self.sessions = FetchSessions(
            config.max_incremental_fetch_session_cache_slots,
            lambda: world.random.getrandbits(31),
            lambda session_id, replica_id: Feed(session_id, replica_id, self),
        )
        logs.on_start_moved = self.log_start_moved
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.on_role_change: list[Callable[[Partition], None]] = []
        """Called when this broker's role for a partition may have changed; must return at once."""
        self._changing = trio.Lock()
        self._to_flush: dict[TopicPartition, None] = {}
        self._flush_wanted = trio.Event()

    # ---------------------------------------------------------------- look-up

    def partition(self, tp: TopicPartition) -> Partition:
        """Raises ApiError if this broker holds no replica of it: NOT_LEADER_OR_FOLLOWER if others
        do, UNKNOWN_TOPIC_OR_PARTITION if none is known.
        """
        partition = self.partitions.get(tp)
        if partition is None:
            known = self.is_known(tp)
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        return partition

    # ---------------------------------------------------------------- data

    def append(
        self,
        partition: Partition,
        records: memoryview,
        acks: int,
        origin: Origin,
        *,
        examined: BatchHeader | None = None,
        verification: Verification | None = None,
    ) -> AppendInfo:
        """Calls `Partition.append`, and raises its errors; a failing disk takes its directory
        offline (KAFKA_STORAGE_ERROR).
        """
        tp, wall_ms = partition.tp, self.world.clock.wall_ms()
        try:
            info, moved = partition.append(
                records,
                acks,
                monotonic_ms(),
                wall_ms,
                origin,
                examined=examined,
                verification=verification,
            )
        except OSError as e:
            self.disk_failed(partition, e)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(e)) from e
        if partition.log is not None and partition.log.flush_due:
            self.flush_soon(partition)
        self.completed("Fetch", (tp,))
        if moved:
            self.completed("Produce", (tp,))
        return info

    def flush_soon(self, partition: Partition) -> None:
        """Plans the flush of log.flush.interval.messages; it covers what is appended by then."""
        self._to_flush[partition.tp] = None
        self._flush_wanted.set()

    async def _flush(self) -> None:
        while True:
            await self._flush_wanted.wait()
            self._flush_wanted = trio.Event()
            wanted, self._to_flush = list(self._to_flush), {}
            for tp in wanted:
                partition = self.partitions.get(tp)
                if partition is None or partition.log is None:
                    continue
                try:
                    await partition.log.flush()
                except OSError as e:
                    self.disk_failed(partition, e)
                    continue
                if partition.is_leader and partition.advance_high_watermark(monotonic_ms()):
                    self.high_watermark_moved(tp)

    def read(
        self, asked: FetchPartition, max_bytes: int, replica_id: int, isolation: int, min_one: bool
    ) -> ReadResult:
        """Reads for a consumer (up to HW or LSO) or a follower (up to LEO).  Raises ApiError.

        A follower's progress is recorded by `follower_progress`, and only once for a request.
        """
        partition = self.partition(asked.tp)
        partition.check_leader_epoch(asked.current_leader_epoch)
        leader_log = partition.leader_log()
        limit = self.end_for(partition, replica_id, isolation)
        diverging = diverging_end(partition, asked)
        piece: LogSlice | None = None
        if diverging is None:
            try:
                piece = slice_of(leader_log, asked, max_bytes, limit, min_one)
            except OSError as e:
                self.disk_failed(partition, e)
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(e)) from e
            if replica_id == CONSUMER_REPLICA_ID and piece.size:
                assert piece.next_offset <= partition.high_watermark, "invariant 3"
        aborted: Sequence[tuple[int, int]] | None = None
        if isolation == READ_COMMITTED and replica_id == CONSUMER_REPLICA_ID:
            aborted = self._aborted(partition, leader_log, piece)
        return ReadResult(
            partition.high_watermark,
            partition.last_stable_offset,
            leader_log.log_start_offset,
            piece,
            aborted,
            diverging,
        )

    def end_for(self, partition: Partition, replica_id: int, isolation: int) -> int:
        """The end of the records that this reader may see.  Raises ApiError."""
        if replica_id != CONSUMER_REPLICA_ID:
            if replica_id not in partition.followers:
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return partition.leader_log().log_end_offset
        committed = isolation == READ_COMMITTED
        return partition.last_stable_offset if committed else partition.high_watermark

    def _aborted(
        self, partition: Partition, leader_log: Log, piece: LogSlice | None
    ) -> Sequence[tuple[int, int]]:
        if piece is None or not piece.size:
            return ()
        with self.disk_of(partition):
            return leader_log.aborted_transactions(piece.base_offset, piece.next_offset)

    def held_back(self, tp: TopicPartition, replica_id: int) -> bool:
        """Whether the throttle keeps the partition's records from this follower at the moment."""
        quota = self.throttles.leader
        if not quota.in_use or not quota.holds_back(tp, monotonic_ms()):
            return False
        partition = self.partitions.get(tp)
        return partition is not None and replica_id not in partition.isr.members

    def follower_progress(self, asked: FetchPartition, replica_id: int) -> None:
        """Records a follower's fetch that was read without an error."""
        self.progress(self.partition(asked.tp), replica_id, asked, monotonic_ms())

    def progress(
        self, partition: Partition, replica_id: int, asked: FetchPartition, now_ms: int
    ) -> None:
        """`follower_progress` for a caller that has the partition."""
        follower = partition.followers.get(replica_id)
        start = follower.log_start_offset if follower is not None else None
        moved, change = partition.follower_fetched(
            replica_id, asked.fetch_offset, asked.log_start_offset, now_ms
        )
        if asked.log_start_offset != start:
            self.completed("DeleteRecords", (asked.tp,))
        if change is not None:
            self.isr_writer.submit(change)
        if moved:
            self.high_watermark_moved(asked.tp)

    def high_watermark_moved(self, tp: TopicPartition) -> None:
        self.completed("Produce", (tp,))
        self.completed("Fetch", (tp,))

    def log_start_moved(self, tp: TopicPartition) -> None:
        """Gives the new log start to followers in an answer, or to the leader in the next fetch."""
        partition = self.partitions.get(tp)
        if partition is not None:
            partition.stir()
        self.fetchers.look_at(tp)

    # ---------------------------------------------------------------- control

    async def leader_and_isr(
        self, update: LeaderAndIsrUpdate, admit: Callable[[], None]
    ) -> dict[TopicPartition, ErrorCode]:
        """Applies the request in its turn if `admit` lets it through; raises what that raises."""
        async with self._changing:
            admit()
            errors: dict[TopicPartition, ErrorCode] = {}
            follow: dict[TopicPartition, tuple[str, int] | None] = {}
            await self.logs.creation.create(self._new_logs(update))
            await log_topic_ids.take(self.logs, update)
            async for tp, state in in_turns(update.states, WORK_AT_ONCE):
                if log_topic_ids.fits(self.logs, tp, update.topic_ids.get(tp.topic)):
                    errors[tp] = self._apply(tp, state, update.leaders, follow)
                else:
                    errors[tp] = ErrorCode.INCONSISTENT_TOPIC_ID
            await self.fetchers.follow_all(follow)
            return errors

    def _new_logs(self, update: LeaderAndIsrUpdate) -> dict[TopicPartition, LogConfig]:
        config_of = cache(self._log_config)
        return {
            tp: config_of(tp.topic)
            for tp, state in update.states
            if tp not in self.partitions
            and state.leader_epoch > UNKNOWN_EPOCH
            and _can_be(tp)
            and self.broker_id in state.replicas
            and self.logs.get(tp) is None
            and self._may_make(state.is_new)
        }

    def _may_make(self, is_new: bool) -> bool:
        """Whether to create a log: one that is not new may be in an offline directory."""
        return is_new or not self.logs.offline_dirs

    def _log_config(self, topic: str) -> LogConfig:
        return self.logs.topic_config(self.topic_overrides.get(topic, {}))

    def _apply(
        self,
        tp: TopicPartition,
        state: LeaderAndIsr,
        leaders: Mapping[int, tuple[str, int]],
        follow: dict[TopicPartition, tuple[str, int] | None],
    ) -> ErrorCode:
        partition = self.partitions.get(tp)
        if partition is not None and partition.role is Role.OFFLINE:
            return ErrorCode.KAFKA_STORAGE_ERROR
        known_epoch = UNKNOWN_EPOCH if partition is None else partition.leader_epoch
        if state.leader_epoch <= known_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if partition is None and not _can_be(tp):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if self.broker_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            if partition is None:
                partition = self._host(tp, state.is_new)
            self.fetchers.stop((tp,))
            if state.leader == self.broker_id:
                moved = partition.make_leader(state, monotonic_ms())
                if partition.log is not None and partition.log.flush_due:
                    self.flush_soon(partition)  # recovered records: no append may follow
                log.info(
                    "%s: leader in epoch %d from offset %d, ISR %s",
                    tp, state.leader_epoch, partition.epoch_start_offset, list(state.isr),
                )  # fmt: skip
                self.completed("Fetch", (tp,))
                if moved:
                    self.completed("Produce", (tp,))
            else:
                partition.make_follower(state)
                follow[tp] = leaders.get(state.leader)
                log.info("%s: follows %d in epoch %d", tp, state.leader, state.leader_epoch)
                self.high_watermark_moved(tp)  # waiting answers must learn that it leads no more
            self._role_changed(partition)
        except OSError as e:
            if partition is not None:
                self.disk_failed(partition, e)
            log.error("%s: %s", tp, e)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _role_changed(self, partition: Partition) -> None:
        for listener in self.on_role_change:
            listener(partition)

    def _host(self, tp: TopicPartition, is_new: bool) -> Partition:
        if not self._may_make(is_new) and self.logs.get(tp) is None:
            raise OSError(f"{tp} may be in a log directory that is offline")
        partition = Partition(
            tp, self.broker_id, self.config.replica_lag_time_max_ms, self.is_alive
        )
        hosted = self.logs.get_or_create(tp, self._log_config(tp.topic))
        partition.host(hosted, self.logs.high_watermarks.get(tp, 0), self._min_isr(tp.topic))
        self.partitions[tp] = partition
        return partition

    def _min_isr(self, topic: str) -> int:
        override = self.topic_overrides.get(topic, {}).get("min.insync.replicas")
        return int(override) if override is not None else self.config.min_insync_replicas

    def topic_configured(self, topic: str, overrides: Mapping[str, str]) -> None:
        """Applies /config/topics/T, which changed (or was read at start)."""
        self.topic_overrides[topic] = overrides
        self.throttles.topic_configured(topic, overrides)
        for tp, log in self.logs.logs.items():
            if tp.topic == topic:  # also before the controller has named the partition
                log.config = self.logs.topic_config(overrides)
        for tp, partition in self.partitions.items():
            if tp.topic == topic and partition.log is not None:
                config, min_isr = self.logs.topic_config(overrides), self._min_isr(topic)
                if partition.configure(config, min_isr, monotonic_ms()):
                    self.high_watermark_moved(tp)

    async def stop_replica(
        self, stops: Sequence[StopReplica], admit: Callable[[], None]
    ) -> dict[TopicPartition, ErrorCode]:
        """Stops replicas; deletions are durable when it returns.  `admit`: see `leader_and_isr`."""
        async with self._changing:
            admit()
            errors = {s.tp: self._stop(s) async for s in in_turns(stops, WORK_AT_ONCE)}
        await self.isr_writer.quiet(s.tp for s in stops if s.delete)
        failed = await self.logs.deletions.settle()
        return errors | dict.fromkeys(failed, ErrorCode.KAFKA_STORAGE_ERROR)

    def _stop(self, stop: StopReplica) -> ErrorCode:
        tp, delete = stop.tp, stop.delete
        partition = self.partitions.get(tp)
        if partition is not None:
            if partition.role is Role.OFFLINE:
                return ErrorCode.KAFKA_STORAGE_ERROR
            if 0 <= stop.leader_epoch < partition.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
        self.fetchers.stop((tp,))
        if partition is not None and delete:
            del self.partitions[tp]
        if partition is not None:
            partition.stop(delete)
            self._role_changed(partition)
        self.high_watermark_moved(tp)
        try:
            if delete and self.logs.get(tp) is not None:
                self.logs.delete(tp)
        except OSError as e:
            log.error("%s could not be deleted: %s", tp, e)
        lost = delete and self.logs.deletions.may_come_back(tp)
        return ErrorCode.KAFKA_STORAGE_ERROR if lost else ErrorCode.NONE

    # ---------------------------------------------------------------- upkeep

    def isr_settled(self, change: IsrChange, zk_version: ZkVersion | None) -> None:
        partition = self.partitions.get(change.tp)
        if partition is None:
            return
        if zk_version is not None:
            self.isr_shrinks += change.shrink
            self.isr_expands += not change.shrink
            verb = "shrank" if change.shrink else "expanded"
            log.info("%s: ISR %s to %s", change.tp, verb, list(change.isr))
        else:
            log.info("%s: ISR change to %s refused, it is out of date", change.tp, list(change.isr))
        if partition.isr_settled(change, zk_version, monotonic_ms()):
            self.high_watermark_moved(change.tp)

    def shrink_lagging(self) -> None:
        """One pass over the led partitions, every half of replica.lag.time.max.ms."""
        now = monotonic_ms()
        for tp, partition in self.partitions.items():
            if not partition.is_leader:
                continue
            change = partition.maybe_shrink(now)
            if change is not None:
                self.isr_writer.submit(change)
            if partition.advance_high_watermark(now):
                self.high_watermark_moved(tp)

    @contextmanager
    def disk_of(self, partition: Partition) -> Iterator[None]:
        """Guards code that uses this partition's disk: a failure there is KAFKA_STORAGE_ERROR."""
        try:
            yield
        except OSError as e:
            self.disk_failed(partition, e)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(e)) from e

    def disk_failed(self, partition: Partition | None, error: OSError) -> None:
        """Takes the directory of this partition offline, and every partition in it."""
        if partition is None or partition.log is None:
            return
        self.logs.fail_dir(self.logs.dir_of(partition.log), error)

    def dir_failed(self, log_dir: str) -> int:
        """Takes all partitions of a failed directory offline at once; returns their number."""
        gone = [
            tp
            for tp, p in self.partitions.items()
            if p.log is not None and self.logs.dir_of(p.log) == log_dir
        ]
        for tp in gone:
            self.partition_lost(self.partitions[tp])
        return len(gone)

    def partition_lost(self, partition: Partition) -> None:
        """Handles the loss of the partition's log."""
        self.fetchers.stop((partition.tp,))
        partition.go_offline()
        self._role_changed(partition)
        self.high_watermark_moved(partition.tp)

    def checkpoint_high_watermarks(self) -> None:
        marks = {
            tp: p.high_watermark
            for tp, p in self.partitions.items()
            if p.log is not None and p.role in (Role.LEADER, Role.FOLLOWER)
        }
        if marks:
            self.logs.checkpoint_high_watermarks(marks)

    def high_watermark_of(self, tp: TopicPartition) -> int:
        """The limit of retention: nothing at or above it may be deleted."""
        partition = self.partitions.get(tp)
        return partition.high_watermark if partition is not None else 0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.fetchers.run)
            nursery.start_soon(self.isr_writer.run)
            nursery.start_soon(self._flush)
            nursery.start_soon(self.moves.run)
            nursery.start_soon(self._upkeep, self.config.replica_lag_time_max_ms / 2000, "shrink")
            interval = self.config.replica_high_watermark_checkpoint_interval_ms / 1000
            nursery.start_soon(self._upkeep, interval, "checkpoint")
            task_status.started()

    async def _upkeep(self, interval: float, what: str) -> None:
        while True:
            await trio.sleep(interval)
            if what == "shrink":
                self.shrink_lagging()
            else:
                self.checkpoint_high_watermarks()


def _can_be(tp: TopicPartition) -> bool:
    """Whether a folder can have this name: one that cannot would look like a failed directory, and
    stop the broker."""
    return is_valid_name(tp.topic) and tp.partition >= 0
