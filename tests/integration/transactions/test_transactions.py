"""Transactions with the clients that people use, while brokers die.

Nothing here waits for a fixed time: each step is repeated until it holds, or the test fails.
"""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaProducer
from kafka.errors import KafkaError

from highwater.broker.coordinator.shard import partition_for
from tests import waiting
from tests.background import BackgroundCluster

pytestmark = pytest.mark.integration
PARTITIONS = 3
WITHIN_S = 60
eventually = partial(waiting.eventually, within_s=WITHIN_S)
STATE_TOPIC = "__transaction_state"
STATE_PARTITIONS = 4
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def confluent(cluster: BackgroundCluster, name: str, timeout_ms: int = 60_000) -> Producer:
    return Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": name,
            "transaction.timeout.ms": timeout_ms,
            "message.timeout.ms": min(timeout_ms, 30_000),
            "linger.ms": 0,
        }
    )


def reader(cluster: BackgroundCluster, topic: str, isolation: str = "read_committed") -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": f"reader-{time.monotonic_ns()}",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    return consumer


def read(cluster: BackgroundCluster, topic: str, count: int) -> list[tuple[int, str]]:
    """The first `count` (partition, value) under read_committed, and any that follow at once."""
    consumer = reader(cluster, topic)
    found: list[tuple[int, str]] = []
    deadline = time.monotonic() + WITHIN_S
    try:
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} records"
            _take(consumer, found, 0.5)
        while _take(consumer, found, 1.0):
            pass
    finally:
        consumer.close()
    return found


def _take(consumer: Consumer, found: list[tuple[int, str]], wait_s: float) -> bool:
    message = consumer.poll(wait_s)
    if message is None or message.error():
        return False
    found.append((message.partition() or 0, (message.value() or b"").decode()))
    return True


def transact(producer: Producer, topic: str, name: str, *, commit: bool = True) -> bool:
    """Sends to each partition; returns whether the transaction was committed for certain."""
    try:
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(topic, name.encode(), partition=partition)
        if commit:
            producer.commit_transaction(WITHIN_S)
            return True
        producer.flush(WITHIN_S)  # or the records would be thrown away unsent
    except KafkaException as exc:
        if not exc.args[0].txn_requires_abort():
            raise
    producer.abort_transaction(WITHIN_S)
    return False


def coordinator_of(cluster: BackgroundCluster, name: str) -> int:
    return cluster.leader_of(STATE_TOPIC, partition_for(name, STATE_PARTITIONS))


@contextmanager
def dying(cluster: BackgroundCluster, *targets: Callable[[], int]) -> Iterator[list[int]]:
    """Kills each target (-9) in turn, found when its turn has come, and starts it again; each of
    them at least once.
    """
    killed: list[int] = []
    stop = threading.Event()
    errors: list[BaseException] = []

    def kill() -> None:
        try:
            while not stop.is_set() or len(killed) < len(targets):
                victim = targets[len(killed) % len(targets)]()
                if victim < 0:
                    continue
                cluster.kill(victim)
                killed.append(victim)
                eventually(
                    lambda t=targets, n=len(killed): t[(n - 1) % len(t)]() not in (victim, -1),  # type: ignore[misc]  # noqa: B023
                    f"another leader than {victim}",
                )
                cluster.start(victim)
                eventually(lambda: len(cluster.isr_of(STATE_TOPIC, 0)) == 3, "all replicas in sync")
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        stop.set()
        thread.join()
    assert not errors, errors


def test_aborted_records_are_not_read_and_a_zombie_is_fenced(cluster: BackgroundCluster) -> None:
    cluster.create_topic("plain", partitions=PARTITIONS)
    zombie = confluent(cluster, "plain")
    zombie.init_transactions(WITHIN_S)
    for n in range(6):
        transact(zombie, "plain", f"{n}", commit=n % 3 != 2)
    zombie.begin_transaction()
    zombie.produce("plain", b"zombie", partition=0)
    assert zombie.flush(WITHIN_S) == 0
    newcomer = confluent(cluster, "plain")
    newcomer.init_transactions(WITHIN_S)
    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(WITHIN_S)
    assert refused.value.args[0].name() in ("_FENCED", "INVALID_PRODUCER_EPOCH")
    assert transact(newcomer, "plain", "new")
    found = read(cluster, "plain", 5 * PARTITIONS)
    for partition in range(PARTITIONS):
        assert [v for p, v in found if p == partition] == ["0", "1", "3", "4", "new"]


def test_kafka_python_commits_and_aborts(cluster: BackgroundCluster) -> None:
    cluster.create_topic("python", partitions=PARTITIONS)
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="python")
    producer.init_transactions()
    for n in range(6):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.send("python", f"{n}".encode(), partition=partition)
        if n % 3 == 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    newcomer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="python")
    newcomer.init_transactions()
    producer.begin_transaction()
    late = producer.send("python", b"zombie", partition=0)
    with pytest.raises(KafkaError):
        late.get(timeout=WITHIN_S)
    newcomer.close()
    producer.close(timeout=1)
    found = read(cluster, "python", 4 * PARTITIONS)
    for partition in range(PARTITIONS):
        assert [v for p, v in found if p == partition] == ["0", "1", "3", "4"]


