"""One writer for `highwater bench failover`, as a process: kafka-python or librdkafka, by default.

    python -I -m highwater.bench.loads.writes kafka-python BOOTSTRAP TOPIC [RETRY-BACKOFF-MS]

It sends a small record to partition 0 each 5 ms, as long as not too many wait, and prints a line
for each one acknowledged ("ack NANOSECONDS", the system's monotonic clock) or failed ("error ...").
`Writes.java` beside this file does the same with the Java client.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from pathlib import Path
from typing import Any

from highwater.cluster.processes.zookeeper_process import find_java
from highwater.kafka.private_copy import kafka_python as kafka_library

CLIENTS = ("kafka-python", "librdkafka", "java")
PACE_S = 0.005
MOST_WAITING = 200


def command(
    client: str, bootstrap: str, topic: str, kafka_home: Path | None, backoff_ms: int | None = None
) -> list[str]:
    """The command of a writer; the Java client comes from an Apache Kafka's jars.  `backoff_ms` is
    retry.backoff.ms; None: the client's own.
    """
    backoff = [] if backoff_ms is None else [str(backoff_ms)]
    if client == "java":
        assert kafka_home is not None
        source = Path(__file__).with_name("Writes.java")
        quick = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        jars = f"{kafka_home}/libs/*"
        return [find_java(), *quick, "-cp", jars, str(source), bootstrap, topic, *backoff]
    return [sys.executable, "-I", "-m", __spec__.name, client, bootstrap, topic, *backoff]


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def librdkafka(bootstrap: str, topic: str, backoff_ms: str | None = None) -> None:
    import confluent_kafka

    def delivered(error: Any, _: Any) -> None:
        say(f"error {error}" if error is not None else f"ack {time.monotonic_ns()}")

    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0}
    if backoff_ms is not None:
        settings["retry.backoff.ms"] = int(backoff_ms)
    producer = confluent_kafka.Producer(settings)
    for number in itertools.count():
        if len(producer) < MOST_WAITING:
            producer.produce(topic, b"record %d" % number, partition=0, on_delivery=delivered)
        producer.poll(PACE_S)


def kafka_python(bootstrap: str, topic: str, backoff_ms: str | None = None) -> None:
    waiting = threading.Semaphore(MOST_WAITING)

    def acked(_: Any) -> None:
        waiting.release()
        say(f"ack {time.monotonic_ns()}")

    def failed(error: Any) -> None:
        waiting.release()
        say(f"error {error!r}")

    settings = {} if backoff_ms is None else {"retry_backoff_ms": int(backoff_ms)}
    producer = kafka_library().KafkaProducer(
        bootstrap_servers=bootstrap.split(","), acks="all", **settings
    )
    for number in itertools.count():
        with_room = waiting.acquire(timeout=PACE_S)
        if with_room:
            sent = producer.send(topic, b"record %d" % number, partition=0)
            sent.add_callback(acked)
            sent.add_errback(failed)
            time.sleep(PACE_S)


if __name__ == "__main__":
    {"kafka-python": kafka_python, "librdkafka": librdkafka}[sys.argv[1]](*sys.argv[2:])
