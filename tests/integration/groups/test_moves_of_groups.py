"""A group of librdkafka's members rolls from the classic protocol to that of consumers and back,
and its coordinator dies in between: every record is read, and no committed offset falls.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from highwater.broker.coordinator.shard import partition_for
from tests import waiting
from tests.background import BackgroundCluster
from tests.integration.groups.test_consumer_protocol import (
    GROUP,
    OFFSETS_PARTITIONS,
    PARTITIONS,
    TOPIC,
    Member,
    fill,
    has_read,
    shared,
)

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]
eventually = partial(waiting.eventually, within_s=90)
COMMITS = {"enable_auto_commit": "true", "enable_auto_offset_store": "false",
           "auto_commit_interval_ms": "200"}  # fmt: skip
NUMBERS = 30
"""The records that are written after each step of a roll."""


class Roll:
    """A group of two members, of which one after the other is replaced."""

    def __init__(self, cluster: BackgroundCluster) -> None:
        self.cluster = cluster
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        # AdminClient's own call for offsets crashes while coordinators move (client-problems.md)
        self.asker = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": GROUP})
        self.seen: Counter[int] = Counter()
        self.written = 0
        self.offsets: dict[int, int] = {}
        self.answer: object = None
        self.members = [self.classic(), self.classic()]

    def classic(self) -> Member:
        return Member(
            self.cluster, group_protocol="classic", heartbeat_interval_ms="200",
            partition_assignment_strategy="range", **COMMITS,
        )  # fmt: skip

    def consumer(self) -> Member:
        return Member(self.cluster, **COMMITS)

    def settles(self, what: str) -> None:
        """The members share the partitions, read what is new, and commit it."""
        eventually(lambda: shared(self.members, self.seen), f"{what}: three partitions each")
        fill(self.cluster, range(self.written, self.written + NUMBERS))
        self.written += NUMBERS
        eventually(lambda: has_read(self.members, self.seen, self.written), f"{what}: all is read")
        eventually(self._has_committed, f"{what}: all is committed", self._state)

    def _state(self) -> str:
        members = [(m.partitions, m.errors, m.lost) for m in self.members]
        return f"{self.written} records; committed: {self.answer}; members: {members}"

    def _has_committed(self) -> bool:
        has_read(self.members, self.seen, 0)
        places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        try:
            answer = self.asker.committed(places, timeout=5)
        except KafkaException as error:  # the coordinator moves
            self.answer = error
            return False
        self.answer = answer
        found = {tp.partition: max(tp.offset, 0) for tp in answer}
        for partition, before in self.offsets.items():
            assert found[partition] >= before, f"the offset of {partition} has fallen"
        self.offsets = found
        return sum(found.values()) == self.written

    def replace(self, number: int, by: Member) -> None:
        self.members[number].close()
        self.members[number] = by

    def kind(self) -> str:
        listed = self.admin.list_consumer_groups().result()
        assert not listed.errors, listed.errors
        return next(str(g.type.name) for g in listed.valid if g.group_id == GROUP)

    def close(self) -> None:
        for member in self.members:
            member.close()
        self.asker.close()


def test_a_group_rolls_to_the_consumer_protocol_and_back(tmp_path: Path) -> None:
    """By range: librdkafka's cooperative-sticky puts data of its own into assignments, and such a
    group stays classic (client-problems.md)."""
    with BackgroundCluster(
        tmp_path,
        offsets_topic_num_partitions=str(OFFSETS_PARTITIONS),
        group_initial_rebalance_delay_ms="0",
        group_consumer_min_heartbeat_interval_ms="200",
        group_consumer_heartbeat_interval_ms="200",
    ) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        roll = Roll(cluster)
        try:
            roll.settles("two classic members")
            assert roll.kind() == "CLASSIC"
            roll.replace(0, roll.consumer())
            roll.settles("one of each")
            assert roll.kind() == "CONSUMER"
            place = partition_for(GROUP, OFFSETS_PARTITIONS)
            coordinator = cluster.leader_of("__consumer_offsets", place)
            cluster.kill(coordinator)
            roll.settles("one of each at the next coordinator")
            cluster.start(coordinator)
            roll.replace(1, roll.consumer())
            roll.settles("two of consumers")
            roll.replace(0, roll.classic())
            roll.settles("one of each again")
            assert roll.kind() == "CONSUMER"
            roll.replace(1, roll.classic())
            roll.settles("two classic members again")
            assert roll.kind() == "CLASSIC"
        finally:
            roll.close()
    assert set(roll.seen) == set(range(roll.written))
    assert not [error for member in roll.members for error in member.errors]
