"""Nothing that the rules look at changes without a note of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from highwater.broker.replica.isr import Isr
from highwater.broker.replica.partition import Partition, Role
from highwater.kafka.types import BrokerId, ControllerEpoch, LeaderEpoch, TopicPartition, ZkVersion
from highwater.simulation.rules.change_hooks import News, WatchedPartitions

TP = TopicPartition("t", 0)


@pytest.fixture
def news() -> News:
    return {}


@pytest.fixture
def partition(news: News) -> Partition:
    table = WatchedPartitions(news)
    partition = Partition(TP, BrokerId(1), 1000, lambda _: True)
    partition.isr.reset((1, 2), ZkVersion(3))
    table[TP] = partition
    assert table[TP] is partition
    assert news == {TP: None}
    news.clear()
    return partition


@pytest.mark.parametrize(
    "change",
    [
        lambda p: setattr(p, "role", Role.LEADER),
        lambda p: setattr(p, "leader_epoch", LeaderEpoch(1)),
        lambda p: setattr(p, "controller_epoch", ControllerEpoch(1)),
        lambda p: p._set_high_watermark(5), lambda p: setattr(p, "_high_watermark", 5),
        lambda p: setattr(p, "isr", Isr((1,))), lambda p: p.isr.propose((1,)),
        lambda p: p.isr.reset((1,), ZkVersion(4)), lambda p: setattr(p.isr, "members", (1,)),
    ],
)  # fmt: skip
def test_a_change_is_news(
    news: News, partition: Partition, change: Callable[[Partition], object]
) -> None:
    change(partition)
    assert news == {TP: None}


def test_an_isr_goes_on_from_where_it_was(news: News, partition: Partition) -> None:
    assert partition.isr.members == (1, 2)
    assert partition.isr.zk_version == 3
    partition.isr = Isr((3,), ZkVersion(9))
    news.clear()
    partition.isr.propose((3, 4))
    assert partition.isr.maximal == (3, 4)
    assert news == {TP: None}


def test_other_changes_are_none(news: News, partition: Partition) -> None:
    partition.epoch_start_offset = 7
    partition.replicas = (1, 2)
    assert not news
