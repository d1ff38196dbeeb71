"""A producer: records in, batches out, one report for every record.

`run` is a task that keeps one sender for each broker that leads something.  A sender takes the next
batch of every partition of its broker into one Produce request, sends it, and does not wait for the
answer: up to `max_in_flight` requests to a broker are in flight.  Requests leave in order, because
one task sends them all.  `batches` decides what stays in order and what is retried.

Every record is reported once: acked, failed (proven not to be in the log) or unknown.  `send` waits
while `buffer_bytes` of records are unfinished.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import error as StructError

import trio

from highwater.kafka.client.batches import (
    NOBODY,
    Batch,
    Delivery,
    Identity,
    Outcome,
    PartitionBatches,
    record_size,
)
from highwater.kafka.client.connection import ClientConnection, Pending
from highwater.kafka.client.metadata import Cluster
from highwater.kafka.client.partitioner import partition_of
from highwater.kafka.client.produce_codec import parse_produce_response, produce_request
from highwater.kafka.client.retries import STALE_METADATA, code_of
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.compression import Compression
from highwater.kafka.wire.messages import InitProducerIdRequest
from highwater.kafka.wire.records import Record

__all__ = ["Delivery", "Outcome", "Producer", "Receipt"]

PRODUCE = 0
PRODUCE_VERSION = 7
INIT_PRODUCER_ID_VERSION = 1
ALL = -1


class Receipt:
    """A record's report, to be waited for."""

    __slots__ = ("_event", "delivery")

    def __init__(self) -> None:
        self.delivery: Delivery | None = None
        self._event: trio.Event | None = None

    async def wait(self) -> Delivery:
        if self.delivery is None:
            if self._event is None:
                self._event = trio.Event()
            await self._event.wait()
        assert self.delivery is not None
        return self.delivery


