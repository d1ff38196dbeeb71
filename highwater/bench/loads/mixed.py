"""A load at a fixed rate, as two processes: what a record waits for while others write and read.

    python -I -m highwater.bench.loads.mixed write BOOTSTRAP TOPIC RECORDS_A_SECOND SECONDS
    python -I -m highwater.bench.loads.mixed beside BOOTSTRAP TOPIC RECORDS_A_SECOND

`write` sends records of 1000 bytes by librdkafka's defaults (acks=all), evenly in time, and notes
how long each takes to its acknowledgement.  It starts `beside`, which commits transactions of 100
ms on the same topic, and has two readers: of all records, and of the committed ones.  Three
quarters of the rate are the measured records, one quarter the others'.  `write` prints one JSON
line: {"records", "seconds", "p99_ms", "p999_ms", "read"}.

A record that could not be sent in time counts from the time when it was due (so that a stall is
seen in all the records that it held up, not in the one that met it).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from highwater.bench.figures.rows import percentile

RECORD_BYTES = 1000
SHARE = 0.75
"""The part of the rate that is measured."""
TICK_S = 0.002
TRANSACTION_S = 0.1
WARM_S = 2.0
"""Untimed, after the others have begun."""
WAIT_S = 30.0


def command(bootstrap: str, topic: str, records_a_second: float, seconds: float) -> list[str]:
    """`records_a_second`: of everything that is written."""
    return _command("write", bootstrap, topic, str(records_a_second), str(seconds))


def _command(role: str, *words: str) -> list[str]:
    return [sys.executable, "-I", "-m", __spec__.name, role, *words]


def due(began: float, now: float, rate: float) -> int:
    """The number of records that have to be out by now.

    >>> due(10.0, 10.5, 1000), due(10.0, 10.0, 1000)
    (500, 0)
    """
    return int((now - began) * rate)


def _write(bootstrap: str, topic: str, rate: float, seconds: float) -> dict[str, Any]:
    others = subprocess.Popen(
        _command("beside", bootstrap, topic, str(rate * (1 - SHARE))),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert others.stdin is not None
    assert others.stdout is not None
    try:
        if others.stdout.readline() != "ready\n":
            raise SystemExit("the others did not begin")
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
        _paced(producer, topic, rate * SHARE, WARM_S)
        latencies, took = _paced(producer, topic, rate * SHARE, seconds)
        others.stdin.close()
        read = json.loads(others.stdout.readline() or "{}").get("read", 0)
    finally:
        others.kill()
        others.wait()
    return {
        "records": len(latencies),
        "seconds": took,
        "p99_ms": percentile(latencies, 0.99) * 1000,
        "p999_ms": percentile(latencies, 0.999) * 1000,
        "read": read,
    }


def _taken(producer: Any, topic: str, value: bytes, **more: Any) -> bool:
    """Whether the producer's queue had room: it fills where a broker stalls for long."""
    try:
        producer.produce(topic, value, **more)
    except BufferError:
        return False
    return True


def _paced(producer: Any, topic: str, rate: float, seconds: float) -> tuple[list[float], float]:
    """Seconds from each record's due time to its acknowledgement, and those of all of it."""
    value, latencies, sent = os.urandom(RECORD_BYTES), [], 0
    failed: list[Any] = []
    clock = time.perf_counter

    def delivered(at: float) -> Callable[[Any, Any], None]:
        def callback(error: Any, _: Any) -> None:
            if error is None:
                latencies.append(clock() - at)
            else:
                failed.append(error)

        return callback

    began, total = clock(), int(rate * seconds)
    while sent < total and not failed:
        wanted = min(due(began, clock(), rate), total)
        while sent < wanted and _taken(
            producer, topic, value, on_delivery=delivered(began + sent / rate)
        ):
            sent += 1
        producer.poll(TICK_S)
    left = producer.flush(WAIT_S)
    if failed or left:
        raise SystemExit(f"records were not acknowledged: {failed[0] if failed else left}")
    return latencies, clock() - began


class _Readers:
    """Two consumers, each with a thread; `count` records have come."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.count = 0
        self.stopping = threading.Event()
        self.threads = [
            threading.Thread(target=self._read, args=(bootstrap, topic, level), daemon=True)
            for level in ("read_uncommitted", "read_committed")
        ]

    def _read(self, bootstrap: str, topic: str, level: str) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "bench",
                "enable.auto.commit": False,
                "isolation.level": level,
                "fetch.queue.backoff.ms": 5,
            }
        )
        partitions = consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        while not self.stopping.is_set():
            self.count += len(consumer.consume(1000, 0.1))
        consumer.close()


def _beside(bootstrap: str, topic: str, rate: float) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(WAIT_S)
    readers = _Readers(bootstrap, topic)
    for thread in readers.threads:
        thread.start()
    over = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=listen, daemon=True).start()
    value, sent, began = os.urandom(RECORD_BYTES), 0, time.perf_counter()
    print("ready", flush=True)
    while not over.is_set():
        ends = time.perf_counter() + TRANSACTION_S
        producer.begin_transaction()
        while time.perf_counter() < ends:
            while sent < due(began, time.perf_counter(), rate) and _taken(producer, topic, value):
                sent += 1
            producer.poll(TICK_S)
        producer.commit_transaction(WAIT_S)
    readers.stopping.set()
    for thread in readers.threads:
        thread.join(WAIT_S)
    print(json.dumps({"read": readers.count}), flush=True)


def main(arguments: list[str]) -> None:
    role, bootstrap, topic, rate, *more = arguments
    if role == "write":
        print(json.dumps(_write(bootstrap, topic, float(rate), float(more[0]))))
    else:
        _beside(bootstrap, topic, float(rate))


if __name__ == "__main__":
    main(sys.argv[1:])
