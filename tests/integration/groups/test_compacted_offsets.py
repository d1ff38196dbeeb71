"""__consumer_offsets is compacted while groups commit, and each broker that loads it gives the same
offsets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from highwater.broker.log.checkpoints import CLEANER_OFFSETS, decode_offsets
from tests.background import BackgroundCluster
from tests.waiting import eventually

WITHIN_S = 60
COMMITS = 400


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BackgroundCluster]:
    with BackgroundCluster(
        tmp_path / "cluster",
        offsets_topic_num_partitions="1",
        offsets_topic_segment_bytes="10000",
        log_cleaner_backoff_ms="100",
        log_cleaner_min_cleanable_ratio="0.01",
        log_segment_delete_delay_ms="100",
        log_index_interval_bytes="1000",
    ) as made:
        yield made


def cleaned_to(cluster: BackgroundCluster, number: int) -> int:
    path = cluster.folder / f"broker-{number}" / "data" / CLEANER_OFFSETS
    offsets = decode_offsets(path.read_bytes()) if path.exists() else {}
    return max((at for tp, at in offsets.items() if tp.topic == "__consumer_offsets"), default=0)


def size_of(cluster: BackgroundCluster, number: int) -> int:
    folder = cluster.folder / f"broker-{number}" / "data" / "__consumer_offsets-0"
    return sum(path.stat().st_size for path in folder.glob("*.log"))


def wait_for_full_isr(cluster: BackgroundCluster) -> None:
    """Without a full ISR the next kill could take the last replica that may lead."""
    eventually(
        lambda: all(len(isr) == 3 for isr in isrs(cluster)),
        "all are in sync",
        lambda: isrs(cluster),
        WITHIN_S,
    )


def isrs(cluster: BackgroundCluster) -> list[list[int]]:
    return [cluster.isr_of(topic, 0) for topic in ("t", "__consumer_offsets")]


class Committer:
    """A consumer that assigns itself, and commits."""

    def __init__(self, cluster: BackgroundCluster, group: str) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": group,
                "enable.auto.commit": False,
            }
        )

    def commit(self, offset: int) -> None:
        deadline = time.monotonic() + WITHIN_S
        while True:
            try:
                self.consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
                return
            except KafkaException:
                assert time.monotonic() < deadline, f"no commit of {offset} within {WITHIN_S} s"

    def committed(self) -> int:
        deadline = time.monotonic() + WITHIN_S
        while True:
            try:
                return int(self.consumer.committed([TopicPartition("t", 0)], timeout=5)[0].offset)
            except KafkaException:
                assert time.monotonic() < deadline, "the group's offsets cannot be read"


def test_commits_survive_compaction_and_kills(cluster: BackgroundCluster) -> None:
    cluster.create_topic("t", partitions=1)
    groups = [Committer(cluster, f"group-{n}") for n in range(3)]
    for offset in range(1, COMMITS + 1):
        groups[offset % 3].commit(offset)
    expected = [max(o for o in range(1, COMMITS + 1) if o % 3 == n) for n in range(3)]
    eventually(
        lambda: all(cleaned_to(cluster, n) > COMMITS // 2 for n in (1, 2, 3)),
        "all have cleaned it",
        lambda: [cleaned_to(cluster, n) for n in (1, 2, 3)],
        WITHIN_S,
    )
    assert all(size_of(cluster, n) < COMMITS * 100 for n in (1, 2, 3)), "it got smaller"
    for number in (1, 2, 3):
        wait_for_full_isr(cluster)
        cluster.kill(number)
        assert [group.committed() for group in groups] == expected, f"broker {number} was killed"
        cluster.start(number)
    for number in (1, 2, 3):
        cluster.kill(number)
    for number in (1, 2, 3):
        cluster.start(number)
    assert [group.committed() for group in groups] == expected, "all were killed"
    groups[0].commit(COMMITS + 9)
    assert groups[0].committed() == COMMITS + 9
