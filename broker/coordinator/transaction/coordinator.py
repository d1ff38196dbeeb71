"""The transaction coordinator of one broker: the shell around the transactions.

It finds the transactional id, lets a pure step happen, and carries out what that wants: a record is
appended to the id's partition of __transaction_state with acks=all (and replayed when the HW has
passed it), markers go to `markers`, answers to whoever waits.

A broker that becomes leader of a partition reads it first, and serves none of its ids before it has
read everything and the HW has reached the end that the log had at the election.  Then it sends the
markers of every transaction that was decided and not finished.  Markers carry the leader epoch, by
which partitions refuse those of a coordinator that was replaced.

Source: kafka.coordinator.transaction.TransactionCoordinator, TransactionStateManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import trio

from broker.admin.topic_names import TRANSACTION_STATE_TOPIC
from broker.coordinator.group.records import partition_for
from broker.coordinator.group.waiting import DelayedWrite, Waiting
from broker.coordinator.loading import LoadError, load, load_times
from broker.coordinator.transaction import steps
from broker.coordinator.transaction.markers import MarkerSender
from broker.coordinator.transaction.records import TransactionRecord, decode, encode
from broker.coordinator.transaction.shard import PendingWrite, Shard
from broker.coordinator.transaction.transaction import Identity, Outcome, Transaction, Write
from broker.coordinator.transaction.verifier import Verifier
from broker.replica.manager import monotonic_ms
from broker.replica.partition import Role
from highwater.common.errors import ApiError, ErrorCode
from highwater.common.types import TopicPartition
from highwater.common.wire.records import Record, build_batch, parse_header

if TYPE_CHECKING:
    from broker.metadata_cache import MetadataCache
    from broker.purgatory import Purgatories
    from broker.replica.manager import ReplicaManager
    from broker.replica.partition import Partition
    from highwater.common.config import Config
    from highwater.common.world.api import World

log = logging.getLogger(__name__)

ALL = -1
HW_POLL_S = 0.01
LOAD_RETRY_S = 1.0
COMPLETE_AGAIN_MS = 100


class TransactionCoordinator:
    """Methods raise ApiError where this broker cannot answer for the transactional id."""

    def __init__(
        self,
        config: Config,
        world: World,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        purgatories: Purgatories,
    ) -> None:
        self.config = config
        self.world = world
        self.replicas = replicas
        self.metadata = metadata
        self.purgatories = purgatories
        self.shards: dict[int, Shard] = {}
        self.markers = MarkerSender(config, world, metadata, self.marked)
        self.verifier = Verifier(config, world, metadata, self)
        self.load_times = load_times()
        self._nursery: trio.Nursery | None = None
        replicas.on_role_change.append(self.role_changed)

    # ---------------------------------------------------------------- where an id belongs

    def partition_of(self, transactional_id: str) -> TopicPartition:
        known = len(self.metadata.partitions_of(TRANSACTION_STATE_TOPIC))
        count = known or self.config.transaction_state_log_num_partitions
        return TopicPartition(TRANSACTION_STATE_TOPIC, partition_for(transactional_id, count))

    def _shard(self, transactional_id: str | None) -> Shard:
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        shard = self.shards.get(self.partition_of(transactional_id).partition)
        if shard is None or not shard.leads:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        if not shard.loaded:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self._advance(shard)
        return shard

    # ---------------------------------------------------------------- requests of producers

    def needs_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: Identity | None
    ) -> bool:
        """Whether `init` wants a fresh producer id; raises as `init` does."""
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self.config.transaction_max_timeout_ms:
            raise ApiError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        shard = self._shard(transactional_id)
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
        """InitProducerId: the ticket's answer is an Identity or an error code."""
        shard = self._shard(transactional_id)
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
    ) -> None:
        """AddPartitionsToTxn, AddOffsetsToTxn: the ticket's answer is an error code."""
        shard = self._shard(transactional_id)
        txn = shard.transactions.get(transactional_id)
        outcome = steps.add_partitions(txn, producer, partitions, self._wall_ms(), ticket)
        self._apply(shard, txn, outcome)

    def verify(
        self, transactional_id: str, producer: Identity, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """AddPartitionsToTxn with verifyOnly, from another broker or this one (KIP-890)."""
        txn = self._shard(transactional_id).transactions.get(transactional_id)
        return steps.verify(txn, producer, partitions)

    def end(self, transactional_id: str, producer: Identity, commit: bool, ticket: Waiting) -> None:
        """EndTxn: the ticket's answer is an error code."""
        shard = self._shard(transactional_id)
        txn = shard.transactions.get(transactional_id)
        self._apply(shard, txn, steps.end(txn, producer, commit, self._wall_ms(), ticket))

    # ---------------------------------------------------------------- administration

    def describe(self, transactional_id: str) -> Transaction | None:
        return self._shard(transactional_id).transactions.get(transactional_id)

    def transactions(self) -> tuple[ErrorCode, list[Transaction]]:
        """All that this broker coordinates, and whether more are being loaded."""
        found: list[Transaction] = []
        for _, shard in sorted(self.shards.items()):
            if not shard.leads:
                continue
            if not shard.loaded:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, []
            self._advance(shard)
            found += (txn for txn in shard.transactions.values() if txn.stored is not None)
        return ErrorCode.NONE, found

    # ---------------------------------------------------------------- markers

    def marked(self, shard: Shard, txn: Transaction, partitions: Sequence[TopicPartition]) -> None:
        """The sender says which partitions have their marker."""
        if shard.leads:
            self._apply(shard, txn, steps.marked(txn, partitions, self._wall_ms()))

    def _each(self, step: Callable[[Transaction], Outcome]) -> None:
        for shard in list(self.shards.values()):
            if shard.loaded and shard.leads:
                self._advance(shard)
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

    def _wall_ms(self) -> int:
        return self.world.clock.wall_ms()

    def _apply(self, shard: Shard, txn: Transaction | None, outcome: Outcome) -> None:
        if outcome.write is not None:
            assert txn is not None
            self._append(shard, txn, outcome.write)
        if outcome.send_markers and txn is not None:
            self.markers.send(shard, txn)
            self._apply(shard, txn, steps.complete(txn, self._wall_ms()))
        for ticket, answer in outcome.answers:
            assert isinstance(ticket, Waiting)
            ticket.answer = answer
            self.purgatories.check(Waiting.kind, ticket.keys)

    def _append(self, shard: Shard, txn: Transaction, write: Write) -> None:
        try:
            end_offset = self._append_record(shard, write.record)
        except ApiError as e:
            log.warning("transactional id %s: no record: %s", txn.transactional_id, e)
            self._apply(shard, txn, write.then(e.code))
            if txn.state.is_prepared and not txn.unmarked:
                self._complete_later(shard, txn)
            return
        pending = PendingWrite(txn, write, end_offset)
        shard.pending.append(pending)
        txn.pending = True
        operation = DelayedWrite(
            shard.partition.tp,
            pending,
            self.config.request_timeout_ms,
            lambda: self._advance(shard),
            lambda code: self._settle(shard, pending, code),
        )
        self.purgatories.submit(operation, lambda _: None)

    def _complete_later(self, shard: Shard, txn: Transaction) -> None:
        def again() -> None:
            if shard.leads:
                self._apply(shard, txn, steps.complete(txn, self._wall_ms()))

        self.purgatories.call_at(monotonic_ms() + COMPLETE_AGAIN_MS, again)

    def _append_record(self, shard: Shard, record: TransactionRecord) -> int:
        key, value = encode(record)
        batch = build_batch([Record(key, value, timestamp=self._wall_ms())])
        tp = shard.partition.tp
        info, _ = self.replicas.append(tp, memoryview(batch), [parse_header(batch)], ALL)
        return info.last_offset + 1

    def _advance(self, shard: Shard) -> None:
        """Replays what the HW has passed, in order, and says so."""
        while shard.leads:
            done = shard.take_committed()
            if done is None:
                return
            if done.settled and done.transaction.state.is_prepared:
                # its producer was told that the outcome is unknown; the decision holds all the same
                self._apply(shard, done.transaction, Outcome(send_markers=True))
            self._settle(shard, done, ErrorCode.NONE)

    def _settle(self, shard: Shard, pending: PendingWrite, code: ErrorCode) -> None:
        if pending.settled:
            return
        pending.settled = True
        self._apply(shard, pending.transaction, pending.write.then(code))

    # ---------------------------------------------------------------- roles

    def role_changed(self, partition: Partition) -> None:
        """The replica manager says that this broker's role for a partition may have changed."""
        tp = partition.tp
        if tp.topic != TRANSACTION_STATE_TOPIC:
            return
        shard = self.shards.get(tp.partition)
        if shard is not None and (shard.partition is not partition or not shard.leads):
            self._unload(shard)
            shard = None
        if shard is None and partition.role is Role.LEADER and self._nursery is not None:
            shard = self.shards[tp.partition] = Shard(partition)
            self._nursery.start_soon(self._load, shard)

    def _unload(self, shard: Shard) -> None:
        shard.closed = True
        del self.shards[shard.partition.tp.partition]
        self.markers.forget(shard)
        while shard.pending:
            done = shard.pending.popleft()
            self._settle(shard, done, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log.info(
            "%s: %d transactional ids are coordinated elsewhere",
            shard.partition.tp,
            len(shard.transactions),
        )

    async def _load(self, shard: Shard) -> None:
        partition = shard.partition
        started, count = monotonic_ms(), 0
        disk = self.world.disk
        while shard.leads:
            try:
                source = partition.leader_log()
                end = source.log_end_offset
                loaded = await load(source, end, disk, decode, shard.replay, lambda: shard.leads)
                count = loaded.count
                while shard.leads and partition.high_watermark < end:
                    await trio.sleep(HW_POLL_S)
                break
            except (LoadError, OSError, ApiError) as e:
                if shard.leads:
                    log.error("%s cannot be loaded, trying again: %s", partition.tp, e)
                    shard.forget()
                    await trio.sleep(LOAD_RETRY_S)
        if not shard.leads:
            return
        shard.loaded = True
        self.load_times.append(monotonic_ms() - started)
        for txn in list(shard.transactions.values()):
            if txn.state.is_prepared:
                log.info("transactional id %s: %s, markers are sent again",
                         txn.transactional_id, txn.state.label)  # fmt: skip
                self._apply(shard, txn, Outcome(send_markers=True))
        log.info(
            "%s: %d transactional ids loaded from %d records in %d ms",
            partition.tp, len(shard.transactions), count, monotonic_ms() - started,
        )  # fmt: skip

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

    @staticmethod
    async def _every(interval_ms: int, what: Callable[[], None]) -> None:
        while True:
            await trio.sleep(interval_ms / 1000)
            try:
                what()
            except Exception:
                log.exception("upkeep of transactions failed; it is tried again")
