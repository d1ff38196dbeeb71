"""Highwater's own trio client: the one that reports everything.

Its producer knows how often it sent a record, and whether an error proves that the record was not
appended.  Its consumer sees the HW and LSO of every answer, and lists end offsets, too (C13).  Each
runs trio in a thread of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import trio

from highwater.chaos.workloads.recorder import CommonSpec, Reader, Recorder, Sender, Topic
from highwater.chaos.workloads.workload_client import PacedProducer, TopicsReader
from highwater.kafka.client.consumer import LATEST, Consumer
from highwater.kafka.client.metadata import Cluster
from highwater.kafka.client.producer import Delivery, Outcome, Producer
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.links import SecuredWorld
from highwater.kafka.types import TopicPartition
from highwater.world.api import World
from highwater.world.real import RealWorld

CLIENT = "highwater"
LIST_EVERY_S = 1.0


def _world(spec: CommonSpec) -> World:
    if spec.security == "plaintext":
        return RealWorld()
    from highwater.cluster.remote.secured_target import network_by  # late: this loads cryptography

    return SecuredWorld(RealWorld(), network_by(spec.connect("java")))


def _cluster(recorder: Recorder, client_id: str) -> Cluster:
    return Cluster(
        _world(recorder.spec),
        recorder.spec.bootstrap,
        client_id,
        request_timeout_s=5.0,
        connect_timeout_s=2.0,
        metadata_max_age_s=3.0,
    )


class NativeProducer(PacedProducer):
    """An idempotent producer with acks=all."""

    def send_as(self, process: str) -> None:
        trio.run(self._send_as, process)

    async def _send_as(self, process: str) -> None:
        spec = self.recorder.spec
        sender = Sender(self.recorder, process, CLIENT, acks=-1, idempotent=True)
        cluster = _cluster(self.recorder, self.name)
        producer = Producer(
            cluster,
            linger_s=0.005,
            delivery_timeout_s=spec.delivery_timeout_s,
            request_timeout_s=5.0,
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(producer.run)
            while not self.stopping.is_set():
                await trio.sleep(self.pace.wait())
                if sender.outstanding < spec.max_outstanding and self.pace.take():
                    await self._send(producer, sender)
            with trio.move_on_after(spec.delivery_timeout_s):
                await producer.flush()
            nursery.cancel_scope.cancel()
        cluster.close()
        sender.abandon()

    async def _send(self, producer: Producer, sender: Sender) -> None:
        partition = sender.sequence % self.topic.partitions
        op, key, value = sender.invoke(self.topic, partition)
        try:
            await producer.send(
                self.topic.name,
                value.encode(),
                key.encode(),
                partition=partition,
                report=_reporter(sender, op),
            )
        except (ApiError, OSError) as error:  # the record was never put into a batch
            name = error.code.name if isinstance(error, ApiError) else type(error).__name__
            sender.error(op, name, proven=True)


def _reporter(sender: Sender, op: int) -> Callable[[Delivery], None]:
    def report(delivery: Delivery) -> None:
        known: dict[str, Any] = {
            "attempt": delivery.attempts,
            "producer_id": delivery.producer_id,
            "producer_epoch": delivery.producer_epoch,
            "sequence": delivery.sequence,
            "connection": delivery.connection or None,
        }
        if delivery.outcome is Outcome.ACKED:
            sender.ok(op, delivery.offset, **known)
        else:
            name = delivery.error.name if delivery.error is not None else "_UNKNOWN"
            sender.error(op, name, proven=delivery.outcome is Outcome.FAILED, **known)

    return report


class NativeConsumer(TopicsReader):
    """A consumer that also lists end offsets every second.

    Under read_committed the listed end is the LSO.
    """

    def __init__(
        self, recorder: Recorder, topics: list[Topic], name: str, *, read_committed: bool = False
    ) -> None:
        super().__init__(recorder, topics, name)
        self.read_committed = read_committed
        self.tps = [TopicPartition(t.name, p) for t in topics for p in range(t.partitions)]

    def work(self) -> None:
        trio.run(self._read)

    async def _read(self) -> None:
        cluster = _cluster(self.recorder, self.name)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._list_offsets)
            consumer = Consumer(cluster, max_wait_ms=200, read_committed=self.read_committed)
            reader = Reader(self.recorder, self.name, CLIENT)
            for tp in self.tps:
                reader.assign(tp.topic, tp.partition, 0)
            consumer.assign(dict.fromkeys(self.tps, 0))
            while not self.stopping.is_set():
                await poll_once(consumer, reader)
            nursery.cancel_scope.cancel()
        cluster.close()

    async def _list_offsets(self) -> None:
        """Lists offsets with a client of its own, so that a slow answer delays no poll."""
        name = f"{self.name}-offsets"
        cluster = _cluster(self.recorder, name)
        consumer = Consumer(cluster, read_committed=self.read_committed)
        reader = Reader(self.recorder, name, CLIENT)
        try:
            while True:
                await trio.sleep(LIST_EVERY_S)
                for tp in self.tps:
                    await list_end(consumer, reader, tp)
        finally:
            cluster.close()


async def poll_once(consumer: Consumer, reader: Reader) -> None:
    """Polls once, and records the poll in the history."""
    poll_id = reader.poll_invoke()
    try:
        fetches = await consumer.poll(0.2)
    except (ApiError, OSError) as error:
        reader.poll_end(poll_id, 0, _name(error))
        await trio.sleep(0.1)
        return
    n = sum(len(fetch.records) for fetch in fetches)
    for fetch in fetches:
        for record in fetch.records:
            reader.record(
                poll_id,
                n,
                fetch.tp.topic,
                fetch.tp.partition,
                record.offset,
                record.key,
                record.value,
                leader_epoch=record.leader_epoch,
                hw=fetch.high_watermark,
                lso=fetch.last_stable_offset,
                producer_id=record.producer_id,
                producer_epoch=record.producer_epoch,
                sequence=record.sequence,
                isolation="read_committed" if consumer.read_committed else None,
            )
    errors = [f.error.name for f in fetches if f.error is not ErrorCode.NONE]
    if n == 0:
        reader.poll_end(poll_id, 0, errors[0] if errors else None)


async def list_end(consumer: Consumer, reader: Reader, tp: TopicPartition) -> int | None:
    """Lists a partition's end (under read_committed its LSO), and records it in the history."""
    which = "stable" if consumer.read_committed else "latest"
    op = reader.recorder.writer.new_id()
    reader.list_offsets(*tp, which, op)
    try:
        offset, epoch = (await consumer.offsets([tp], LATEST, timeout_s=2.0))[tp]
    except (ApiError, OSError) as error:
        reader.list_offsets(*tp, which, op, error=_name(error))
        return None
    reader.list_offsets(*tp, which, op, offset=offset, leader_epoch=epoch)
    return offset