class Producer:
    """One producer; `run` it in a task, then `send`."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int = ALL,
        idempotent: bool | None = None,
        batch_bytes: int = 16384,
        linger_s: float = 0.0,
        max_request_bytes: int = 1048576,
        max_in_flight: int = 5,
        compression: Compression = Compression.NONE,
        delivery_timeout_s: float = 120.0,
        request_timeout_s: float = 30.0,
        retries: bool = True,
        buffer_bytes: int = 32 << 20,
    ) -> None:
        if acks not in (0, 1, ALL):
            raise ValueError(f"acks={acks}: 0, 1 or -1 (all)")
        self.idempotent = acks == ALL if idempotent is None else idempotent
        if self.idempotent and acks != ALL:
            raise ValueError(f"an idempotent producer needs acks=-1 (all), not acks={acks}")
        if self.idempotent and max_in_flight > 5:
            raise ValueError(f"max_in_flight={max_in_flight}: at most 5 with idempotence")
        self.acks = acks
        self.batch_bytes = batch_bytes
        self.linger_s = linger_s
        self.max_request_bytes = max_request_bytes
        self.max_in_flight = max_in_flight
        self.compression = compression
        self.delivery_timeout_s = delivery_timeout_s
        self.request_timeout_s = request_timeout_s
        self.retries = retries
        self.unfinished = 0
        """The number of records without a report."""
        self._cluster = cluster
        self._partitions: dict[TopicPartition, PartitionBatches] = {}
        self._senders: dict[int, _Sender] = {}
        self._nursery: trio.Nursery | None = None
        self._closed = False
        self._buffer_bytes = buffer_bytes
        self._buffered = 0
        self._room = trio.Event()
        self._news = trio.Event()
        self._finished = trio.Event()
        self._round_robin: dict[str, int] = {}

    # --- for the caller

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        report: Callable[[Delivery], None] | None = None,
    ) -> Receipt:
        """Takes a record; waits for metadata and for room, not for the record's report.

        Raises ApiError where the topic stays unknown.
        """
        if self._closed:
            raise RuntimeError("the producer is closed")
        count = self._cluster.topics.get(topic) or await self._cluster.partitions(topic)
        if partition is None:
            partition = self._choose(topic, key, count)
        elif partition >= count:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has {count} partitions")
        if timestamp_ms is None:
            timestamp_ms = self._cluster.world.clock.wall_ms()
        record = Record(key, value, timestamp_ms, headers)
        size = record_size(record)
        while self._buffered and self._buffered + size > self._buffer_bytes:
            self._room = trio.Event()
            await self._room.wait()
        receipt = Receipt()
        self._buffered += size
        self.unfinished += 1

        def finished(delivery: Delivery) -> None:
            self._buffered -= size
            self.unfinished -= 1
            self._room.set()
            if not self.unfinished:
                self._finished.set()
            receipt.delivery = delivery
            if receipt._event is not None:
                receipt._event.set()
            if report is not None:
                report(delivery)

        tp = TopicPartition(topic, partition)
        batches = self._partitions.get(tp)
        if batches is None:
            batches = self._partitions[tp] = self._new_partition(tp)
        batches.append(record, size, finished, trio.current_time())
        self._wake(tp)
        return receipt

    async def flush(self) -> None:
        """Waits until every record taken so far has its report."""
        while self.unfinished:
            self._finished = trio.Event()
            await self._finished.wait()

    def abort(self) -> None:
        """Reports everything unfinished: what may be in a log as unknown, the rest as failed."""
        self._closed = True
        for batches in self._partitions.values():
            batches.abort("the producer was closed")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Sends until cancelled; then reports all unfinished records."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._expire)
                task_status.started()
                await self._watch_metadata()
        finally:
            self._nursery = None
            self.abort()

    # --- inside

    def _choose(self, topic: str, key: bytes | None, count: int) -> int:
        if key is not None:
            return partition_of(key, count)
        turn = self._round_robin.get(topic, -1)
        open_batch = self._partitions.get(TopicPartition(topic, turn))
        if turn < 0 or open_batch is None or not len(open_batch) or open_batch.full:
            turn = (turn + 1) % count
            self._round_robin[topic] = turn
        return turn % count

    def _new_partition(self, tp: TopicPartition) -> PartitionBatches:
        batches = PartitionBatches(
            tp,
            acks=self.acks,
            batch_bytes=self.batch_bytes,
            max_in_flight=self.max_in_flight,
            compression=self.compression,
        )
        if not self.idempotent:
            batches.identify(NOBODY)
        return batches

    def _wake(self, tp: TopicPartition) -> None:
        """Wakes the sender of the partition's leader, or the task that looks for leaders."""
        batches = self._partitions[tp]
        leader = self._cluster.leader(tp)
        if leader is None or batches.needs_identity():
            self._news.set()
            return
        sender = self._senders.get(leader.node)
        if sender is None:
            if self._nursery is None:
                self._news.set()
                return
            sender = self._senders[leader.node] = _Sender(self, leader.node)
            self._nursery.start_soon(sender.run)
        sender.wake()

    def wake_all(self) -> None:
        for tp, batches in self._partitions.items():
            if len(batches):
                self._wake(tp)

    async def _watch_metadata(self) -> None:
        """Finds missing leaders and producer ids, and passes partitions on to their senders."""
        cluster = self._cluster
        while True:
            self._news = trio.Event()
            waiting = [tp for tp, batches in self._partitions.items() if len(batches)]
            wanted = [tp for tp in waiting if self._partitions[tp].needs_identity()]
            try:
                if wanted:
                    identity = await self._init_producer_id(wanted)
                    for tp in wanted:
                        if self._partitions[tp].needs_identity():
                            self._partitions[tp].identify(identity)
                if cluster.stale or any(cluster.leader(tp) is None for tp in waiting):
                    await cluster.refresh()
            except (OSError, ApiError):
                await trio.sleep(cluster.retry_backoff_s)
                continue
            self.wake_all()
            if any(cluster.leader(tp) is None for tp in waiting):
                cluster.mark_stale()
                await trio.sleep(cluster.retry_backoff_s)
            else:
                with trio.move_on_after(5):
                    await self._news.wait()

    async def _init_producer_id(self, wanted: list[TopicPartition]) -> Identity:
        """Asks any broker, the leaders first, because they have to answer anyway."""
        cluster = self._cluster
        await cluster.ensure([])
        leaders = [leader.node for tp in wanted if (leader := cluster.leader(tp)) is not None]
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60000)
        error: OSError | None = None
        for node in dict.fromkeys((*leaders, *sorted(cluster.nodes))):
            try:
                answer = await cluster.call(node, request, INIT_PRODUCER_ID_VERSION)
            except OSError as exc:
                error = exc
                continue
            if answer.error_code:
                raise ApiError(code_of(answer.error_code))
            return Identity(answer.producer_id, answer.producer_epoch)
        raise error or OSError("no brokers")

    async def _expire(self) -> None:
        while True:
            await trio.sleep(min(self.delivery_timeout_s / 4, 1.0))
            for batches in self._partitions.values():
                if len(batches):
                    batches.expire(trio.current_time() - self.delivery_timeout_s)

    def takes(self, node: int) -> list[tuple[PartitionBatches, Batch]]:
        """The batches to send to the broker now, one of each partition."""
        now = trio.current_time()
        found = []
        total = 0
        for tp, batches in self._partitions.items():
            if not len(batches):
                continue
            leader = self._cluster.leader(tp)
            if leader is None or leader.node != node:
                continue
            if batches.node != node and batches.in_flight:
                continue  # the batches at the old leader come back first
            batch = batches.next(now, self.linger_s)
            if batch is not None:
                if total and total + batch.size > self.max_request_bytes:
                    break
                total += batch.size
                found.append((batches, batch))
        return found

    def due_s(self, node: int) -> float:
        """The time when `takes` may find something new."""
        due = float("inf")
        now = trio.current_time()
        for tp, batches in self._partitions.items():
            if len(batches):
                leader = self._cluster.leader(tp)
                if leader is not None and leader.node == node:
                    at = batches.due_s(self.linger_s)
                    if at is not None and at > now:
                        due = min(due, at)
        return due

    def failed(
        self,
        batches: PartitionBatches,
        batch: Batch,
        error: ErrorCode,
        detail: str,
    ) -> None:
        if error in STALE_METADATA or error is ErrorCode.NETWORK_EXCEPTION:
            self._cluster.mark_stale()
            self._news.set()
        retry_at_s = trio.current_time() + self._cluster.retry_backoff_s
        batches.failed(batch, error, detail, retry_at_s=retry_at_s, retry=self.retries)
        if batches.needs_identity():
            self._news.set()


