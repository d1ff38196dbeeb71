"""Reads a topic from its start by librdkafka, as a process.

    python -I -m highwater.bench.loads.reads BOOTSTRAP TOPIC RECORDS

With `fetch.queue.backoff.ms=5`: at its default librdkafka waits a second each time its queue is
full, so that a faster broker would look slower.  The clock starts with the first record.  Prints
one JSON line: {"records", "seconds"}.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import Consumer, TopicPartition

AT_ONCE = 10_000
WAIT_S = 60


def command(bootstrap: str, topic: str, records: int) -> list[str]:
    return [sys.executable, "-I", "-m", __spec__.name, bootstrap, topic, str(records)]


def main(arguments: list[str]) -> None:
    bootstrap, topic, wanted = arguments[0], arguments[1], int(arguments[2])
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 5,
        }
    )
    partitions = consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    first = consumer.poll(WAIT_S)
    if first is None or first.error() is not None:
        raise SystemExit(f"nothing to read: {first and first.error()}")
    began, count = time.perf_counter(), 0
    while count < wanted - 1:
        # it returns as soon as so many are there, and no more are asked for than are left
        found = consumer.consume(min(AT_ONCE, wanted - 1 - count), 1)
        count += len(found)
        if not found and time.perf_counter() - began > WAIT_S:
            raise SystemExit(f"{count} of {wanted} records arrived within {WAIT_S} s")
    print(json.dumps({"records": count, "seconds": time.perf_counter() - began}))


if __name__ == "__main__":
    main(sys.argv[1:])
