"""The consumer protocol (KIP-848) with librdkafka: members come, the coordinator dies, and each
record is read once.

Nothing here waits for a fixed time: each step is repeated until it holds, or the test fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from highwater.broker.coordinator.shard import partition_for
from tests import waiting
from tests.background import BackgroundCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
GROUP, TOPIC, PARTITIONS, OFFSETS_PARTITIONS = "readers", "numbers", 6, 3
WITHIN_S = 90
eventually = partial(waiting.eventually, within_s=WITHIN_S)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BackgroundCluster]:
    """Members send heartbeats often, so that partitions move at once."""
    with BackgroundCluster(
        tmp_path,
        offsets_topic_num_partitions=str(OFFSETS_PARTITIONS),
        group_consumer_min_heartbeat_interval_ms="200",
        group_consumer_heartbeat_interval_ms="200",
    ) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        yield cluster


class Member:
    """A member that commits each record's offset after it has read the record."""

    def __init__(self, cluster: BackgroundCluster, **settings: str) -> None:
        self.errors: list[str] = []
        self.lost: list[Any] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": GROUP,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self.consumer.subscribe([TOPIC], on_lost=lambda _, lost: self.lost.append(lost))

    @property
    def partitions(self) -> list[int]:
        return sorted(tp.partition for tp in self.consumer.assignment())

    def read(self, seen: Counter[int]) -> None:
        message = self.consumer.poll(0.05)
        if message is None:
            return
        if message.error() is not None:
            self.errors.append(message.error().name())
            return
        seen[int(message.value())] += 1
        self.consumer.store_offsets(message)

    def close(self) -> None:
        self.consumer.close()


@contextmanager
def producing(cluster: BackgroundCluster) -> Iterator[Producer]:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    yield producer
    assert producer.flush(WITHIN_S) == 0


def fill(cluster: BackgroundCluster, numbers: range) -> None:
    with producing(cluster) as producer:
        for number in numbers:
            producer.produce(TOPIC, str(number).encode(), partition=number % PARTITIONS)


def shared(members: list[Member], seen: Counter[int]) -> bool:
    """Whether the members have all partitions, and each as many as any other."""
    for member in members:
        member.read(seen)
    numbers = [number for member in members for number in member.partitions]
    each = PARTITIONS // len(members)
    return sorted(numbers) == list(range(PARTITIONS)) and all(
        len(member.partitions) == each for member in members
    )


def has_read(members: list[Member], seen: Counter[int], count: int) -> bool:
    for member in members:
        member.read(seen)
    return len(seen) >= count


def test_each_record_is_read_once_though_members_come_and_the_coordinator_dies(
    cluster: BackgroundCluster,
) -> None:
    seen: Counter[int] = Counter()
    settings = {"enable_auto_commit": "true", "enable_auto_offset_store": "false"}
    members = [Member(cluster, **settings) for _ in range(2)]
    try:
        fill(cluster, range(60))
        eventually(lambda: shared(members, seen), "two members have three partitions each")
        eventually(lambda: has_read(members, seen, 60), "60 records were read")
        members.append(Member(cluster, **settings))
        fill(cluster, range(60, 120))
        eventually(lambda: shared(members, seen), "three members have two partitions each")
        eventually(lambda: has_read(members, seen, 120), "120 records were read")

        before = [member.partitions for member in members]
        place = partition_for(GROUP, OFFSETS_PARTITIONS)
        cluster.kill(cluster.leader_of("__consumer_offsets", place))
        fill(cluster, range(120, 180))
        eventually(lambda: has_read(members, seen, 180), "180 records were read")
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})

        def stable() -> bool:
            has_read(members, seen, 0)
            found = admin.describe_consumer_groups([GROUP])[GROUP].result()
            return found.state.name == "STABLE" and len(found.members) == 3

        eventually(stable, "the next coordinator knows the group")
        assert [member.partitions for member in members] == before, "nothing moved"
    finally:
        for member in members:
            member.close()
    assert seen == Counter(range(180)), "each record was read once"
    assert [member.lost for member in members] == [[]] * 3, "nobody was fenced"


def test_a_static_member_comes_back_to_its_partitions(cluster: BackgroundCluster) -> None:
    seen: Counter[int] = Counter()
    members = [Member(cluster, group_instance_id=name) for name in ("one", "two")]
    try:
        eventually(lambda: shared(members, seen), "two members have three partitions each")
        had = [member.partitions for member in members]
        members[0].close()
        members[0] = Member(cluster, group_instance_id="one")
        eventually(lambda: shared(members, seen), "the member is back")
        assert [member.partitions for member in members] == had
    finally:
        for member in members:
            member.close()
