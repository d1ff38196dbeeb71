"""One record at a time through librdkafka, as a process: how long each takes.

    python -I -m highwater.bench.loads.single_writes write|consume BOOTSTRAP TOPIC COUNT

`write`: from the call of produce to its acknowledgement (acks=all, one in flight).  `consume`: from
the call to the record's arrival at a consumer.  Prints one JSON line: {"p50_ms", "p99_ms"}.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from highwater.bench.figures.rows import percentile

RECORD_BYTES = 100
WAIT_S = 30
UNTIMED = 200


def command(what: str, bootstrap: str, topic: str, count: int) -> list[str]:
    return [sys.executable, "-I", "-m", __spec__.name, what, bootstrap, topic, str(count)]


def _writer(producer: Any, topic: str) -> Callable[[], None]:
    value = os.urandom(RECORD_BYTES)
    done: list[Any] = []

    def one() -> None:
        done.clear()
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: done.append(error))
        deadline = time.monotonic() + WAIT_S
        while not done and time.monotonic() < deadline:
            producer.poll(1)
        if not done or done[0] is not None:
            raise SystemExit(f"a record was not acknowledged: {done[0] if done else 'no answer'}")

    return one


def _reader(producer: Any, bootstrap: str, topic: str) -> Callable[[], None]:
    value = os.urandom(RECORD_BYTES)
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    )
    end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S)[1]
    consumer.assign([TopicPartition(topic, 0, end)])

    def one() -> None:
        producer.produce(topic, value, partition=0)
        producer.poll(0)
        message = consumer.poll(WAIT_S)
        if message is None or message.error() is not None:
            raise SystemExit(f"a record did not arrive: {message and message.error()}")

    return one


def main(arguments: list[str]) -> None:
    what, bootstrap, topic, count = arguments
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "max.in.flight": 1}
    )
    is_write = what == "write"
    one = _writer(producer, topic) if is_write else _reader(producer, bootstrap, topic)
    for _ in range(min(UNTIMED, int(count))):
        one()
    times = []
    for _ in range(int(count)):
        began = time.perf_counter()
        one()
        times.append((time.perf_counter() - began) * 1000)
    producer.flush(WAIT_S)
    print(json.dumps({"p50_ms": percentile(times, 0.5), "p99_ms": percentile(times, 0.99)}))


if __name__ == "__main__":
    main(sys.argv[1:])
