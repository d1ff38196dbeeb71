"""Reads a whole topic, by a consumer that knows nothing about its writers."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

Place = tuple[int, int]
"""Partition and offset."""
NOT_YET = {
    KafkaError.OFFSET_NOT_AVAILABLE, KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC,
    KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT,
}  # fmt: skip
"""Retried, because the cluster may have been started a moment ago."""
SILENCE_S = 60


def read_all(bootstrap: str, topic: str, partitions: int) -> dict[Place, bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none is joined",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    try:
        places = [TopicPartition(topic, p, 0) for p in range(partitions)]
        ends = {p.partition: end_of(consumer, p) for p in places}
        consumer.assign(places)
        found: dict[Place, bytes] = {}
        missing = {partition for partition, end in ends.items() if end > 0}
        heard = time.monotonic()
        while missing:
            messages = consumer.consume(10_000, timeout=0.3)  # which always waits so long
            heard = time.monotonic() if messages else heard
            silence = time.monotonic() - heard
            assert silence < SILENCE_S, f"nothing comes, {sorted(missing)} are not read"
            for message in messages:
                assert message.error() is None, message.error()
                found[message.partition(), message.offset()] = message.value()
                if message.offset() >= ends[message.partition()] - 1:
                    missing.discard(message.partition())
        return found
    finally:
        consumer.close()


def end_of(consumer: Any, place: TopicPartition, within_s: float = 60) -> int:
    """The HW, asked for by name.

    A new leader has none to tell until its followers are there (KIP-207), and brokers know leaders
    only once the new controller has told them. librdkafka keeps an answer without a leader for
    minutes and calls that partition unknown: only a request for the topic by name makes it ask
    again.
    """
    deadline = time.monotonic() + within_s
    while True:
        try:
            end: int = consumer.get_watermark_offsets(place, timeout=60)[1]
            return end
        except KafkaException as error:
            if error.args[0].code() not in NOT_YET or time.monotonic() > deadline:
                raise AssertionError(f"no end of {place}: {error}") from error
            consumer.list_topics(place.topic, timeout=60)
