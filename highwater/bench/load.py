"""One measured load: a process of its own, so that nothing of the harness shares its interpreter.

    python -I -m highwater.bench.load '{"bootstrap": ..., "topic": ..., ...}'

It produces through librdkafka for a moment (connections, metadata) and flushes.  Then it produces
the measured bytes, or for the measured time if that ends first, and flushes again: the clock stops
when the last record is acknowledged.  Delivery reports come only for failures, because a Python
call per record would measure Python; one failure makes the whole load fail.

Prints one JSON line: {"records", "seconds"}.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import confluent_kafka


@dataclass(frozen=True, slots=True)
class Load:
    bootstrap: str
    topic: str
    record_bytes: int
    batch_bytes: int
    acks: str
    warm_up_s: float
    measure_s: float
    measure_mb: float = float("inf")
    """Millions of bytes of record values."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Further settings of the producer."""
    transaction: tuple[int, float] | None = None
    """Records and seconds after which a transaction is committed, whichever comes first."""

    def command(self) -> list[str]:
        return [sys.executable, "-I", "-m", __spec__.name, json.dumps(asdict(self))]


class _Failed(Exception):
    pass


class _Failures:
    """The first failed delivery; librdkafka reports nothing else here."""

    def __init__(self) -> None:
        self.first: Any = None

    def __call__(self, error: Any, _message: Any) -> None:
        self.first = self.first or error


def _settings(load: Load, failures: _Failures) -> dict[str, Any]:
    return {
        "bootstrap.servers": load.bootstrap,
        "acks": load.acks,
        "batch.size": load.batch_bytes,
        # a batch is sent when it is full; the time bound only ends the last ones
        "linger.ms": 20,
        "batch.num.messages": 1_000_000,
        "message.max.bytes": 4_000_000,
        "queue.buffering.max.messages": 50_000,
        "delivery.report.only.error": True,
        "on_delivery": failures,
        **load.settings,
        **({"transactional.id": load.topic} if load.transaction else {}),
    }


def _produce(
    producer: Any, load: Load, seconds: float, megabytes: float, failures: _Failures
) -> int:
    """Produces as fast as the queue takes it, and waits for the last acknowledgement."""
    topic, produce, sent = load.topic, producer.produce, 0
    value = os.urandom(load.record_bytes)
    enough = megabytes * 1e6 / load.record_bytes
    end = time.perf_counter() + seconds
    most, longest_s = load.transaction or (500, 0.0)
    until = end
    while sent < enough and time.perf_counter() < end:
        if load.transaction:
            producer.begin_transaction()
            until = time.perf_counter() + longest_s
        for number in range(most):
            if load.transaction and not number % 100 and time.perf_counter() > until:
                break
            try:
                produce(topic, value)
                sent += 1
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
        if load.transaction:
            producer.commit_transaction(60)
        if failures.first is not None:
            break
    left = producer.flush(60)
    if failures.first is not None:
        raise _Failed(f"a record was not delivered: {failures.first}")
    if left:
        raise _Failed(f"{left} records were not acknowledged within 60 s")
    return sent


def run(load: Load) -> dict[str, float]:
    failures = _Failures()
    producer = confluent_kafka.Producer(_settings(load, failures))
    if load.transaction:
        producer.init_transactions(60)
    _produce(producer, load, load.warm_up_s, load.measure_mb, failures)
    began = time.perf_counter()
    sent = _produce(producer, load, load.measure_s, load.measure_mb, failures)
    return {"records": sent, "seconds": time.perf_counter() - began}


def main(arguments: list[str]) -> int:
    load = Load(**json.loads(arguments[0]))
    try:
        measured = run(load)
    except (_Failed, confluent_kafka.KafkaException) as error:
        print(f"load on {load.topic}: {error}", file=sys.stderr)
        return 1
    print(json.dumps(measured))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
