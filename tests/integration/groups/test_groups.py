"""Consumer groups with the clients that people use: members, commits, and the coordinator's death.

Nothing here waits for a fixed time: each step is repeated until it holds, or the test fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import CommitFailedError

from highwater.broker.coordinator.shard import partition_for
from tests import waiting
from tests.background import BackgroundCluster

PARTITIONS = 4
RECORDS = 40
WITHIN_S = 60
POLL_MS = 1000
"""kafka-python 3.0.12 loses an assignment that comes between two polls, if the first one's time was
over while its group rebalanced: see docs/client-problems.md."""
eventually = partial(waiting.eventually, within_s=WITHIN_S)


def fill(cluster: BackgroundCluster, topic: str) -> None:
    """A topic with RECORDS records, the same number in each partition."""
    cluster.create_topic(topic, partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for number in range(RECORDS):
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(WITHIN_S) == 0


def kafka_python(cluster: BackgroundCluster, topic: str, group: str, **settings: Any) -> Any:
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id=group, auto_offset_reset="earliest",
        enable_auto_commit=False, session_timeout_ms=6000, heartbeat_interval_ms=300, **settings,
    )  # fmt: skip
    consumer.subscribe([topic])
    return consumer


@contextmanager
def confluent(cluster: BackgroundCluster, topic: str, group: str, **settings: Any) -> Iterator[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 300,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def read(consumer: Any, count: int) -> list[int]:
    """Reads a number of records by a confluent consumer."""
    values: list[int] = []

    def enough() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append(int(message.value()))
        return len(values) >= count

    eventually(enough, f"{count} records read", lambda: seen_by(consumer, values))
    return values


def seen_by(consumer: Any, values: list[int]) -> str:
    """A confluent consumer's reads, assignment and commits, and the cluster as it knows it."""
    held, known = consumer.assignment(), consumer.list_topics(timeout=5)
    leaders = {
        f"{name}-{number}": partition.leader
        for name, topic in known.topics.items()
        for number, partition in topic.partitions.items()
    }
    return (
        f"read {values}\npositions {consumer.position(held)}\n"
        f"committed {consumer.committed(held, timeout=5)}\n"
        f"brokers {known.brokers}, controller {known.controller_id}, leaders {leaders}"
    )


def held(*consumers: Any) -> list[int]:
    """The number of partitions that each confluent consumer has, after a poll of each."""
    for consumer in consumers:
        consumer.poll(0.05)
    return [len(consumer.assignment()) for consumer in consumers]


def committed(consumer: Any, topic: str) -> list[int]:
    asked = [ConfluentPartition(topic, p) for p in range(PARTITIONS)]
    return [found.offset for found in consumer.committed(asked, timeout=WITHIN_S)]


def coordinator_of(cluster: BackgroundCluster, group: str) -> int:
    return cluster.leader_of("__consumer_offsets", partition_for(group, 3))