async def _read_to(
    recorder: Recorder, tps: list[TopicPartition], deadline: float, *, committed: bool
) -> list[str]:
    name = f"final-{'committed' if committed else 'native'}"
    cluster = _cluster(recorder, name)
    consumer = Consumer(cluster, max_wait_ms=100, read_committed=committed)
    whole = Consumer(cluster)
    reader = Reader(recorder, name, CLIENT)
    ends: dict[TopicPartition, int] = {}
    for tp in tps:
        # the time-out aborts open transactions: then the LSO is the end (T7)
        while tp not in ends and time.monotonic() < deadline:
            end, whole_end = await list_end(consumer, reader, tp), await list_end(whole, reader, tp)
            if end is not None and whole_end is not None and end >= whole_end:
                ends[tp] = end
            else:
                await trio.sleep(0.2)
    for tp in tps:
        reader.assign(tp.topic, tp.partition, 0)
    consumer.assign(dict.fromkeys(ends, 0))

    def behind() -> list[TopicPartition]:
        return [tp for tp, end in ends.items() if (consumer.position(tp) or 0) < end]

    while behind() and time.monotonic() < deadline:
        await poll_once(consumer, reader)
    problems = [f"{tp} was read to {consumer.position(tp)} of {ends[tp]}" for tp in behind()]
    cluster.close()
    return problems + [f"{tp}: the LSO did not come to the end" for tp in tps if tp not in ends]


async def final_reads(recorder: Recorder, topics: list[Topic], timeout_s: float) -> list[str]:
    """Reads all records, and all committed records; gives the failures in words."""
    tps = [TopicPartition(t.name, p) for t in topics for p in range(t.partitions)]
    deadline = time.monotonic() + timeout_s
    problems = await _read_to(recorder, tps, deadline, committed=True)
    return problems + await _read_to(recorder, tps, deadline, committed=False)


def _name(error: ApiError | OSError) -> str:
    return error.code.name if isinstance(error, ApiError) else type(error).__name__
