"""Large requests are encoded in steps, small ones at once; nothing is lost between steps."""

from __future__ import annotations

import pytest

from highwater.controller.rules.effects import (
    LeaderAndIsrPartition,
    MetadataPartition,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
    StopReplicaPartition,
)
from highwater.controller.shell import encoding as messages
from highwater.kafka.replica_assignment import ReplicaAssignment
from highwater.kafka.types import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    TopicPartition,
    ZkVersion,
)
from highwater.kafka.wire import controller_messages as control
from highwater.kafka.wire.codec import decode_request
from highwater.kafka.znodes import PartitionState

ME, EPOCH, BROKER_EPOCH = BrokerId(1), ControllerEpoch(3), BrokerEpoch(9)
ISR = (BrokerId(1), BrokerId(2))
STATE = PartitionState(EPOCH, BrokerId(1), LeaderEpoch(4), ISR, ZkVersion(5))


def made(steps: messages.Steps) -> tuple[bytes, int]:
    count = 1
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return bytes(end.value), count
        count += 1


def partitions(count: int) -> list[TopicPartition]:
    return [TopicPartition("ab"[n % 2], n // 2) for n in range(count)]


@pytest.mark.parametrize(("count", "steps"), [(1, 1), (199, 1), (1200, 8)])
def test_every_partition_is_told_whatever_the_number_of_steps(count: int, steps: int) -> None:
    tps = partitions(count)
    leaders = tuple(LeaderAndIsrPartition(tp, STATE, ReplicaAssignment(ISR), True) for tp in tps)
    stops = tuple(StopReplicaPartition(tp, LeaderEpoch(4), True) for tp in tps)
    known = tuple(MetadataPartition(tp, STATE, ISR, ()) for tp in tps)
    leader_and_isr = messages.leader_and_isr(
        SendLeaderAndIsr(BrokerId(2), BROKER_EPOCH, leaders, ()), ME, EPOCH, "L"
    )
    stop = messages.stop_replica(SendStopReplica(BrokerId(2), BROKER_EPOCH, stops), ME, EPOCH)
    update = messages.UpdateMetadataBody(SendUpdateMetadata((), known, ()), ME, EPOCH)
    for key, version, making in (
        (4, control.LEADER_AND_ISR_VERSION, leader_and_isr),
        (5, control.STOP_REPLICA_VERSION, stop),
        (6, control.UPDATE_METADATA_VERSION, update.for_broker(BROKER_EPOCH)),
    ):
        body, taken = made(making)
        request = decode_request(key, version, body)
        told = [
            TopicPartition(topic.topic_name, p.partition_index)
            for topic in request.topic_states
            for p in topic.partition_states
        ]
        assert sorted(told) == sorted(tps)
        assert (request.controller_epoch, request.broker_epoch) == (3, 9)
        assert taken == steps
    again, taken = made(update.for_broker(BrokerEpoch(10)))
    assert (taken, decode_request(6, control.UPDATE_METADATA_VERSION, again).broker_epoch) == (
        1,
        10,
    )


@pytest.mark.parametrize(("count", "requests"), [(0, 1), (1, 1), (1000, 1), (1001, 2), (3000, 3)])
def test_what_tells_of_many_partitions_is_several_requests(count: int, requests: int) -> None:
    stops = tuple(StopReplicaPartition(tp, LeaderEpoch(4), True) for tp in partitions(count))
    parts = list(messages.divided(SendStopReplica(BrokerId(2), BROKER_EPOCH, stops)))
    assert len(parts) == requests
    assert all(len(p.partitions) <= 1000 for p in parts)
    assert tuple(s for part in parts for s in part.partitions) == stops


@pytest.mark.parametrize(
    ("sizes", "requests"),
    [
        ([], [0]), ([1000], [1000]), ([1500], [1500]), ([600, 400, 1], [1000, 1]),
        ([600, 401], [600, 401]), ([3, 1500, 2, 998], [3, 1500, 1000]),
    ],
)  # fmt: skip
def test_the_metadata_of_a_topic_is_in_one_request(sizes: list[int], requests: list[int]) -> None:
    tps = [TopicPartition(f"t{t}", n) for n in range(1500) for t, s in enumerate(sizes) if n < s]
    known = tuple(MetadataPartition(tp, STATE, ISR, ()) for tp in tps)
    names = tuple(f"t{t}" for t, _ in enumerate(sizes))
    whole = SendUpdateMetadata((), known, (), all_topics=names)
    parts = list(messages.divided_by_topics(whole))
    assert [p.all_topics for p in parts] == [None] * (len(parts) - 1) + [names], "the last one"
    assert [len(p.partitions) for p in parts] == requests
    told = [p.tp for part in parts for p in part.partitions]
    assert sorted(told) == sorted(tps)
    topics = [{p.tp.topic for p in part.partitions} for part in parts]
    assert sum(map(len, topics)) == len(sizes)
