"""DeleteRecords goes on while a follower is down, which then begins where its leader does."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.background import BackgroundCluster
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]
TOPIC = "trimmed"


def produce(bootstrap: str, first: int, end: int, in_batch: int) -> None:
    """Sends records that are named by their offsets, a number of them in each batch."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0,
         "batch.num.messages": in_batch, "linger.ms": 5000 if in_batch > 1 else 0}
    )  # fmt: skip
    failed: list[str] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(str(error))

    for n in range(first, end):
        producer.produce(TOPIC, b"%d" % n, on_delivery=delivered)
    assert producer.flush(60) == 0
    assert failed == []


def read(bootstrap: str) -> dict[int, bytes]:
    """Reads from the start of the log to the HW; nothing while there is no leader."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none is joined", "log_level": 0,
         "enable.auto.commit": False, "auto.offset.reset": "error"}
    )  # fmt: skip
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=10)
        consumer.assign([TopicPartition(TOPIC, 0, low)])
        found: dict[int, bytes] = {}
        while low + len(found) < high and (messages := consumer.consume(high - low, timeout=5)):
            for message in messages:
                assert message.error() is None, message.error()
                found[message.offset()] = message.value()
        return found
    except KafkaException:
        return {}
    finally:
        consumer.close()


def segments(cluster: BackgroundCluster, broker: int) -> list[str]:
    """The segments of a broker's replica, on its disk."""
    (folder,) = cluster.cluster.data_dirs(broker)
    return sorted(path.name for path in (folder / f"{TOPIC}-0").glob("*.log"))


@pytest.mark.parametrize(
    ("how", "in_batch", "begins"),
    [
        ("stop", 1, 60),
        ("kill", 50, 30),
    ],  # of the batch 30 to 79 all is there, and the rest not seen
)
def test_a_follower_that_was_down_begins_where_its_leader_does(
    tmp_path: Path, how: str, in_batch: int, begins: int
) -> None:
    with BackgroundCluster(tmp_path / "cluster") as cluster:
        bootstrap = cluster.bootstrap_servers
        cluster.create_topic(TOPIC, partitions=1, replication_factor=3)
        produce(bootstrap, 0, 30, 1)
        leader = cluster.leader_of(TOPIC, 0)
        follower = next(b for b in (1, 2, 3) if b not in (leader, cluster.controller()))
        getattr(cluster, how)(follower)
        eventually(lambda: follower not in cluster.isr_of(TOPIC, 0), "it leaves the ISR")
        produce(bootstrap, 30, 80, in_batch)
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        (done,) = admin.delete_records([TopicPartition(TOPIC, 0, 60)]).values()
        assert done.result(60).low_watermark == 60
        assert segments(cluster, follower) == [f"{0:020}.log"]

        cluster.start(follower)
        eventually(lambda: len(cluster.isr_of(TOPIC, 0)) == 3, "it is in the ISR again")
        assert segments(cluster, follower) == [f"{begins:020}.log"], "what it had is gone"
        for other in {1, 2, 3} - {follower}:
            cluster.kill(other)
        expected = {n: b"%d" % n for n in range(60, 80)}
        eventually(
            lambda: read(bootstrap) == expected,
            "it leads, and gives the log",
            lambda: read(bootstrap),
        )
