"""The share coordinator of one broker: the shell around the states of share-partitions.

For each call it finds the share-partition, runs a pure step, and appends the step's record to the
partition of __share_group_state with acks=all.  The call is answered when the HW has passed the
record.  One that changes nothing is answered when what was appended before is committed, as its
answer tells of it.

The topic is not compacted: the records of each partition below the oldest snapshot that counts are
deleted from time to time, and a snapshot that has become old is written again before.

Source: ShareCoordinatorService of Apache Kafka 4.2.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import cached_property, partial
from typing import TYPE_CHECKING

import trio

from highwater.base.event_loop import monotonic_ms
from highwater.broker.coordinator.runtime import ALL, STORE_ERRORS, Coordinator
from highwater.broker.coordinator.shard import PendingWrite
from highwater.broker.coordinator.share.records import StateRecord, decode, encode
from highwater.broker.coordinator.share.shard import Done, StateShard, StateWrite
from highwater.broker.coordinator.share.state_metrics import WriteMeter
from highwater.broker.log.parts import Origin
from highwater.broker.share.persister import SharePartitionKey, StateAnswer
from highwater.broker.share.state_messages import WRITE, StateCall
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.topic_names import SHARE_GROUP_STATE_TOPIC
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.compression import Compression
from highwater.kafka.wire.records import Record, build_batch

if TYPE_CHECKING:
    from highwater.broker.replica.partition import Partition

log = logging.getLogger(__name__)


class ShareCoordinator(Coordinator[StateShard, StateRecord]):
    topic = SHARE_GROUP_STATE_TOPIC
    coordinates = "share-partitions"

    @cached_property
    def writes(self) -> WriteMeter:
        return WriteMeter()

    @property
    def partitions(self) -> int:
        return self.config.share_coordinator_state_topic_num_partitions

    def new_shard(self, partition: Partition) -> StateShard:
        updates = self.config.share_coordinator_snapshot_update_records_per_snapshot
        return StateShard(partition, updates)

    def decode(self, key: bytes | None, value: bytes | None) -> StateRecord | None:
        return decode(key, value)

    def took_over(self, shard: StateShard) -> None:
        """Does nothing: states need nobody who looks after them."""

    def gave_up(self, shard: StateShard) -> None:
        """Does nothing; those who wait are answered next."""

    # ---------------------------------------------------------------- calls

    def carry_out(self, call: StateCall, done: Done) -> None:
        """Calls `done` once, perhaps at once."""
        try:
            shard = self.shard_of(str(call.key))
        except ApiError as e:
            done(StateAnswer(e.code))
            return
        step = shard.states.step(call, self._wall_ms(), self._exists)
        if step.record is not None:
            self._append(shard, step.record, self._measured(call, done), step.answer)
        elif shard.pending:
            pending = PendingWrite(done, step.answer, shard.pending[-1].end_offset)
            self._wait_for_hw(shard, pending, self.config.share_coordinator_write_timeout_ms)
        else:
            done(step.answer)

    def _measured(self, call: StateCall, done: Done) -> Done:
        """Whoever waits for a write; its time is noted."""
        if call.api_key != WRITE:
            return done
        began = monotonic_ms()
        self.writes.begun(began)

        def answered(answer: StateAnswer) -> None:
            self.writes.times.append(monotonic_ms() - began)
            done(answer)

        return answered

    def topics_deleted(self, topic_ids: Collection[bytes]) -> None:
        """Deletes the state of topics that no longer exist."""
        if topic_ids:
            self._each(lambda shard: shard.states.of_topics(topic_ids))

    def _exists(self, key: SharePartitionKey) -> bool:
        name = self.metadata.topic_of(key.topic_id)
        return name is not None and (
            self.metadata.partition(TopicPartition(name, key.partition)) is not None
        )

    # ---------------------------------------------------------------- upkeep

    def snapshot_cold(self) -> None:
        now_ms = self._wall_ms()
        interval_ms = self.config.share_coordinator_cold_partition_snapshot_interval_ms
        self._each(lambda shard: shard.states.cold(now_ms, interval_ms))

    def prune(self) -> None:
        """Deletes the records that no snapshot needs any more, up to the HW at most."""
        for shard in self._served():
            first = shard.states.first_needed()
            partition = shard.partition
            if first is not None and first <= partition.high_watermark:
                with self.replicas.disk_of(partition):
                    partition.leader_log().advance_log_start(first)

    def _served(self) -> list[StateShard]:
        return [shard for shard in self.shards.values() if shard.loaded and shard.leads]

    def _each(self, step: Callable[[StateShard], list[StateRecord]]) -> None:
        for shard in self._served():
            for record in step(shard):
                self._append(shard, record, _nobody, StateAnswer())

    # ---------------------------------------------------------------- carrying out

    def _append(
        self, shard: StateShard, record: StateRecord, done: Done, answer: StateAnswer
    ) -> None:
        try:
            offset = self._append_record(shard, record)
        except ApiError as e:
            log.warning("nothing could be appended to %s: %s", shard.partition.tp, e)
            done(_failed(e.code))
            return
        shard.replay(record, offset)
        pending = PendingWrite(done, answer, offset + 1)
        self._wait_for_hw(shard, pending, self.config.share_coordinator_write_timeout_ms)

    def _append_record(self, shard: StateShard, record: StateRecord) -> int:
        """Returns the record's offset."""
        batch = build_batch(
            [Record(*encode(record), timestamp=self._wall_ms())],
            compression=Compression(self.config.share_coordinator_state_topic_compression_codec),
        )
        limit = shard.partition.leader_log().config.max_message_bytes
        if len(batch) > limit:
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"{len(batch)} bytes, limit {limit}")
        info = self.replicas.append(shard.partition, memoryview(batch), ALL, Origin.COORDINATOR)
        return info.last_offset

    def settled(self, shard: StateShard, pending: StateWrite, code: ErrorCode) -> None:
        done, answer = pending.named, pending.write
        done(_failed(code) if code else answer)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        config = self.config
        cold_ms = config.share_coordinator_cold_partition_snapshot_interval_ms
        prune_ms = config.share_coordinator_state_topic_prune_interval_ms
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(partial(self._every, cold_ms, self.snapshot_cold))
            nursery.start_soon(partial(self._every, prune_ms, self.prune))
            task_status.started()


def _failed(code: ErrorCode) -> StateAnswer:
    code = STORE_ERRORS.get(code, code)
    return StateAnswer(code, "the state could not be stored")


def _nobody(answer: StateAnswer) -> None:
    """Takes the answer of an upkeep's record: the next round does what this one could not."""