class _Sender:
    """Sends to one broker."""

    def __init__(self, producer: Producer, node: int) -> None:
        self._producer = producer
        self._node = node
        self._in_flight = 0
        self._news = trio.Event()

    def wake(self) -> None:
        self._news.set()

    async def run(self) -> None:
        producer = self._producer
        while True:
            self._news = trio.Event()
            if self._in_flight < producer.max_in_flight:
                await trio.lowlevel.checkpoint()  # more records may join the batches
                if producer.takes(self._node):
                    await self._send()
                    continue
            with trio.move_on_at(producer.due_s(self._node)):
                await self._news.wait()

    async def _send(self) -> None:
        producer = self._producer
        cluster = producer._cluster
        try:
            connection = await cluster.connection(self._node)
        except OSError as exc:
            cluster.mark_stale()
            producer._news.set()
            retry_at_s = trio.current_time() + cluster.retry_backoff_s
            for batches, batch in producer.takes(self._node):
                batches.retry_at_s = max(batches.retry_at_s, retry_at_s)
                batch.detail = str(exc)
            return
        taken = producer.takes(self._node)  # leaders may have changed meanwhile
        if not taken:
            return
        for batches, _ in taken:
            batches.node = self._node
        name = f"{connection.local[1]}-{connection.peer[0]}:{connection.peer[1]}"
        records = [(batches.tp, batches.sent(batch, name)) for batches, batch in taken]
        timeout_s = producer.request_timeout_s
        body = produce_request(producer.acks, timeout_s, records)
        try:
            if producer.acks == 0:
                await connection.send_raw(PRODUCE, PRODUCE_VERSION, body, timeout_s)
                for batches, batch in taken:
                    batches.sent_without_answer(batch)
                return
            # the broker gives up after timeout_s; its answer then needs a moment to arrive
            pending = await connection.begin(PRODUCE, PRODUCE_VERSION, body, timeout_s)
        except OSError as exc:
            self._lost(connection, taken, exc)
            return
        self._in_flight += 1
        assert producer._nursery is not None
        producer._nursery.start_soon(self._await_answer, connection, pending, taken)

    async def _await_answer(
        self,
        connection: ClientConnection,
        pending: Pending,
        taken: list[tuple[PartitionBatches, Batch]],
    ) -> None:
        timeout_s = self._producer.request_timeout_s + 1
        try:
            answer = None
            with trio.move_on_after(timeout_s):
                answer = await pending.wait()
            if answer is None:
                raise TimeoutError(f"no answer within {timeout_s:g} s")
            self._settle(parse_produce_response(answer), taken)
        except (OSError, StructError, ValueError) as exc:
            self._lost(connection, taken, exc)
        finally:
            self._in_flight -= 1
            self._news.set()
        self._producer.wake_all()

    def _lost(
        self,
        connection: ClientConnection,
        taken: list[tuple[PartitionBatches, Batch]],
        exc: Exception,
    ) -> None:
        connection.close()
        for batches, batch in taken:
            self._producer.failed(batches, batch, ErrorCode.NETWORK_EXCEPTION, str(exc))

    def _settle(
        self,
        results: dict[TopicPartition, tuple[int, int, int]],
        taken: list[tuple[PartitionBatches, Batch]],
    ) -> None:
        for batches, batch in taken:
            if batches.tp not in results:
                detail = "the answer does not name the partition"
                self._producer.failed(batches, batch, ErrorCode.NETWORK_EXCEPTION, detail)
                continue
            number, offset, append_time = results[batches.tp]
            code = code_of(number)
            if code is ErrorCode.NONE:
                batches.acked(batch, offset, append_time)
            else:
                self._producer.failed(batches, batch, code, code.name)
