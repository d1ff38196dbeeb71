"""The share-partitions that this broker leads: loads them, carries out what their machines ask for,
and lets them go.

A share-partition is loaded when a member first fetches from it, and with it, for the first one, the
properties of groups: whoever does not know them yet would give records of open and aborted
transactions to a group that reads committed ones only.  It ends when this broker ceases to
lead the partition, or when the persister says that another one does, or that the state was made
anew; whoever waits for it is answered at once.  It is forgotten when its group has no session here,
the last one's connection has ended and nothing is locked or unstored.  So there are never many more
of them than sessions account for.

The start offset of a group that has none is chosen by share.auto.offset.reset.  Unless it is the
log's start it is stored before anything is acquired: another leader would choose a later one, and
pass over what nobody has acknowledged.

Source: kafka.server.share.SharePartitionManager.
Deviations: Kafka stores a start offset only with the first acknowledgement.  Where by_duration
finds no record that young, the group begins at the end; in Kafka it waits for one with
OFFSET_NOT_AVAILABLE.  A leader that is deposed lets waiting fetches wait for their time-out there.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import trio

from highwater.base.event_loop import monotonic_ms
from highwater.broker.log.cold_reads import PLACES, read_loaded
from highwater.broker.settings.share_offset_reset import BY_DURATION, EARLIEST
from highwater.broker.share.acquisition import Acquired, Fetched, Wanted
from highwater.broker.share.in_flight import Change
from highwater.broker.share.persister import NO_OFFSET, Persister, SharePartitionKey, StateAnswer
from highwater.broker.share.sessions import ShareSession, ShareSessions
from highwater.broker.share.share_metrics import ShareMeters
from highwater.broker.share.share_partition import (
    Acknowledgement,
    Limits,
    SharePartition,
)
from highwater.broker.share.share_settings import ShareSettings, settings_of
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.types import TopicPartition

if TYPE_CHECKING:
    from highwater.base.metrics import Family
    from highwater.broker.replica.partition import Partition
    from highwater.broker.replica.replica_manager import ReplicaManager
    from highwater.broker.request.purgatory import Purgatories
    from highwater.broker.request.timing_wheel import TimerTask
    from highwater.broker.settings.group_configs import GroupConfigs
    from highwater.kafka.config import Config

log = logging.getLogger(__name__)

SHARE_FETCH = "ShareFetch"
"""The purgatory's kind; its keys are partitions and share-partitions."""
HW_POLL_S = 0.01
GROUPS_KEPT = 100
"""How many groups are kept for connections that may open a session again."""
NOT_HOSTED = "This server does not host this topic-partition."
Done = Callable[[ApiError | None], None]