def test_offsets_count_with_their_transaction(cluster: BackgroundCluster) -> None:
    cluster.create_topic("offsets", partitions=PARTITIONS)
    producer = confluent(cluster, "offsets")
    producer.init_transactions(WITHIN_S)
    consumer = reader(cluster, "offsets")
    place = TopicPartition("offsets", 0)
    for offset, commit, expected in ((5, True, 5), (9, False, 5), (7, True, 7)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction(
            [TopicPartition("offsets", 0, offset)], consumer.consumer_group_metadata(), WITHIN_S
        )
        if commit:
            producer.commit_transaction(WITHIN_S)
        else:
            producer.abort_transaction(WITHIN_S)
        eventually(
            lambda e=expected: consumer.committed([place], WITHIN_S)[0].offset == e,  # type: ignore[misc]
            f"the group is at {expected}",
        )
    consumer.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_whole_transactions_while_coordinators_and_leaders_die(
    cluster: BackgroundCluster,
) -> None:
    cluster.create_topic("whole", partitions=PARTITIONS)
    producer = confluent(cluster, "whole")
    producer.init_transactions(WITHIN_S)
    committed: list[str] = []
    attempts = 0
    with dying(
        cluster, lambda: coordinator_of(cluster, "whole"), lambda: cluster.leader_of("whole", 0)
    ) as killed:
        while len(killed) < 4 or len(committed) < 50:
            name = f"{attempts}"
            if transact(producer, "whole", name, commit=attempts % 5 != 4):
                committed.append(name)
            attempts += 1
            assert attempts < 20_000
    assert len(killed) >= 4
    found = read(cluster, "whole", len(committed) * PARTITIONS)
    for partition in range(PARTITIONS):
        assert [v for p, v in found if p == partition] == committed


@pytest.mark.slow
@pytest.mark.apache
@pytest.mark.rare  # test_streams has Java's transactions while brokers die
@pytest.mark.timeout(400)
def test_javas_copier_copies_exactly_once_while_brokers_die(
    cluster: BackgroundCluster, apache_tool: Run
) -> None:
    count = 4000
    cluster.create_topic("copy-in")
    cluster.create_topic("copy-out", partitions=PARTITIONS)
    source = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for n in range(count):
        source.produce("copy-in", f"{n}".encode(), partition=0)
        source.poll(0)
    assert source.flush(WITHIN_S) == 0
    arguments = {
        "--broker-list": cluster.bootstrap_servers, "--input-topic": "copy-in",
        "--input-partition": "0", "--output-topic": "copy-out", "--max-messages": "-1",
        "--consumer-group": "copier", "--transaction-size": "20", "--transaction-timeout": "10000",
        "--transactional-id": "copier",
    }  # fmt: skip
    words = [word for pair in arguments.items() for word in pair]
    with dying(
        cluster,
        lambda: coordinator_of(cluster, "copier"),
        lambda: cluster.leader_of("copy-in", 0),
        lambda: cluster.leader_of("copy-out", 0),
    ) as killed:
        done = apache_tool(
            "org.apache.kafka.tools.TransactionalMessageCopier",
            [*words, "--enable-random-aborts"],
            timeout_s=240,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert len(killed) >= 3
    assert '"stage":"Shutdown' in done.stdout.replace(" ", "") or "shutdown" in done.stdout
    found = [int(value) for _, value in read(cluster, "copy-out", count)]
    assert sorted(found) == list(range(count))


@pytest.mark.apache
def test_apaches_transactions_tool(cluster: BackgroundCluster, apache_tool: Run) -> None:
    cluster.create_topic("tool", partitions=PARTITIONS)
    producer = confluent(cluster, "tool-id")
    producer.init_transactions(WITHIN_S)
    producer.begin_transaction()
    producer.produce("tool", b"open", partition=1)
    assert producer.flush(WITHIN_S) == 0

    def tool(*arguments: str) -> str:
        servers = ["--bootstrap-server", cluster.bootstrap_servers]
        done = apache_tool("org.apache.kafka.tools.TransactionsCommand", [*servers, *arguments])
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert re.search(r"tool-id\s+\d\s+\d+\s+Ongoing", tool("list"))
    described = tool("describe", "--transactional-id", "tool-id")
    assert re.search(r"tool-id\s+\d+\s+0\s+Ongoing\s+60000\s+.*tool-1", described)
    producers = tool("describe-producers", "--topic", "tool", "--partition", "1")
    row = producers.splitlines()[1].split()
    assert row[1] == "0", producers
    assert row[-1] == "0", "the open transaction begins at offset 0"
    tool("abort", "--topic", "tool", "--partition", "1", "--start-offset", "0")
    producers = tool("describe-producers", "--topic", "tool", "--partition", "1")
    assert producers.splitlines()[1].split()[-1] == "None"
