"""A client that was told that partitions are made, or a topic is configured, finds it so on each
broker, under load."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
)

from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire.messages import ProduceRequest
from highwater.kafka.wire.records import Record, build_batch
from tests.background import BackgroundCluster
from tests.integration.robustness.rig import Address, call, metadata

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
TOPIC, NOISE = "agreed", "noise"
ROUNDS = 6


@contextmanager
def load(bootstrap: str) -> Iterator[None]:
    """Sends as much as one producer can, until the end."""
    over = threading.Event()

    def run() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
        while not over.is_set():
            for _ in range(200 if len(producer) < 20_000 else 0):
                producer.produce(NOISE, b"x" * 1000)
            producer.poll(0.001)
        producer.purge()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def addresses(cluster: BackgroundCluster) -> list[Address]:
    pairs = [server.split(":") for server in cluster.bootstrap_servers.split(",")]
    return [(host, int(port)) for host, port in pairs]


def known_partitions(address: Address) -> list[int]:
    (topic,) = metadata(address, [TOPIC]).topics
    return sorted(p.partition_index for p in topic.partitions)


def produce_everywhere(brokers: Sequence[Address], size: int) -> dict[int, str]:
    """Sends one record to each partition, at its leader; returns the errors' names by partition."""
    found = metadata(brokers[0], [TOPIC])
    places = {b.node_id: (b.host, b.port) for b in found.brokers}
    errors = {}
    for partition in found.topics[0].partitions:
        batch = bytes(build_batch([Record(None, b"v" * size, 1_700_000_000_000)]))
        kind = ProduceRequest.TopicProduceData
        place = kind.PartitionProduceData(index=partition.partition_index, records=batch)
        request = ProduceRequest(
            transactional_id=None,
            acks=1,
            timeout_ms=5000,
            topic_data=[kind(name=TOPIC, partition_data=[place])],
        )
        answer = call(places[partition.leader_id], request, 7)
        code = answer.responses[0].partition_responses[0].error_code
        errors[partition.partition_index] = ErrorCode(code).name
    return errors


def test_what_was_answered_is_so_on_every_broker(background: BackgroundCluster) -> None:
    cluster = background
    cluster.create_topic(NOISE, partitions=6)
    cluster.create_topic(TOPIC, partitions=3)
    brokers = addresses(cluster)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    with load(cluster.bootstrap_servers):
        for count in range(4, 4 + ROUNDS):
            admin.create_partitions([NewPartitions(TOPIC, count)])[TOPIC].result(30)
            assert [known_partitions(b) for b in brokers] == [[*range(count)]] * len(brokers)
            assert set(produce_everywhere(brokers, 10).values()) == {"NONE"}
        for n in range(ROUNDS):
            limit, error = (500, "MESSAGE_TOO_LARGE") if n % 2 == 0 else (100_000, "NONE")
            entry = ConfigEntry(
                "max.message.bytes",
                str(limit),
                incremental_operation=AlterConfigOpType.SET,
            )
            resource = ConfigResource("topic", TOPIC, incremental_configs=[entry])
            admin.incremental_alter_configs([resource])[resource].result(30)
            assert set(produce_everywhere(brokers, 2000).values()) == {error}
