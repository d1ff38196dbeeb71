"""Targets by role, against a view of a cluster."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from highwater.broker.coordinator.shard import partition_for
from highwater.cluster.faults.targets import resolve
from highwater.cluster.faults.witness import PartitionState, count_changes
from highwater.cluster.interface import ClusterError
from highwater.kafka.types import TopicPartition

TP = TopicPartition("my-topic", 0)


@dataclass
class View:
    partitions: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    controller: int | None = 3


VIEW = View({TP: PartitionState(leader=2, leader_epoch=4, isr=(2, 3, 1), controller_epoch=1)})


def at(text: str, view: View = VIEW, others: list[str] | None = None) -> list[str]:
    names = {"L": ["broker-2"]}
    return resolve(text, view, [1, 2, 3], random.Random(1), names, others)


def test_a_controller_apart_is_a_member_of_its_own() -> None:
    names = {101: "controller-101"}
    found = resolve("controller", View(VIEW.partitions, 101), [1, 2, 3], random.Random(1), {},
                    named=lambda n: names.get(n, f"broker-{n}"))  # fmt: skip
    assert found == at("controller-101") == ["controller-101"]


def test_roles() -> None:
    assert at("leader of my-topic-0") == ["broker-2"]
    assert at("Leader of tp my-topic-0") == ["broker-2"]
    assert at("last ISR member of my-topic-0") == ["broker-1"]
    assert at("followers of my-topic-0") == ["broker-3", "broker-1"]
    assert at("follower of my-topic-0")[0] in ("broker-1", "broker-3")
    assert at("controller") == ["broker-3"]
    assert at("not the controller")[0] in ("broker-1", "broker-2")
    assert at("broker 2") == at("broker-2") == at("2") == at("$L") == ["broker-2"]
    assert at("other brokers", others=["broker-2"]) == ["broker-1", "broker-3"]
    assert at("broker other than $L, controller") == ["broker-1"]
    assert at("zookeeper") == ["zookeeper"]


@pytest.mark.parametrize(
    "text", ["leader of nothing-0", "$X", "everyone", "other brokers", "leader of my-topic"]
)
def test_what_is_not_there_is_said(text: str) -> None:
    with pytest.raises(ClusterError):
        at(text)


def test_a_role_that_is_vacant() -> None:
    empty = View({TP: PartitionState(-1, 5, (2,), 1)}, controller=None)
    for text in ("leader of my-topic-0", "controller"):
        with pytest.raises(ClusterError, match="now"):
            at(text, empty)
    alone = View({TP: PartitionState(2, 5, (2,), 1)})
    with pytest.raises(ClusterError, match="no follower"):
        at("follower of my-topic-0", alone)


def test_changes_of_a_state_count_once_each() -> None:
    whole = PartitionState(1, 0, (1, 2, 3), 1)
    assert count_changes(None, whole) == []
    assert count_changes(whole, PartitionState(1, 0, (1, 2), 1)) == ["isr_shrinks"]
    assert count_changes(whole, PartitionState(2, 1, (2, 3), 1)) == [
        "leader_changes",
        "isr_shrinks",
    ]
    assert count_changes(PartitionState(1, 0, (1, 2), 1), whole) == ["isr_expands"]
    assert count_changes(whole, PartitionState(-1, 1, (1,), 1)) == ["isr_shrinks"]


@pytest.mark.parametrize("group", ["app", "orders", "a group's name that is long", "grüße"])
def test_the_coordinator_is_where_the_brokers_put_the_group(group: str) -> None:
    states = [PartitionState(n, 1, (n,), 1) for n in range(1, 51)]
    offsets = {TopicPartition("__consumer_offsets", n): s for n, s in enumerate(states)}
    expected = [f"broker-{partition_for(group, 50) + 1}"]
    assert at(f"coordinator of group {group}", View(offsets)) == expected
    with pytest.raises(ClusterError, match="no partition __consumer_offsets"):
        at("coordinator of group app")
