"""kafka-python: an idempotent producer and a consumer, each in a thread."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from typing import Any

from highwater.chaos.workloads.recorder import Reader, Sender
from highwater.chaos.workloads.workload_client import PacedProducer, TopicsReader
from highwater.kafka.private_copy import kafka_python

kafka = kafka_python()
KafkaError = kafka.errors.KafkaError
FAILURES = (KafkaError, OSError)
"""The errors of its calls; over TLS a connection's own, too (docs/client-problems.md)."""
CLIENT = "kafka-python"


def error_name(error: BaseException) -> str:
    """Kafka's name of the error: NotLeaderForPartitionError is NOT_LEADER_OR_FOLLOWER."""
    name = type(error).__name__.removesuffix("Error")
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()
    return {"NOT_LEADER_FOR_PARTITION": "NOT_LEADER_OR_FOLLOWER"}.get(words, words)


class KafkaPythonProducer(PacedProducer):
    """A producer.  An instance whose records time out is given up, because it may never learn of a
    new leader (docs/client-problems.md)."""

    def __init__(self, *of: Any) -> None:
        super().__init__(*of)
        self._timed_out = False

    def send_as(self, process: str) -> None:
        spec = self.recorder.spec
        sender = Sender(self.recorder, process, CLIENT, acks=-1, idempotent=True)
        timeout_ms = int(spec.delivery_timeout_s * 1000)
        try:
            producer = kafka.KafkaProducer(
                **spec.connect("kafka-python"),
                client_id=process,
                acks="all",
                enable_idempotence=True,
                linger_ms=5,
                request_timeout_ms=5000,
                delivery_timeout_ms=timeout_ms,
                max_block_ms=5000,
                reconnect_backoff_max_ms=500,
                metadata_max_age_ms=3000,
                allow_auto_create_topics=False,
                metrics_enabled=False,
            )
        except FAILURES:
            time.sleep(0.5)
            return
        broken = self._timed_out = False
        while not self.stopping.is_set() and not broken and not self._timed_out:
            time.sleep(self.pace.wait())
            if sender.outstanding >= spec.max_outstanding or not self.pace.take():
                continue
            broken = not self._send(producer, sender)
        deadline = time.monotonic() + spec.delivery_timeout_s
        while sender.outstanding and not broken and not self._timed_out:
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        with suppress(*FAILURES):
            producer.close(timeout=0.1)  # it waits so long for each batch
        sender.abandon()

    def _send(self, producer: Any, sender: Sender) -> bool:
        """Sends a record; False where this instance cannot go on."""
        partition = sender.sequence % self.topic.partitions
        op, key, value = sender.invoke(self.topic, partition)
        try:
            future = producer.send(
                self.topic.name, value=value.encode(), key=key.encode(), partition=partition
            )
        except (*FAILURES, AssertionError, ValueError) as error:
            sender.error(op, error_name(error))
            # a time-out here means that no metadata came within max_block_ms
            timed_out = isinstance(error, kafka.errors.KafkaTimeoutError)
            return getattr(error, "retriable", False) and not timed_out
        future.add_callback(lambda metadata: sender.ok(op, metadata.offset))

        def failed(error: BaseException) -> None:
            sender.error(op, error_name(error))
            self._timed_out = self._timed_out or isinstance(error, kafka.errors.KafkaTimeoutError)

        future.add_errback(failed)
        return True


class KafkaPythonConsumer(TopicsReader):
    def _consumer(self) -> Any:
        while not self.stopping.is_set():
            try:
                return kafka.KafkaConsumer(
                    **self.recorder.spec.connect("kafka-python"),
                    client_id=self.name,
                    group_id=None,
                    enable_auto_commit=False,
                    auto_offset_reset="earliest",
                    fetch_max_wait_ms=200,
                    request_timeout_ms=5000,
                    reconnect_backoff_max_ms=500,
                    metadata_max_age_ms=3000,
                    allow_auto_create_topics=False,
                    metrics_enabled=False,
                )
            except FAILURES:
                time.sleep(0.5)
        return None

    def work(self) -> None:
        consumer = self._consumer()
        if consumer is None:
            return
        reader = Reader(self.recorder, self.name, CLIENT)
        tps = [kafka.TopicPartition(t.name, p) for t in self.topics for p in range(t.partitions)]
        for tp in tps:
            reader.assign(tp.topic, tp.partition, 0)
        consumer.assign(tps)
        for tp in tps:
            consumer.seek(tp, 0)
        while not self.stopping.is_set():
            self._poll(consumer, reader)
        consumer.close()

    def _poll(self, consumer: Any, reader: Reader) -> None:
        poll_id = reader.poll_invoke()
        try:
            polled = consumer.poll(timeout_ms=200)
        except FAILURES as error:
            reader.poll_end(poll_id, 0, error_name(error))
            time.sleep(0.1)
            return
        n = sum(len(records) for records in polled.values())
        for tp, records in polled.items():
            hw = consumer.highwater(tp)
            for r in records:
                epoch = r.leader_epoch if r.leader_epoch is not None else -1
                reader.record(
                    poll_id,
                    n,
                    tp.topic,
                    tp.partition,
                    r.offset,
                    r.key,
                    r.value,
                    leader_epoch=epoch,
                    hw=hw,
                )
        reader.poll_end(poll_id, n)
