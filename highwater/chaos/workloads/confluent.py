"""librdkafka, through confluent-kafka: a producer, an acks=1 producer, a consumer, and the final
full read."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from highwater.chaos.workloads.pace import Pace
from highwater.chaos.workloads.recorder import CommonSpec, Reader, Recorder, Sender, Topic
from highwater.chaos.workloads.workload_client import PacedProducer, TopicsReader
from highwater.client_calls import SOON_S, ClientHangs, within

CLIENT = "confluent-kafka"
_NAMES = {"NOT_LEADER_FOR_PARTITION": "NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PART":
          "UNKNOWN_TOPIC_OR_PARTITION"}  # fmt: skip


def _quiet(*_: object) -> None:
    """Ignores errors of single connections: librdkafka handles them, and only the outcome of an
    operation matters."""


def common(spec: CommonSpec, name: str) -> dict[str, Any]:
    """The settings of every client of the workload."""
    return {
        **spec.connect(),
        "client.id": name,
        "error_cb": _quiet,
        "logger": _fatal_errors_logger(),
        "reconnect.backoff.max.ms": 500,
        "socket.timeout.ms": 5000,
        "topic.metadata.refresh.interval.ms": 3000,
        "allow.auto.create.topics": False,
    }


def _fatal_errors_logger() -> Any:
    import logging

    logger = logging.getLogger("librdkafka")
    logger.setLevel(logging.CRITICAL)
    return logger


def serve(call: Callable[[float], Any], timeout_s: float) -> bool:
    """Calls `poll` or `flush` of a producer; returns whether the producer can still be used.

    A fatal error is raised as a KafkaException, or as a SystemError if a delivery report follows it
    in the same call (docs/client-problems.md).
    """
    try:
        call(timeout_s)
    except KafkaException:
        return False
    except SystemError as error:  # any other one hides an error of our own callback
        if "NULL without setting an exception" not in str(error):
            raise
        return False
    return True


def offset_of(message: Any) -> int:
    """A delivered record's offset; -1 if librdkafka does not know it, as for a duplicate."""
    offset: int | None = message.offset()
    return -1 if offset is None else offset


class ConfluentProducer(PacedProducer):
    """A producer; a fatal error ends an instance of it."""

    def __init__(
        self, recorder: Recorder, topic: Topic, pace: Pace, *, acks: int, name: str
    ) -> None:
        super().__init__(recorder, topic, pace, name)
        self.acks = acks

    def send_as(self, process: str) -> None:
        spec = self.recorder.spec
        idempotent = self.acks == -1
        sender = Sender(self.recorder, process, CLIENT, acks=self.acks, idempotent=idempotent)
        producer = confluent_kafka.Producer(
            {
                **common(spec, process),
                "acks": self.acks,
                "enable.idempotence": idempotent,
                "linger.ms": 5,
                "message.timeout.ms": int(spec.delivery_timeout_s * 1000),
            }
        )
        fatal = False

        def delivered(op: int) -> Callable[[Any, Any], None]:
            def callback(error: Any, message: Any) -> None:
                nonlocal fatal
                if error is None:
                    sender.ok(op, offset_of(message))
                else:
                    fatal = fatal or error.fatal()
                    sender.error(op, _NAMES.get(error.name(), error.name()))

            return callback

        while not self.stopping.is_set() and not fatal:
            if not serve(producer.poll, self.pace.wait()):
                fatal = True
                break
            if sender.outstanding >= spec.max_outstanding or not self.pace.take():
                continue
            partition = sender.sequence % self.topic.partitions
            op, key, value = sender.invoke(self.topic, partition)
            try:
                producer.produce(
                    self.topic.name,
                    value=value.encode(),
                    key=key.encode(),
                    partition=partition,
                    on_delivery=delivered(op),
                )
            except (BufferError, KafkaException) as error:
                sender.error(op, type(error).__name__)
        serve(producer.flush, 0.1 if fatal else spec.delivery_timeout_s)
        sender.abandon()


class ConfluentConsumer(TopicsReader):
    """A consumer that assigns its partitions itself."""

    def work(self) -> None:
        reader = Reader(self.recorder, self.name, CLIENT)
        consumer = new_consumer(self.recorder.spec, self.name)
        assign_all(consumer, reader, self.topics)
        while not self.stopping.is_set():
            poll_once(consumer, reader, 0.2)
        consumer.close()


