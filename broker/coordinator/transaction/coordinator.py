"""The transaction coordinator of one broker: the shell around the transactions.

For each request it finds the transactional id, runs a pure step, and carries out the outcome: a
record is appended to the id's partition of __transaction_state with acks=all (and replayed when the
HW has passed it), markers go to `markers`, and answers go to the waiting clients.

When a partition has been loaded, markers are sent for every transaction that is decided but not
finished.  They carry the partition's leader epoch, by which others refuse the markers of a
coordinator that has been replaced.

Source: kafka.coordinator.transaction.TransactionCoordinator, TransactionStateManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

import trio

from highwater.base.event_loop import monotonic_ms
from highwater.broker.coordinator.pending import Waiting
from highwater.broker.coordinator.runtime import ALL, Coordinator
from highwater.broker.coordinator.shard import PendingWrite
from highwater.broker.coordinator.transaction import steps
from highwater.broker.coordinator.transaction.markers import MarkerSender
from highwater.broker.coordinator.transaction.records import (
    EPOCH_BUMPED,
    TransactionRecord,
    decode,
    encode,
)
from highwater.broker.coordinator.transaction.shard import TransactionShard, TransactionWrite
from highwater.broker.coordinator.transaction.transaction import (
    Identity,
    Outcome,
    Transaction,
    Write,
)
from highwater.broker.coordinator.transaction.verifier import Verifier
from highwater.broker.log.parts import Origin
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.topic_names import TRANSACTION_STATE_TOPIC
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.records import Record, build_batch

if TYPE_CHECKING:
    from highwater.broker.metadata.metadata_cache import MetadataCache
    from highwater.broker.replica.partition import Partition
    from highwater.broker.replica.replica_manager import ReplicaManager
    from highwater.broker.request.purgatory import Purgatories
    from highwater.kafka.config import Config
    from highwater.world.api import World

log = logging.getLogger(__name__)

COMPLETE_AGAIN_MS = 100


class TransactionCoordinator(Coordinator[TransactionShard, TransactionRecord]):
    topic = TRANSACTION_STATE_TOPIC
    coordinates = "transactional ids"

    def __init__(
        self,
        config: Config,
        world: World,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        purgatories: Purgatories,
        completed: Callable[[str, Iterable[Hashable]], None],
    ) -> None:
        super().__init__(config, world, replicas, metadata, purgatories, completed)
        self.markers = MarkerSender(config, world, metadata, self.marked)
        self.verifier = Verifier(config, world, metadata, self)

    @property
    def partitions(self) -> int:
        return self.config.transaction_state_log_num_partitions

    def new_shard(self, partition: Partition) -> TransactionShard:
        return TransactionShard(partition)

    def decode(self, key: bytes | None, value: bytes | None) -> TransactionRecord | None:
        return decode(key, value)

    def took_over(self, shard: TransactionShard) -> None:
        for txn in list(shard.transactions.values()):
            if txn.state.is_prepared:
                log.info("transactional id %s: %s, markers are sent again",
                         txn.transactional_id, txn.state.label)  # fmt: skip
                self._apply(shard, txn, Outcome(send_markers=True))

    def gave_up(self, shard: TransactionShard) -> None:
        self.markers.forget(shard)

    def _named(self, transactional_id: str | None) -> TransactionShard:
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        return self.shard_of(transactional_id)

    # ---------------------------------------------------------------- requests of producers

    def needs_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: Identity | None
    ) -> bool:
        """Whether `init` needs a fresh producer id; raises what `init` raises."""
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self.config.transaction_max_timeout_ms:
            raise ApiError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        shard = self._named(transactional_id)
        found = shard.transactions.get(transactional_id)
        return found is None or steps.needs_producer_id(found, expected)

    def init(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: Identity | None,
        fresh_id: int | None,
        ticket: Waiting,
    ) -> None:
        """Handles InitProducerId: the ticket is answered with an Identity or an error code."""
        shard = self._named(transactional_id)
        txn = shard.transaction(transactional_id)
        now = self._wall_ms()
        self._apply(shard, txn, steps.init(txn, timeout_ms, expected, fresh_id, now, ticket))
        shard.drop_if_unused(txn)

    def add_partitions(
        self,
        transactional_id: str,
        producer: Identity,
        partitions: Iterable[TopicPartition],
        ticket: Waiting,
        client_version: int = 0,
    ) -> None:
        """Handles AddPartitionsToTxn and AddOffsetsToTxn; answers the ticket with an error code."""
        shard = self._named(transactional_id)
        txn = shard.transactions.get(transactional_id)
        now = self._wall_ms()
        outcome = steps.add_partitions(txn, producer, partitions, now, ticket, client_version)
        self._apply(shard, txn, outcome)

    def add_by_broker(
        self,
        transactional_id: str,
        producer: Identity,
        partitions: Sequence[TopicPartition],
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Adds partitions for a broker that got a batch of the transaction: `done` is called with
        the error code.  Raises ApiError if another broker must be asked."""

        def render(code: ErrorCode) -> Response:
            done(code)
            return Response()

        ticket = Waiting(render)
        self.add_partitions(transactional_id, producer, partitions, ticket, EPOCH_BUMPED)
        self.purgatories.submit(ticket, lambda _: None)

    def verify(
        self, transactional_id: str, producer: Identity, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Handles AddPartitionsToTxn with verifyOnly, from any broker (KIP-890)."""
        txn = self._named(transactional_id).transactions.get(transactional_id)
        return steps.verify(txn, producer, partitions)

    def end(self, transactional_id: str, producer: Identity, commit: bool, ticket: Waiting) -> None:
        """Handles EndTxn: the ticket is answered with an error code."""
        shard = self._named(transactional_id)
        txn = shard.transactions.get(transactional_id)
        self._apply(shard, txn, steps.end(txn, producer, commit, self._wall_ms(), ticket))

    def ends_last_epoch(self, transactional_id: str) -> bool:
        """Whether `end_and_bump` needs a fresh producer id; raises what `end` raises."""
        found = self._named(transactional_id).transactions.get(transactional_id)
        return steps.ends_last_epoch(found)

    def end_and_bump(
        self,
        transactional_id: str,
        producer: Identity,
        commit: bool,
        fresh_id: int | None,
        ticket: Waiting,
    ) -> None:
        """Handles EndTxn from v5 on: the ticket is answered with an Identity or an error code."""
        shard = self._named(transactional_id)
        txn = shard.transactions.get(transactional_id)
        now = self._wall_ms()
        self._apply(shard, txn, steps.end_and_bump(txn, producer, commit, fresh_id, now, ticket))

    # ---------------------------------------------------------------- administration

    def describe(self, transactional_id: str) -> Transaction | None:
        return self._named(transactional_id).transactions.get(transactional_id)

    def transactions(self) -> tuple[ErrorCode, list[Transaction]]:
        """All transactions that this broker coordinates, and whether more are being loaded."""
        found: list[Transaction] = []
        for _, shard in sorted(self.shards.items()):
            if not shard.leads:
                continue
            if not shard.loaded:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, []
            self.advance(shard)
            found += (txn for txn in shard.transactions.values() if txn.stored is not None)
        return ErrorCode.NONE, found

    # ---------------------------------------------------------------- markers

    def marked(
        self, shard: TransactionShard, txn: Transaction, partitions: Sequence[TopicPartition]
    ) -> None:
        """Called by the sender with the partitions that have their marker."""
        if shard.leads:
            self._apply(shard, txn, steps.marked(txn, partitions, self._wall_ms()))

    def _each(self, step: Callable[[Transaction], Outcome]) -> None:
        for shard in list(self.shards.values()):
            if shard.loaded and shard.leads:
                self.advance(shard)
                for txn in list(shard.transactions.values()):
                    self._apply(shard, txn, step(txn))

    def _abort_timed_out(self) -> None:
        now, monotonic = self._wall_ms(), monotonic_ms()

        def step(txn: Transaction) -> Outcome:
            outcome = steps.time_out(txn, now, monotonic)
            if outcome.write is not None:
                log.info("transactional id %s: its transaction timed out", txn.transactional_id)
            return outcome

        self._each(step)

    def _expire(self) -> None:
        now, expiration = self._wall_ms(), self.config.transactional_id_expiration_ms
        self._each(lambda txn: steps.expire(txn, now, expiration))

    # ---------------------------------------------------------------- carrying out

    def _apply(self, shard: TransactionShard, txn: Transaction | None, outcome: Outcome) -> None:
        if outcome.write is not None:
            assert txn is not None
            self._append(shard, txn, outcome.write)
        if outcome.send_markers and txn is not None:
            self.markers.send(shard, txn)
            self._apply(shard, txn, steps.complete(txn, self._wall_ms()))
        self._answer(outcome.answers)

    def _append(self, shard: TransactionShard, txn: Transaction, write: Write) -> None:
        try:
            end_offset = self._append_record(shard, write.record)
        except ApiError as e:
            log.warning("transactional id %s: no record: %s", txn.transactional_id, e)
            self._apply(shard, txn, write.then(e.code))
            if txn.state.is_prepared and not txn.unmarked:
                self._complete_later(shard, txn)
            return
        txn.pending = True
        pending = PendingWrite(txn, write, end_offset)
        self._wait_for_hw(shard, pending, self.config.request_timeout_ms)

    def _complete_later(self, shard: TransactionShard, txn: Transaction) -> None:
        def again() -> None:
            if shard.leads:
                self._apply(shard, txn, steps.complete(txn, self._wall_ms()))

        self.purgatories.call_at(monotonic_ms() + COMPLETE_AGAIN_MS, again)

    def _append_record(self, shard: TransactionShard, record: TransactionRecord) -> int:
        key, value = encode(record)
        batch = build_batch([Record(key, value, timestamp=self._wall_ms())])
        info = self.replicas.append(shard.partition, memoryview(batch), ALL, Origin.COORDINATOR)
        return info.last_offset + 1

    def committed_late(self, shard: TransactionShard, pending: TransactionWrite) -> None:
        """Sends markers: the producer has had an error, but the decision holds all the same."""
        if pending.named.state.is_prepared:
            self._apply(shard, pending.named, Outcome(send_markers=True))

    def settled(self, shard: TransactionShard, pending: TransactionWrite, code: ErrorCode) -> None:
        self._apply(shard, pending.named, pending.write.then(code))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        config = self.config
        aborts = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        expiry = config.transaction_remove_expired_transaction_cleanup_interval_ms
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await nursery.start(self.markers.run)
            await nursery.start(self.verifier.run)
            nursery.start_soon(self._every, aborts, self._abort_timed_out)
            nursery.start_soon(self._every, expiry, self._expire)
            task_status.started()
