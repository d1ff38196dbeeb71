"""The group coordinator of one broker: the shell around the groups.

For each request it finds the group, runs a pure step, and carries out the outcome: records are
appended to the group's partition of __consumer_offsets with acks=all (and replayed when the HW has
passed them), timers go on the purgatory's wheel, and answers go to the waiting clients.

Source: kafka.coordinator.group.GroupCoordinator, GroupMetadataManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING

import trio

from highwater.base.event_loop import monotonic_ms
from highwater.broker.coordinator.group import offsets
from highwater.broker.coordinator.group.consumer.consumer_steps import MEMBER_TIMERS
from highwater.broker.coordinator.group.group import (
    REBALANCE,
    SESSION,
    Group,
    Outcome,
    State,
    Write,
)
from highwater.broker.coordinator.group.protocol import Join, Limits, Sync
from highwater.broker.coordinator.group.rebalance import Rebalancing
from highwater.broker.coordinator.group.records import (
    CommittedOffset,
    GroupLogRecord,
    decode,
    encode,
)
from highwater.broker.coordinator.group.shard import (
    CommitsOnTheirWay,
    GroupShard,
    GroupWrite,
    PendingMarker,
    ShareWrite,
    Shown,
)
from highwater.broker.coordinator.group.share_offsets import ShareOffsets
from highwater.broker.coordinator.pending import Waiting
from highwater.broker.coordinator.runtime import ALL
from highwater.broker.coordinator.shard import PendingWrite
from highwater.broker.log.parts import Origin
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.topic_names import GROUP_METADATA_TOPIC
from highwater.kafka.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from highwater.kafka.wire.compression import Compression
from highwater.kafka.wire.records import TRANSACTIONAL, Record, build_batch

if TYPE_CHECKING:
    from highwater.broker.log.verification import Verification
    from highwater.broker.replica.partition import Partition

log = logging.getLogger(__name__)


class GroupCoordinator(ShareOffsets):
    topic = GROUP_METADATA_TOPIC
    coordinates = "groups"

    @cached_property
    def limits(self) -> Limits:
        return Limits(self.config.group_initial_rebalance_delay_ms, self.config.group_max_size)

    @property
    def partitions(self) -> int:
        return self.config.offsets_topic_num_partitions

    def new_shard(self, partition: Partition) -> GroupShard:
        return GroupShard(partition)

    def decode(self, key: bytes | None, value: bytes | None) -> GroupLogRecord | None:
        return decode(key, value)

    def took_over(self, shard: GroupShard) -> None:
        for group in list(shard.groups.values()):
            shard.drop_if_unused(group)
            if group.consumer is not None:
                self.consumers_loaded(shard, group)
            elif group.group_id in shard.groups:
                self._apply(shard, group, self._steps(group).loaded())
        self.share_groups_loaded(shard)

    def gave_up(self, shard: GroupShard) -> None:
        for group in shard.groups.values():
            self._apply(shard, group, self._steps(group).unloaded())
            if group.consumer is not None:
                group.consumer.dead = True
        self.share_groups_unloaded(shard)
        for timer in shard.timers.values():
            timer.cancel()

    def _named(self, group_id: str) -> GroupShard:
        """The shard of a group, for requests that must name a group."""
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        return self.shard_of(group_id)

    # ---------------------------------------------------------------- members

    def new_id(self, prefix: str) -> str:
        bits = f"{self.world.random.getrandbits(128):032x}"
        cuts = (bits[:8], bits[8:12], bits[12:16], bits[16:20], bits[20:])
        return f"{prefix}-{'-'.join(cuts)}"

    def join(self, group_id: str, request: Join, ticket: Waiting) -> None:
        shard = self._named(group_id)
        low = self.config.group_min_session_timeout_ms
        high = self.config.group_max_session_timeout_ms
        if not low <= request.session_timeout_ms <= high:
            raise ApiError(ErrorCode.INVALID_SESSION_TIMEOUT)
        group = shard.groups.get(group_id)
        if group is None:
            if group_id in shard.share_groups:
                raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if request.member_id:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            group = shard.group(group_id)
        if group.consumer is not None:
            if not group.is_empty:
                self.classic_join(shard, group, request, ticket)
                return
            if request.member_id:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            self._apply(shard, group, self.end_of_consumers(group))
            if group.consumer is not None:
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        before = group.state
        outcome = self._steps(group).join(request, ticket, self._wall_ms())
        self._apply(shard, group, outcome)
        self._log(shard, group, before)
        shard.drop_if_unused(group)

    def sync(self, group_id: str, request: Sync, ticket: Waiting) -> None:
        try:
            shard = self._named(group_id)
        except ApiError as e:
            if e.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # the rebalance of this member is lost: the member has to join again
                raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS) from e
            raise
        group = self._known(shard, group_id)
        if group.consumer is not None:
            self.classic_sync(shard, group, request, ticket)
            return
        self._apply(shard, group, self._steps(group).sync(request, ticket, self._wall_ms()))

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        try:
            shard = self._named(group_id)
        except ApiError as e:
            if e.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return ErrorCode.NONE
            raise
        group = self._known(shard, group_id)
        if group.consumer is not None:
            return self.classic_heartbeat(shard, group, member_id, instance_id, generation)
        code, outcome = self._steps(group).heartbeat(member_id, instance_id, generation)
        self._apply(shard, group, outcome)
        return code

    def leave(self, group_id: str, leaving: Iterable[tuple[str, str | None]]) -> list[ErrorCode]:
        """Removes members; returns an error for each (member id, group.instance.id)."""
        shard = self._named(group_id)
        group = shard.groups.get(group_id)
        codes = []
        for member_id, instance_id in leaving:
            if group is None:
                codes.append(ErrorCode.UNKNOWN_MEMBER_ID)
                continue
            before = group.state
            code, outcome = self._steps(group).leave(member_id, instance_id, self._wall_ms())
            self._apply(shard, group, outcome)
            self._log(shard, group, before)
            codes.append(code)
        if group is not None:
            shard.drop_if_unused(group)
        return codes

    def _known(self, shard: GroupShard, group_id: str) -> Group:
        group = shard.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    # ---------------------------------------------------------------- offsets

    def commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        committed: Mapping[TopicPartition, CommittedOffset],
        ticket: Waiting,
        *,
        knows_epochs: bool = True,
    ) -> None:
        """`knows_epochs`: whether the request's version is one for members with epochs."""
        shard = self.shard_of(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            if generation >= 0:
                raise ApiError(ErrorCode.ILLEGAL_GENERATION)
            group = shard.new_group(group_id)
        if not knows_epochs and group.consumer is not None:
            member = group.consumer.members.get(member_id)
            if member is not None and member.subscription.classic is None:
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        code, outcome = offsets.commit(group, member_id, instance_id, generation, committed, ticket)
        self._apply(shard, group, outcome)
        if code is not ErrorCode.NONE:
            shard.drop_if_unused(group)
            raise ApiError(code)

    def partition_for_commit(self, group_id: str) -> Partition:
        """The partition for which a transaction's commit is verified."""
        return self.shard_of(group_id).partition

    def commit_in_transaction(
        self,
        group_id: str,
        member: tuple[str, str | None, int],
        producer: tuple[int, int],
        committed: Mapping[TopicPartition, CommittedOffset],
        ticket: Waiting,
        verification: Verification | None,
    ) -> None:
        """`member` is (id, instance id, generation); `producer` is (id, epoch)."""
        shard = self._named(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            if member[2] >= 0:
                raise ApiError(ErrorCode.ILLEGAL_GENERATION)
            group = shard.new_group(group_id)
        code, outcome = offsets.commit_in_transaction(group, *member, producer, committed, ticket)
        self._apply(shard, group, outcome, verification)
        if code is not ErrorCode.NONE:
            shard.drop_if_unused(group)
            raise ApiError(code)

    def takes_markers(self, tp: TopicPartition) -> bool:
        """False while the partition is loading: the load would miss the marker."""
        shard = self.shards.get(tp.partition)
        return shard is not None and shard.leads and shard.loaded

    def marker_appended(
        self, tp: TopicPartition, producer_id: int, commit: bool, end_offset: int
    ) -> None:
        """Ends a producer's transaction in this partition, once the HW has passed the marker."""
        self.shards[tp.partition].pending.append(PendingMarker(producer_id, commit, end_offset))

    def fetch(
        self,
        group_id: str,
        tps: Sequence[TopicPartition] | None,
        require_stable: bool,
        *,
        timed_out: bool = False,
        member: tuple[str | None, int] = (None, -1),
    ) -> dict[TopicPartition, CommittedOffset | ErrorCode | None]:
        """`member` is (id, epoch), which are checked in a group of the consumer protocol."""
        if member != (None, -1):
            self._check_epoch(group_id, *member)
        group = self.shard_of(group_id).groups.get(group_id)
        return offsets.fetch(group, tps, require_stable, timed_out=timed_out)

    def _check_epoch(self, group_id: str, member_id: str | None, epoch: int) -> None:
        """Raises ApiError for a member of the consumer protocol that is not where it says."""
        group = self.shard_of(group_id).groups.get(group_id)
        if group is not None and group.consumer is not None:
            code = offsets.by_epoch(group.consumer, member_id or "", epoch, anybody=False)
            if code is not ErrorCode.NONE:
                raise ApiError(code)

    def commits_on_their_way(
        self, group_id: str, tps: Sequence[TopicPartition] | None
    ) -> CommitsOnTheirWay | None:
        """The commits that a stable answer must wait for, if any."""
        shard = self.shard_of(group_id)
        group = shard.groups.get(group_id)
        if group is None or not offsets.on_their_way(group, tps):
            return None
        return CommitsOnTheirWay(shard, shard.partition.leader_log().log_end_offset)

    def delete_offsets(
        self, group_id: str, tps: Sequence[TopicPartition], ticket: Waiting
    ) -> dict[TopicPartition, ErrorCode]:
        shard = self._named(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        code, errors, outcome = offsets.delete(group, tps, ticket)
        if code is not ErrorCode.NONE:
            raise ApiError(code)
        self._apply(shard, group, outcome)
        return errors

    def topics_deleted(self, gone: Sequence[TopicPartition]) -> None:
        """Removes the offsets of partitions that no longer exist."""
        if gone:
            self._each(lambda group: offsets.remove(group, gone))

    def _expire(self) -> None:
        now, retention = self._wall_ms(), self.config.offsets_retention_minutes * 60_000
        self._each(lambda group: offsets.expire(group, now, retention))

    def _each(self, step: Callable[[Group], Outcome]) -> None:
        for shard in list(self.shards.values()):
            if shard.loaded and shard.leads:
                for group in list(shard.groups.values()):
                    self._apply(shard, group, step(group))

    # ---------------------------------------------------------------- administration

    def delete_group(self, group_id: str, ticket: Waiting) -> None:
        shard = self.shard_of(group_id)
        if group_id in shard.share_groups:
            self.delete_share_group(shard, shard.share_groups[group_id], ticket)
            return
        group = shard.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        code, outcome = offsets.delete_group(group, ticket)
        if code is not ErrorCode.NONE:
            raise ApiError(code)
        self._apply(shard, group, outcome)
        shard.drop_if_unused(group)

    def describe(self, group_id: str) -> Shown | None:
        """What clients are shown of a group."""
        return self.shard_of(group_id).shown(group_id)

    def groups(self) -> tuple[ErrorCode, list[Shown]]:
        """What clients are shown of all groups that this broker coordinates, and whether more are
        being loaded."""
        found: list[Shown] = []
        code = ErrorCode.NONE
        for _, shard in sorted(self.shards.items()):
            if not shard.leads:
                continue
            if not shard.loaded:
                code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                continue
            self.advance(shard)
            found += shard.all_shown()
        return code, found

    # ---------------------------------------------------------------- carrying out

    def _steps(self, group: Group) -> Rebalancing:
        return Rebalancing(group, self.limits)

    def _apply(
        self,
        shard: GroupShard,
        group: Group,
        outcome: Outcome,
        verification: Verification | None = None,
    ) -> None:
        for write in outcome.writes:
            self._append(shard, group, write, verification)
        for (kind, member_id), delay in outcome.timers.items():
            self._set_timer(shard, group, kind, member_id, delay)
        self._answer(outcome.answers)

    def _append(
        self, shard: GroupShard, group: Group, write: Write, verification: Verification | None
    ) -> None:
        if not write.records:
            if group.consumer is not None and group.pending_writes:
                self._after_others(shard, group, write)
            else:
                self._apply(shard, group, write.then(ErrorCode.NONE))
            return
        try:
            end_offset = self._append_records(shard, write.records, write.producer, verification)
        except ApiError as e:
            log.warning(
                "group %s: nothing could be appended to %s: %s",
                group.group_id,
                shard.partition.tp,
                e,
            )
            self._apply(shard, group, write.then(e.code))
            return
        group.pending_writes += 1
        first = end_offset - len(write.records)
        group.appended(write.records, first)
        moved = Outcome() if write.at_once is None else write.at_once()
        if write.producer is not None:
            shard.hold(write.producer[0], zip(write.records, count(first)))
        pending = PendingWrite(group, write, end_offset)
        self._wait_for_hw(shard, pending, self.config.offsets_commit_timeout_ms)
        self._apply(shard, group, moved)

    def _after_others(self, shard: GroupShard, group: Group, write: Write) -> None:
        """Settles a write without records after those that were appended before."""
        group.pending_writes += 1
        pending = PendingWrite(group, write, shard.pending[-1].end_offset)
        self._wait_for_hw(shard, pending, self.config.offsets_commit_timeout_ms)

    def _append_records(
        self,
        shard: GroupShard,
        records: Iterable[GroupLogRecord],
        producer: tuple[int, int] | None = None,
        verification: Verification | None = None,
    ) -> int:
        now = self._wall_ms()
        codec = Compression(self.config.offsets_topic_compression_codec)
        pairs = [encode(record) for record in records]
        producer_id, epoch = producer or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        batch = build_batch(
            [Record(key, value, timestamp=now) for key, value in pairs],
            producer_id=producer_id,
            producer_epoch=epoch,
            compression=codec,
            attributes=0 if producer is None else TRANSACTIONAL,
        )
        limit = shard.partition.leader_log().config.max_message_bytes
        if len(batch) > limit:
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"{len(batch)} bytes, limit {limit}")
        info = self.replicas.append(
            shard.partition, memoryview(batch), ALL, Origin.COORDINATOR, verification=verification
        )
        return info.last_offset + 1

    def settled(self, shard: GroupShard, pending: GroupWrite, code: ErrorCode) -> None:
        if isinstance(pending.write, ShareWrite):
            pending.write.then(code)
            return
        group = pending.named
        assert isinstance(group, Group)
        before = group.state
        self._apply(shard, group, pending.write.then(code))
        self._log(shard, group, before)

    def _set_timer(
        self, shard: GroupShard, group: Group, kind: str, member_id: str, delay: int | None
    ) -> None:
        key = (group.group_id, kind, member_id)
        timer = shard.timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if delay is not None and not shard.closed:
            shard.timers[key] = self.purgatories.call_at(
                monotonic_ms() + delay, lambda: self._due(shard, group, kind, member_id)
            )

    def _due(self, shard: GroupShard, group: Group, kind: str, member_id: str) -> None:
        shard.timers.pop((group.group_id, kind, member_id), None)
        if not shard.leads or shard.groups.get(group.group_id) is not group:
            return
        steps, now, before = self._steps(group), self._wall_ms(), group.state
        try:
            if kind in MEMBER_TIMERS:
                self.consumer_due(shard, group, kind, member_id)
                outcome = Outcome()
            elif kind == SESSION:
                log.info("group %s: member %s was not heard of", group.group_id, member_id)
                outcome = steps.session_expired(member_id, now)
            elif kind == REBALANCE:
                outcome = steps.rebalance_due(now)
            else:
                outcome = steps.sync_due(now)
            self._apply(shard, group, outcome)
        except Exception:  # the wheel must go on turning
            log.exception("group %s: its %s timer failed", group.group_id, kind)
        self._log(shard, group, before)
        shard.drop_if_unused(group)

    def _log(self, shard: GroupShard, group: Group, before: State) -> None:
        if group.state is not before:
            log.info(
                "group %s: %s, generation %d, %d members (%s)",
                group.group_id, group.state.value, group.generation, len(group.members),
                shard.partition.tp,
            )  # fmt: skip

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await self._every(self.config.offsets_retention_check_interval_ms, self._expire)
