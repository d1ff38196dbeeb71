"""One writer for `highwater bench failover`, as a process: kafka-python or librdkafka, by default.

    python -I -m highwater.bench.loads.writes kafka-python SETTINGS TOPIC

SETTINGS is a file with the client's settings, as JSON (Java's: properties).  The writer sends a
small record to partition 0 each 5 ms, as long as not too many wait, and prints a line for each one
acknowledged ("ack NANOSECONDS", the system's monotonic clock) or failed ("error ...").  A producer
of kafka-python from which nothing has come for STALLED_S is replaced ("replaced"): it may never
hear of a new leader again (docs/client-problems.md).
`Writes.java` beside this file does the same with the Java client.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from highwater.cluster.client_files import client_settings, write
from highwater.cluster.processes.zookeeper_process import find_java
from highwater.kafka.private_copy import kafka_python as kafka_library

CLIENTS = ("kafka-python", "librdkafka", "java")
PACE_S = 0.005
MOST_WAITING = 200
STALLED_S = 5.0


def settings_file(
    client: str, folder: Path, bootstrap: str, security: str, backoff_ms: int | None = None
) -> Path:
    """Writes the client's settings into a file in the cluster's folder, for its owner alone: it may
    hold a password.  `backoff_ms` is retry.backoff.ms; None: the client's own."""
    given = client_settings(folder / "secure", bootstrap, security, client)
    if backoff_ms is not None:
        given["retry_backoff_ms" if client == "kafka-python" else "retry.backoff.ms"] = backoff_ms
    path = folder / f"writes-{client}"
    lines = "".join(f"{name}={value}\n" for name, value in given.items())
    write(path, lines if client == "java" else json.dumps(given))
    return path


def command(client: str, settings: Path, topic: str, kafka_home: Path | None) -> list[str]:
    """The command of a writer; the Java client comes from an Apache Kafka's jars."""
    if client == "java":
        assert kafka_home is not None
        source = Path(__file__).with_name("Writes.java")
        quick = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        jars = f"{kafka_home}/libs/*"
        return [find_java(), *quick, "-cp", jars, str(source), str(settings), topic]
    return [sys.executable, "-I", "-m", __spec__.name, client, str(settings), topic]


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def librdkafka(settings: dict[str, Any], topic: str) -> None:
    import confluent_kafka

    def delivered(error: Any, _: Any) -> None:
        say(f"error {error}" if error is not None else f"ack {time.monotonic_ns()}")

    producer = confluent_kafka.Producer({**settings, "log_level": 0})
    for number in itertools.count():
        if len(producer) < MOST_WAITING:
            producer.produce(topic, b"record %d" % number, partition=0, on_delivery=delivered)
        producer.poll(PACE_S)


def kafka_python(settings: dict[str, Any], topic: str) -> None:
    while True:
        _until_stalled(settings, topic)
        say("replaced")


def _until_stalled(settings: dict[str, Any], topic: str) -> None:
    waiting, heard = threading.Semaphore(MOST_WAITING), [time.monotonic()]

    def acked(_: Any) -> None:
        waiting.release()
        heard[0] = time.monotonic()
        say(f"ack {time.monotonic_ns()}")

    def failed(error: Any) -> None:
        waiting.release()
        say(f"error {error!r}")

    producer = kafka_library().KafkaProducer(**settings, acks="all")
    for number in itertools.count():
        if time.monotonic() - heard[0] > STALLED_S:
            threading.Thread(target=producer.close, args=(0,), daemon=True).start()
            return
        with_room = waiting.acquire(timeout=PACE_S)
        if with_room:
            sent = producer.send(topic, b"record %d" % number, partition=0)
            sent.add_callback(acked)
            sent.add_errback(failed)
            time.sleep(PACE_S)


if __name__ == "__main__":
    _, client, path, topic = sys.argv
    given = json.loads(Path(path).read_text(encoding="utf-8"))
    {"kafka-python": kafka_python, "librdkafka": librdkafka}[client](given, topic)