_CODES: Mapping[ErrorCode, ErrorCode] = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
"""What a member is told of the persister's errors; of all others UNKNOWN_SERVER_ERROR."""
_ENDS = (
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
"""After these nothing of the share-partition counts any more."""


def _failure(answer: StateAnswer) -> ApiError:
    return ApiError(_CODES.get(answer.error, ErrorCode.UNKNOWN_SERVER_ERROR), answer.message)


class LedSharePartition:
    """One share-partition, while this broker leads its partition."""

    def __init__(self, key: SharePartitionKey, partition: Partition, all_: SharePartitions) -> None:
        self.key = key
        self.partition = partition
        self.tp = partition.tp
        self.leader_epoch = int(partition.leader_epoch)
        self.generation = partition.generation
        self.machine: SharePartition | None = None
        """None until it is loaded."""
        self.error: ApiError | None = None
        """Why it has ended."""
        self._all = all_
        self._state_epoch = 0
        self._waiting: dict[Change, Done] = {}
        self._storing = False
        self._timer: TimerTask | None = None
        self._timer_ms = 0

    # ------------------------------------------------------------ loading

    async def load(self) -> None:
        started = monotonic_ms()
        answer = await self._all.persister.read(self.key, self.leader_epoch)
        if answer.error:
            self.end(_failure(answer))
            return
        start = answer.start_offset
        self._state_epoch = answer.state_epoch
        await self._all.read_configs()
        try:
            if start == NO_OFFSET:
                start = await self._first_offset()
            if self.error is None:
                machine = SharePartition(start, answer.batches, self._all.limits)
                machine.log_starts_at(self.partition.leader_log().log_start_offset)
                self.machine = machine
                self._all.meters.loaded(monotonic_ms() - started)
                self._all.news(self)
        except ApiError as e:
            self.end(e)
        except ValueError as e:
            log.error("share-partition %s cannot be loaded: %s", self.key, e)
            self.end(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))

    async def _first_offset(self) -> int:
        """The start of a group that has none yet; raises ApiError."""
        reset = self._all.settings(self.key.group).auto_offset_reset
        if reset.kind == EARLIEST:
            return self.partition.leader_log().log_start_offset
        while self.partition.high_watermark < self.partition.epoch_start_offset:
            self.partition.leader_log()
            await trio.sleep(HW_POLL_S)
        start = latest = self.partition.latest_offset(0)
        if reset.kind == BY_DURATION:
            replicas, since_ms = (
                self._all.replicas,
                self._all.replicas.world.clock.wall_ms() - reset.duration_ms,
            )
            found = await read_loaded(
                replicas.world.disk,
                lambda: self.partition.leader_log().offset_for_timestamp(since_ms),
                partial(replicas.disk_failed, self.partition),
                PLACES + len(self.partition.leader_log().segments),
            )
            start = latest if found is None else min(found[1], latest)
        answer = await self._all.persister.write(
            self.key, self._state_epoch, self.leader_epoch, start, 0, ()
        )
        if answer.error:
            raise _failure(answer)
        return start

    # ------------------------------------------------------------ what members do

    @property
    def active(self) -> bool:
        return self.machine is not None and self.error is None

    def can_acquire(self) -> bool:
        return self.active and self._loaded().can_acquire()

    def _loaded(self) -> SharePartition:
        assert self.machine is not None, "it is loaded"
        return self.machine

    @property
    def next_fetch_offset(self) -> int:
        return self._loaded().next_fetch_offset

    def last_wanted(self, max_records: int) -> int:
        """No record behind this offset can be acquired by a fetch."""
        return self._loaded().end_offset + max_records

    def acquire(self, fetched: Fetched, wanted: Wanted) -> list[Acquired]:
        found = self._loaded().acquire(fetched, wanted)
        self._watch_locks()
        return found

    def log_starts_at(self, offset: int) -> None:
        self._loaded().log_starts_at(offset)

    def acknowledge(
        self, member: str, acks: Sequence[Acknowledgement], lock_ms: int, done: Done
    ) -> None:
        """Calls `done` when the acknowledgements are stored, or with the error."""
        if not self.active:
            done(self.error or ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        try:
            change = self._loaded().acknowledge(member, acks, monotonic_ms() + lock_ms)
        except ApiError as e:
            done(e)
            return
        if change is None:
            done(None)
            return
        self._waiting[change] = done
        self._store()

    def release(self, member: str) -> None:
        if self.active and self._loaded().release(member) is not None:
            self._store()

    # ------------------------------------------------------------ locks

    def _watch_locks(self) -> None:
        due_ms = self._loaded().next_lock_end_ms
        if due_ms is None or (self._timer is not None and self._timer_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = due_ms
        self._timer = self._all.purgatories.call_at(due_ms, self._end_locks)

    def _end_locks(self) -> None:
        self._timer = None
        if not self.active:
            return
        machine = self._loaded()
        if machine.end_locks(monotonic_ms()) is not None:
            self._all.meters.lock_timeouts += 1
            self._store()
            self._all.news(self)
        self._watch_locks()
        self._all.forget_if_idle(self)

    # ------------------------------------------------------------ the store

    def _store(self) -> None:
        """Lets what waits be stored; one write is on its way at a time."""
        if not self._storing:
            self._storing = True
            self._all.start(self._store_all)

    async def _store_all(self) -> None:
        while self.error is None:
            write = self._loaded().next_write()
            if write is None:
                break
            answer = await self._all.persister.write(
                self.key,
                self._state_epoch,
                self.leader_epoch,
                write.start_offset,
                write.delivery_complete_count,
                write.batches,
            )
            if self.error is None:
                self._written(answer)
        self._storing = False
        self._all.forget_if_idle(self)

    def _written(self, answer: StateAnswer) -> None:
        failure = _failure(answer) if answer.error else None
        if failure is not None and failure.code in _ENDS:
            self.end(failure)
            return
        if failure is not None:
            log.warning("share-partition %s is not stored: %s", self.key, answer.error.name)
        for change in self._loaded().written(failure is None):
            done = self._waiting.pop(change, None)
            if done is not None:
                done(failure)
        self._watch_locks()
        self._all.news(self)

    # ------------------------------------------------------------ the end

    def role_changed(self, partition: Partition) -> None:
        """Goes on as leader in the next epoch.  Where an epoch was left out, or this broker has
        ceased to lead, another one may have led, and what is known here is old."""
        same = partition is self.partition and partition.generation == self.generation
        if same and partition.leader_epoch <= self.leader_epoch + 1:
            self.leader_epoch = int(partition.leader_epoch)
        else:
            self.end(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    @property
    def at_rest(self) -> bool:
        return self.active and not self._storing and self._loaded().at_rest

    def end(self, error: ApiError) -> None:
        """Ends it, and answers all who wait; the next fetch may load it again."""
        if self.error is not None:
            return
        self.error = error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._all.remove(self)
        waiting, self._waiting = self._waiting, {}
        for done in waiting.values():
            done(error)
        self._all.news(self)


class SharePartitions:
    """All of this broker, with the sessions of their members."""

    def __init__(
        self,
        config: Config,
        replicas: ReplicaManager,
        purgatories: Purgatories,
        completed: Callable[[str, Iterable[Hashable]], None],
        persister: Persister,
        configs: GroupConfigs,
    ) -> None:
        self.config = config
        self.replicas = replicas
        self.purgatories = purgatories
        self.persister = persister
        self.configs = configs
        self.limits = Limits(
            config.group_share_partition_max_record_locks, config.group_share_delivery_count_limit
        )
        self.sessions = ShareSessions(config.group_share_max_share_sessions)
        self.meters = ShareMeters()
        self.led: dict[SharePartitionKey, LedSharePartition] = {}
        self._of_partition: dict[TopicPartition, dict[SharePartitionKey, None]] = {}
        self._left: dict[str, int] = {}
        """Groups whose last session was closed, and its connection, which may open another."""
        self._completed = completed
        self._nursery: trio.Nursery | None = None
        replicas.on_role_change.append(self._role_changed)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    def start(self, job: Callable[[], Awaitable[None]]) -> None:
        assert self._nursery is not None, "it runs"
        self._nursery.start_soon(job)

    async def read_configs(self) -> None:
        """Returns when the groups' properties are read, for the first time if nobody has needed
        them yet."""
        if not self.configs.wanted:
            self.configs.wanted = True
            self.start(self.configs.load)
        await self.configs.loaded.wait()

    def settings(self, group: str) -> ShareSettings:
        return settings_of(self.config.group_share_record_lock_duration_ms, self.configs.of(group))

    # ------------------------------------------------------------ look-ups

    def get(self, key: SharePartitionKey, tp: TopicPartition) -> LedSharePartition:
        """The share-partition, which may still be loading.  Raises ApiError unless this broker
        leads the partition."""
        found = self.led.get(key)
        if found is None:
            partition = self.replicas.partition(tp)
            partition.leader_log()
            hosted = self.replicas.logs.get(tp)
            if hosted is not None and hosted.topic_id not in (None, key.topic_id):
                raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID)
            found = self.led[key] = LedSharePartition(key, partition, self)
            self._of_partition.setdefault(tp, {})[key] = None
            self.start(found.load)
        return found

    def loaded(self, key: SharePartitionKey, tp: TopicPartition) -> LedSharePartition:
        """The share-partition, if anything was fetched from it; raises ApiError."""
        found = self.led.get(key)
        if found is None:
            self.replicas.partition(tp).leader_log()
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED)
        return found

    def families(self) -> Iterable[Family]:
        led = [(key.group, one.tp, one.machine) for key, one in sorted(self.led.items())]
        return self.meters.families(self.sessions, led)

    # ------------------------------------------------------------ sessions

    def close(self, session: ShareSession) -> None:
        """Closes a session, and releases what its member has acquired; nothing if the session is
        closed already: its member may have another one by now."""
        if session.closed:
            return
        self.sessions.close(session)
        self._release(session)
        if not self.sessions.has_group(session.group):
            self._left.pop(session.group, None)
            self._left[session.group] = session.connection
            if len(self._left) > GROUPS_KEPT:
                self._forget_groups([next(iter(self._left))])

    def disconnected(self, connection: int) -> None:
        """Closes the sessions of a connection that has ended."""
        groups = [group for group, last in self._left.items() if last == connection]
        for session in self.sessions.disconnected(connection):
            self._release(session)
            groups.append(session.group)
        self._forget_groups(groups)

    def _release(self, session: ShareSession) -> None:
        for key, found in list(self.led.items()):
            if key.group == session.group:
                found.release(session.member)

    def _forget_groups(self, groups: Iterable[str]) -> None:
        for group in groups:
            self._left.pop(group, None)
        for found in list(self.led.values()):
            self.forget_if_idle(found)

    # ------------------------------------------------------------ coming and going

    def news(self, changed: LedSharePartition) -> None:
        """Lets the fetches look again that wait for the share-partition."""
        self._completed(SHARE_FETCH, (changed.key,))

    def remove(self, ended: LedSharePartition) -> None:
        if self.led.get(ended.key) is ended:
            del self.led[ended.key]
            keys = self._of_partition[ended.tp]
            del keys[ended.key]
            if not keys:
                del self._of_partition[ended.tp]

    def forget_if_idle(self, one: LedSharePartition) -> None:
        """Forgets what nobody may ask for soon, and would be loaded as it is."""
        group = one.key.group
        if one.at_rest and group not in self._left and not self.sessions.has_group(group):
            one.end(ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED))

    def _role_changed(self, partition: Partition) -> None:
        for key in list(self._of_partition.get(partition.tp, ())):
            self.led[key].role_changed(partition)
