"""A load on a cluster, and the cluster's metadata and output meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.background import BackgroundCluster
from tests.integration.robustness.rig import metadata
from tests.waiting import eventually

TOPIC, PARTITIONS = "loaded", 6
"""Each broker leads two, and with two log directories one of them in each."""


class Load:
    """Numbered records to every partition with acks=all; the acknowledged ones, by place."""

    def __init__(self, cluster: BackgroundCluster) -> None:
        self.acked: dict[tuple[int, int], bytes] = {}
        self.failed: list[str] = []
        self._bootstrap = cluster.bootstrap_servers
        self._sent = 0
        self._producer = Producer(
            {
                "bootstrap.servers": self._bootstrap, "enable.idempotence": True, "linger.ms": 1,
                "batch.size": 20_000, "log_level": 0,
            }
        )  # fmt: skip

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acked[message.partition(), message.offset()] = message.value()

    def send(self) -> None:
        """Sends a few more, as long as not too many are on their way."""
        for _ in range(0 if len(self._producer) > 100 else 20):
            value = b"%d " % self._sent + os.urandom(5000)
            partition = self._sent % PARTITIONS
            self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._delivered)
            self._sent += 1
        self._producer.poll(0.01)

    def until(
        self, condition: Callable[[], object], what: str, state: Callable[[], object]
    ) -> None:
        """Sends until a condition holds."""

        def sent() -> object:
            self.send()
            return condition()

        eventually(sent, what, state)

    def finish(self) -> None:
        """Waits until every record is acknowledged, and reads all back as they were."""
        assert self._producer.flush(60) == 0
        assert self.failed == []
        assert len(self.acked) == self._sent
        found = self._read()
        lost = [place for place, value in self.acked.items() if found.get(place) != value]
        assert not lost, f"{len(lost)} of {len(self.acked)}: {sorted(lost)[:5]}"

    def _read(self) -> dict[tuple[int, int], bytes]:
        settings = {"group.id": "none is joined", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": self._bootstrap, **settings})
        places = [TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)]
        consumer.assign(places)
        missing = set(self.acked)
        found: dict[tuple[int, int], bytes] = {}

        def all_read() -> bool:
            for message in consumer.consume(1000, 0.2):
                assert message.error() is None, message.error()
                found[message.partition(), message.offset()] = message.value()
                missing.discard((message.partition(), message.offset()))
            return not missing

        eventually(all_read, "everything is read", lambda: f"{len(missing)} are missing")
        consumer.close()
        return found


def output(cluster: BackgroundCluster, number: int) -> str:
    return cluster.cluster.output(f"broker-{number}").read_text(errors="replace")


def lines(cluster: BackgroundCluster, number: int, words: str) -> list[str]:
    return [line for line in output(cluster, number).splitlines() if words in line]


def seen(cluster: BackgroundCluster) -> dict[int, tuple[int, list[int]]]:
    """Leader and ISR of each partition, by the metadata of a running broker."""
    for number in cluster.cluster.brokers:
        if cluster.cluster.running(f"broker-{number}"):
            try:
                found = metadata(cluster.cluster.address(number), [TOPIC]).topics[0].partitions
            except OSError:
                continue  # it is about to end
            by_number = sorted(found, key=lambda p: int(p.partition_index))
            return {p.partition_index: (p.leader_id, list(p.isr_nodes)) for p in by_number}
    return {}


def leaders(cluster: BackgroundCluster) -> list[int]:
    return [leader for leader, _ in seen(cluster).values()]


def in_sync(cluster: BackgroundCluster) -> bool:
    found = seen(cluster)
    return len(found) == PARTITIONS and all(len(isr) == 3 for _, isr in found.values())


def state(cluster: BackgroundCluster) -> str:
    ends = "\n".join(output(cluster, n)[-3000:] for n in cluster.cluster.brokers)
    return f"leader and ISR: {seen(cluster)}\n{ends}"
