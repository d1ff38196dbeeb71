"""Kafka Streams counts words exactly once while brokers, coordinators and the application die.

The application writes a word's count each time it sees the word, in the same transaction as the
offsets of its input and the changes of its store.  Its producers speak transaction.version 2: each
end of a transaction gives them a new epoch.  So the committed output of a word must be 1, 2,
3, ... up to its count in the input: a repeated number is a record counted twice or an aborted one
shown, a missing number is a lost record.
"""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer

from highwater.broker.coordinator.shard import partition_for
from highwater.cluster.processes.zookeeper_process import find_java
from highwater.kafka.wire.messages import DescribeTransactionsRequest, ListTransactionsRequest
from tests.background import BackgroundCluster
from tests.integration.process.app_runs import compiled, streams_libs, write_log4j
from tests.integration.robustness.rig import call
from tests.integration.transactions.test_transactions import PARTITIONS, Run, eventually, reader

pytestmark = [
    pytest.mark.integration, pytest.mark.slow, pytest.mark.apache, pytest.mark.timeout(240),
]  # fmt: skip
WORDS = [f"word{n}" for n in range(20)]
OFFSETS_PARTITIONS = 4
WITHIN_S = 60


class Application:
    """One instance of the word count, as a process."""

    def __init__(self, bootstrap: str, folder: Path, number: int) -> None:
        log4j = write_log4j(folder / "log4j.properties")
        self.output = folder / f"application-{number}.out"
        class_path = f"{streams_libs()}/*:{folder / 'classes'}"
        command = [
            find_java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            f"-Dlog4j.configuration=file:{log4j}", "-cp", class_path,
            "WordCount", bootstrap, "count", "lines", "counts", str(folder / f"state-{number}"),
        ]  # fmt: skip
        with self.output.open("wb") as sink:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=sink, stderr=sink
            )

    def said(self, line: str) -> bool:
        assert self.process.poll() is None, self.output.read_text(errors="replace")[-3000:]
        return line in self.output.read_text(errors="replace").splitlines()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def applications(cluster: BackgroundCluster, folder: Path) -> Iterator[list[Application]]:
    compiled(Path(__file__).with_name("WordCount.java"), folder / "classes")
    running = [Application(cluster.bootstrap_servers, folder, number) for number in range(2)]
    try:
        yield running
    finally:
        for application in running:
            application.kill()


class Output:
    """The counts that read_committed shows."""

    def __init__(self, cluster: BackgroundCluster) -> None:
        self._consumer: Consumer = reader(cluster, "counts")
        self.counts: dict[str, list[int]] = {}
        self.seen = 0

    def take(self, wait_s: float = 0.2) -> bool:
        message = self._consumer.poll(wait_s)
        if message is None or message.error():
            return False
        word, count = (message.key() or b"").decode(), int(message.value() or b"0")
        self.counts.setdefault(word, []).append(count)
        self.seen += 1
        return True

    def reaches(self, count: int) -> bool:
        self.take()
        return self.seen >= count

    def positions(self) -> str:
        """The positions, to explain why it does not come to its end."""
        consumer = self._consumer
        at = {p.partition: p.offset for p in consumer.position(consumer.assignment())}
        return f"counts: at {at}"

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def lines(cluster: BackgroundCluster) -> Iterator[Counter[str]]:
    """Sends lines of words all the time, each acknowledged, once; counts each word in them."""
    counted: Counter[str] = Counter()
    errors: list[object] = []
    stop = threading.Event()
    source = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})

    def acked(error: object, message: Message) -> None:
        if error is not None:
            errors.append(error)
        counted.update((message.value() or b"").decode().split())

    def send() -> None:
        chance = random.Random(0)
        number = 0
        while not stop.wait(0.02):
            line = " ".join(chance.choices(WORDS, k=3)).encode()
            source.produce("lines", line, partition=number % PARTITIONS, on_delivery=acked)
            source.poll(0)
            number += 1

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield counted
    finally:
        stop.set()
        thread.join()
    assert source.flush(60) == 0
    assert not errors, errors


def kill(cluster: BackgroundCluster, topic: str, partition: int) -> None:
    """Kills the partition's leader in the middle of its work; it comes back once another leads."""
    victim = cluster.leader_of(topic, partition)
    cluster.kill(victim)
    eventually(
        lambda: cluster.leader_of(topic, partition) not in (victim, -1),
        f"another leader of {topic}-{partition}",
    )
    cluster.start(victim)
    eventually(lambda: len(cluster.isr_of(topic, partition)) == 3, "all replicas in sync")


def epochs(cluster: BackgroundCluster) -> Iterator[int]:
    """The producer epoch of each transactional id."""
    listing = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    for number in (1, 2, 3):
        address = cluster.cluster.address(number)
        listed = call(address, listing, 0).transaction_states
        ids = [one.transactional_id for one in listed]
        found = call(address, DescribeTransactionsRequest(transactional_ids=ids), 0)
        yield from (one.producer_epoch for one in found.transaction_states)


@pytest.mark.rare  # test_chaos_streams has exactly_once_v2, with a copy that is killed
def test_words_are_counted_exactly_once(
    cluster: BackgroundCluster, apache_tool: Run, tmp_path: Path
) -> None:
    for topic in ("lines", "counts"):
        cluster.create_topic(topic, partitions=PARTITIONS)
    with applications(cluster, tmp_path) as running:
        output = Output(cluster)
        with lines(cluster) as expected:
            eventually(lambda: output.reaches(100), "the first counts")
            kill(cluster, "__consumer_offsets", partition_for("count", OFFSETS_PARTITIONS))
            running.pop(0).kill()
            running.append(Application(cluster.bootstrap_servers, tmp_path, 2))
            kill(cluster, "counts", 0)
            kill(cluster, "__transaction_state", 0)
            running.pop(0).kill()
            seen = output.seen
            eventually(lambda: output.reaches(seen + 100), "more counts")
        deadline = time.monotonic() + WITHIN_S
        while not output.reaches(expected.total()):
            assert time.monotonic() < deadline, (output.seen, expected.total(), output.positions())
        eventually(lambda: not output.take(1.0), "nothing more comes")
        assert max(epochs(cluster)) > 10, "one for each transaction"
        output.close()
    for word, times in expected.items():
        assert output.counts[word] == list(range(1, times + 1)), word
    assert output.counts.keys() == expected.keys()