def test_members_share_a_topic_and_the_last_one_has_it_all(cluster: BackgroundCluster) -> None:
    fill(cluster, "shared")
    with closing(kafka_python(cluster, "shared", "two")) as one:
        eventually(
            lambda: one.poll(POLL_MS) is not None and len(one.assignment()) == PARTITIONS, "alone"
        )
        with closing(kafka_python(cluster, "shared", "two")) as other:

            def split() -> bool:
                one.poll(POLL_MS)
                other.poll(POLL_MS)
                sizes = len(one.assignment()), len(other.assignment())
                return sizes == (PARTITIONS // 2, PARTITIONS // 2)

            eventually(split, "two members have half each")
            assert not one.assignment() & other.assignment()
        eventually(
            lambda: one.poll(POLL_MS) is not None and len(one.assignment()) == PARTITIONS,
            "one member left has everything",
        )


def test_another_client_resumes_where_one_committed(cluster: BackgroundCluster) -> None:
    fill(cluster, "resumed")
    with confluent(cluster, "resumed", "hand-over") as first:
        seen = read(first, RECORDS // 2)
        first.commit(asynchronous=False)

    async def rest() -> list[int]:
        consumer = AIOKafkaConsumer(
            "resumed", bootstrap_servers=cluster.bootstrap_servers, group_id="hand-over",
            auto_offset_reset="earliest", enable_auto_commit=False,
        )  # fmt: skip
        await consumer.start()
        try:
            values: list[int] = []
            while len(values) < RECORDS - len(seen):
                values.append(int((await consumer.getone()).value))
            await consumer.commit()
            return values
        finally:
            await consumer.stop()

    values = asyncio.run(asyncio.wait_for(rest(), WITHIN_S))
    assert sorted(seen + values) == list(range(RECORDS))
    with confluent(cluster, "resumed", "hand-over") as last:
        assert committed(last, "resumed") == [RECORDS // PARTITIONS] * PARTITIONS


def test_a_cluster_killed_as_a_whole_remembers(cluster: BackgroundCluster) -> None:
    fill(cluster, "remembered")
    with confluent(cluster, "remembered", "patient") as consumer:
        seen = read(consumer, RECORDS // 2)
        consumer.commit(asynchronous=False)
    for number in (1, 2, 3):
        cluster.kill(number)
    for number in (1, 2, 3):
        cluster.start(number)
    with confluent(cluster, "remembered", "patient") as consumer:
        assert sorted(seen + read(consumer, RECORDS // 2)) == list(range(RECORDS))


def test_whoever_is_no_member_cannot_commit(cluster: BackgroundCluster) -> None:
    """A consumer with assigned partitions and the group.id of a group that has members."""
    fill(cluster, "guarded")
    with confluent(cluster, "guarded", "members") as member:
        read(member, 1)
        stranger = KafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="members",
            enable_auto_commit=False,
        )
        with closing(stranger):
            stranger.assign([TopicPartition("guarded", 0)])
            stranger.seek(TopicPartition("guarded", 0), 1)
            with pytest.raises(CommitFailedError):
                stranger.commit()
        member.commit(asynchronous=False)


def test_a_poll_loop_that_takes_too_long_cannot_commit(cluster: BackgroundCluster) -> None:
    """max.poll.interval.ms: the client leaves the group, which then goes on without it."""
    fill(cluster, "slow")
    with closing(
        kafka_python(cluster, "slow", "sluggish", max_poll_interval_ms=1500, max_poll_records=1)
    ) as sluggish:
        assert sluggish.poll(WITHIN_S * 1000), "a first record"
        with confluent(cluster, "slow", "sluggish") as other:
            eventually(lambda: held(other) == [PARTITIONS], "the other member has everything")
            with pytest.raises(CommitFailedError):
                sluggish.commit()


def test_a_static_member_comes_back_without_a_rebalance(cluster: BackgroundCluster) -> None:
    fill(cluster, "static")
    with confluent(cluster, "static", "fixed", group_instance_id="a") as stays:
        read(stays, 1)
        moves: list[int] = []
        stays.unsubscribe()
        stays.subscribe(["static"], on_revoke=lambda _, gone: moves.append(len(gone)))
        with confluent(cluster, "static", "fixed", group_instance_id="b") as leaves:
            half = PARTITIONS // 2
            eventually(lambda: held(stays, leaves) == [half, half], "two static members")
            had = {p.partition for p in leaves.assignment()}
        rebalances = len(moves)
        with confluent(cluster, "static", "fixed", group_instance_id="b") as back:
            eventually(lambda: held(back) != [0], "it is back")
            assert {p.partition for p in back.assignment()} == had
            stays.poll(0.5)
            assert len(moves) == rebalances


def test_apache_kafkas_tool_shows_groups(cluster: BackgroundCluster, apache_tool: Any) -> None:
    fill(cluster, "shown")
    with confluent(cluster, "shown", "visible") as consumer:
        read(consumer, RECORDS)
        consumer.commit(asynchronous=False)
        tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
        where = ("--bootstrap-server", cluster.bootstrap_servers)
        listed = apache_tool(tool, [*where, "--list"])
        assert "visible" in listed.stdout.split(), listed
        shown = apache_tool(tool, [*where, "--describe", "--group", "visible"])
        lines = [line.split() for line in shown.stdout.splitlines() if "shown" in line]
        assert len(lines) == PARTITIONS, shown
        assert {tuple(line[3:6]) for line in lines} == {("10", "10", "0")}