def new_consumer(spec: CommonSpec, name: str, tell_end: bool = False) -> confluent_kafka.Consumer:
    """`tell_end`: it also reports partitions' ends, which may lie behind the last record."""
    return confluent_kafka.Consumer(
        {
            **common(spec, name),
            "group.id": name,  # required, though no client joins a group: partitions are assigned
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 200,
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": tell_end,
        }
    )


def assign_all(consumer: confluent_kafka.Consumer, reader: Reader, topics: list[Topic]) -> None:
    partitions = [(t.name, p) for t in topics for p in range(t.partitions)]
    for topic, partition in partitions:
        reader.assign(topic, partition, 0)
    consumer.assign([TopicPartition(t, p, OFFSET_BEGINNING) for t, p in partitions])


def poll_once(
    consumer: confluent_kafka.Consumer, reader: Reader, timeout_s: float
) -> dict[tuple[str, int], int]:
    """Polls once, and records the poll in the history; returns the next offset of each partition
    that had records or reported its end."""
    poll_id = reader.poll_invoke()
    try:
        messages = consumer.consume(500, timeout_s)
    except (KafkaException, RuntimeError) as error:
        reader.poll_end(poll_id, 0, type(error).__name__)
        return {}
    records = [m for m in messages if m.error() is None]
    failed = [m for m in messages if m.error() is not None]
    at_end = [m for m in failed if m.error().code() == KafkaError._PARTITION_EOF]
    errors = [m.error().name() for m in failed if m not in at_end]
    ends: dict[tuple[str, int], int] = {(m.topic(), m.partition()): m.offset() for m in at_end}
    for m in records:
        tp = (m.topic(), m.partition())
        ends[tp] = max(ends.get(tp, 0), m.offset() + 1)
        reader.record(
            poll_id,
            len(records),
            *tp,
            m.offset(),
            m.key(),
            m.value(),
            leader_epoch=m.leader_epoch() if m.leader_epoch() is not None else -1,
        )
    if not records:
        reader.poll_end(poll_id, 0, errors[0] if errors else None)
    return ends


def final_read(recorder: Recorder, topics: list[Topic], timeout_s: float) -> list[str]:
    """Reads every partition from its start to its end; returns the failures in words."""
    name = "final-confluent-kafka"
    reader = Reader(recorder, name, CLIENT)
    consumer = new_consumer(recorder.spec, name, tell_end=True)
    phase = "reading everything back"
    try:
        told = within(phase, timeout_s + SOON_S, _read_back, consumer, reader, topics, timeout_s)
        within(phase, SOON_S, consumer.close)
    except ClientHangs as error:
        return [str(error)]
    return told


def _read_back(
    consumer: confluent_kafka.Consumer, reader: Reader, topics: list[Topic], timeout_s: float
) -> list[str]:
    deadline = time.monotonic() + timeout_s
    ends: dict[tuple[str, int], int] = {}
    at: dict[tuple[str, int], int] = {}
    for topic in topics:
        for partition in range(topic.partitions):
            limits = _limits(consumer, reader, topic.name, partition, deadline)
            if limits is None:
                return [f"{topic.name}-{partition} did not tell its offsets"]
            at[topic.name, partition], ends[topic.name, partition] = limits
    assign_all(consumer, reader, topics)
    while any(at[tp] < end for tp, end in ends.items()) and time.monotonic() < deadline:
        at |= poll_once(consumer, reader, 0.5)
    return [f"{t}-{p} was read to {at[t, p]} of {e}" for (t, p), e in ends.items() if at[t, p] < e]


def _limits(
    consumer: confluent_kafka.Consumer, reader: Reader, topic: str, partition: int, deadline: float
) -> tuple[int, int] | None:
    """The earliest and the latest offset; repeats the request until the deadline."""
    while time.monotonic() < deadline:
        op = reader.recorder.writer.new_id()
        reader.list_offsets(topic, partition, "earliest", op)
        op_latest = reader.recorder.writer.new_id()
        reader.list_offsets(topic, partition, "latest", op_latest)
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=5)
        except KafkaException as error:
            name = error.args[0].name()
            reader.list_offsets(topic, partition, "earliest", op, error=name)
            reader.list_offsets(topic, partition, "latest", op_latest, error=name)
            time.sleep(0.2)
            continue
        reader.list_offsets(topic, partition, "earliest", op, offset=low)
        reader.list_offsets(topic, partition, "latest", op_latest, offset=high)
        return low, high
    return None
