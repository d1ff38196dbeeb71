"""Clusters of both kinds of broker, and requests to them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import trio
from confluent_kafka.admin import AdminClient, NewTopic

from highwater.chaos.witnesses import disk_reader as disk
from highwater.cluster import leader_moves as admin
from highwater.cluster.ask import ask, metadata
from highwater.cluster.processes import apache
from highwater.cluster.processes.process_settings import Settings
from highwater.cluster.processes.programs import ApacheKafka, Highwater, Program
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire import records
from tests import waiting
from tests.background import BackgroundCluster

PARTITIONS = 6
APACHE, HIGHWATER = "apache", "highwater"
OLD_APACHE, OLD = "apache 2.6", "2.6.3"
eventually = partial(waiting.eventually, within_s=60)


def program(kind: str) -> Program:
    if kind == HIGHWATER:
        return Highwater()
    # a log cleaner that starts again holds its old and its new buffer of 128 MiB for a while
    quick = ("-Xmx640m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    if kind == OLD_APACHE:
        return ApacheKafka(apache.home(OLD), jvm=quick, version=OLD)
    return ApacheKafka(apache.home(), jvm=quick)


class Mixed:
    """Three brokers, of kinds by number, on one ZooKeeper; used from a test's own thread."""

    def __init__(
        self, folder: Path, kinds: Mapping[int, str], properties: Mapping[str, str] | None = None
    ) -> None:
        self.kinds = dict(kinds)
        self.settings = Settings(
            folder,
            brokers=len(kinds),
            # the oracle stands on the real parts; a mixed cluster shows that ours serves both
            zookeeper="java" if len(set(kinds.values())) == 1 else "embedded",
            programs={n: program(kind) for n, kind in kinds.items()},
            properties={
                "auto.leader.rebalance.enable": "false",
                "controlled.shutdown.retry.backoff.ms": "300",
                **(properties or {}),
            },
        )
        self.background = BackgroundCluster.of(self.settings)

    def become(self, kinds: Mapping[int, str]) -> None:
        """At its next start each broker is of the other kind, on its old folder."""
        self.kinds = dict(kinds)
        self.settings.programs.update({n: program(kind) for n, kind in kinds.items()})

    def start_all(self) -> None:
        """Starts all brokers at once, and waits until each serves."""
        self.background._call(self._start_all)

    async def _start_all(self) -> None:
        async with trio.open_nursery() as nursery:
            for number in self.numbers:
                nursery.start_soon(self.cluster.start, f"broker-{number}")

    @property
    def cluster(self) -> Any:
        return self.background.cluster

    @property
    def numbers(self) -> list[int]:
        return list(self.kinds)

    def of_kind(self, kind: str) -> list[int]:
        return [n for n, k in self.kinds.items() if k == kind]

    @property
    def bootstrap(self) -> str:
        return self.background.bootstrap_servers

    def call(self, number: int, request: Any, version: int, timeout_s: float = 60) -> Any:
        """One request to a broker, on a connection of its own."""
        return trio.run(ask, self.cluster.address(number), request, version, timeout_s)

    def metadata(self, topics: list[str] | None = None, number: int | None = None) -> Any:
        """The metadata, from a broker that runs."""
        running = [n for n in self.numbers if self.cluster.running(f"broker-{n}")]
        for candidate in [number] if number is not None else running:
            try:
                return trio.run(metadata, self.cluster.address(candidate), topics)
            except OSError:
                continue  # it is about to end
        raise AssertionError("no broker answers")

    def seen(self, topic: str) -> dict[int, tuple[int, list[int]]]:
        """Leader and ISR of each partition."""
        found = self.metadata([topic]).topics[0].partitions
        return {p.partition_index: (p.leader_id, sorted(p.isr_nodes)) for p in found}

    def whole(self, topic: str) -> bool:
        found = self.seen(topic)
        return bool(found) and all(
            lead >= 0 and isr == self.numbers for lead, isr in found.values()
        )

    def controller(self) -> int:
        return int(self.metadata([]).controller_id)

    def move_leader(self, topic: str, partition: int, wanted: int) -> None:
        tp = TopicPartition(topic, partition)
        self.background._call(admin.move_leader, self.cluster, tp, wanted, self.numbers)

    def state(self, topic: str) -> str:
        """The state, for a test's message."""
        ends = "\n".join(
            f"--- broker {n} ({self.kinds[n]})\n"
            + self.cluster.output(f"broker-{n}").read_text(errors="replace")[-2500:]
            for n in self.numbers
        )
        return f"leader and ISR {self.seen(topic)}, controller {self.controller()}\n{ends}"

    def folder(self, number: int, topic: str, partition: int) -> Path:
        found = disk.find_partition(
            self.cluster.data_dirs(number), TopicPartition(topic, partition)
        )
        assert found is not None, f"{topic}-{partition} is not on broker {number}"
        return found


def create(mixed: Mixed, topic: str) -> None:
    """Creates a topic with a replica on every broker, and waits until it is whole."""
    admin = AdminClient({"bootstrap.servers": mixed.bootstrap})
    wanted = NewTopic(topic, PARTITIONS, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([wanted])[topic].result(60)
    eventually(lambda: mixed.whole(topic), "the topic is whole", lambda: mixed.state(topic))


def log_bytes(folder: Path) -> bytes:
    """All batches of a replica, byte for byte as in its segments."""
    parts = []
    for segment in disk.segments(folder):
        data = segment.read_bytes()
        end = 0
        for header in records.batches(data):
            end = header.position + header.size
        parts.append(data[:end])
    return b"".join(parts)
