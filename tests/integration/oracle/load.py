"""A load that runs as long as a module's tests, and the fate of each record.

One idempotent librdkafka producer, acks=all, to every partition of one topic.  Each record holds
its number.  Acknowledged records are kept by place, so that they can be looked up afterwards in
logs and by a consumer (`reading`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

import confluent_kafka

from tests.integration.reading import Place


class Load:
    def __init__(self, bootstrap: str, topic: str, partitions: int, **settings: Any) -> None:
        self.topic = topic
        self.acked: dict[Place, bytes] = {}
        self.placeless: list[bytes] = []
        """Acknowledged without an offset: a repeated batch that the broker no longer remembers."""
        self.failed: list[str] = []
        self.sent = 0
        self._partitions = partitions
        self._stop = threading.Event()
        self._news = threading.Condition()
        self._by_partition = [0] * partitions
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
                **settings,
            }
        )
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        """Produces, behind a bounded queue: it cannot run ahead of a cluster that is silent."""
        while not self._stop.is_set():
            while len(self._producer) < 60:
                value = b"record %d " % self.sent + os.urandom(150)
                self._producer.produce(
                    self.topic,
                    value,
                    partition=self.sent % self._partitions,
                    on_delivery=self._delivered,
                )
                self.sent += 1
            self._producer.poll(0.02)
            self._stop.wait(0.05)
        self._producer.flush(60)

    def _delivered(self, error: Any, message: Any) -> None:
        with self._news:
            if error is not None:
                self.failed.append(str(error))
            else:
                partition = message.partition()
                if message.offset() is None or message.offset() < 0:
                    self.placeless.append(message.value())
                else:
                    self.acked[partition, message.offset()] = message.value()
                self._by_partition[partition] += 1
            self._news.notify_all()

    def more(self, count: int = 30, within_s: float = 60) -> None:
        """Waits until every partition has acknowledged so many more."""
        with self._news:
            goal = [n + count for n in self._by_partition]

            def there() -> bool:
                return bool(self.failed) or all(
                    n >= g for n, g in zip(self._by_partition, goal, strict=True)
                )

            came = self._news.wait_for(there, timeout=within_s)
        assert not self.failed, self.failed[:3]
        assert came, f"within {within_s:g} s: {self._by_partition}, wanted {goal}"

    def finish(self) -> None:
        """Stops, once all records that were sent are acknowledged."""
        self._stop.set()
        self._thread.join(90)
        assert not self._thread.is_alive()
        assert self.failed == []
        assert len(self.acked) + len(self.placeless) == self.sent


def lost(load: Load, found: dict[Place, bytes]) -> Sequence[Place | bytes]:
    """The acknowledged records that are missing, or not in their place."""
    values = set(found.values())
    missing = [value for value in load.placeless if value not in values]
    return [*sorted(p for p, value in load.acked.items() if found.get(p) != value), *missing]
