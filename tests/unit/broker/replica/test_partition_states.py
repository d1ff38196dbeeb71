"""Every version of LeaderAndIsr and StopReplica has the same effect."""

from __future__ import annotations

from typing import Any

import pytest

from highwater.broker.replica.partition import LeaderAndIsr
from highwater.broker.replica.partition_states import (
    STEP,
    UNKNOWN_LEADER_EPOCH,
    StopReplica,
    decode_leader_and_isr,
    decode_stop_replica,
)
from highwater.kafka.types import BrokerId, ControllerEpoch, LeaderEpoch, TopicPartition, ZkVersion
from highwater.kafka.wire.codec import decode_request, encode_request
from highwater.kafka.wire.controller_messages import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from tests.waiting import at_once

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def partition(index: int, *, is_new: bool = False, **named: Any) -> Any:
    return LeaderAndIsrPartitionState(
        partition_index=index, controller_epoch=3, leader=1, leader_epoch=5, isr=[1, 2],
        partition_epoch=7, replicas=[1, 2, 3], adding_replicas=[3], removing_replicas=[],
        is_new=is_new, **named,
    )  # fmt: skip


def leader_and_isr(topics: dict[str, list[Any]], version: int) -> Any:
    leader = LeaderAndIsrLiveLeader(broker_id=1, host_name="h1", port=9092)
    request = LeaderAndIsrRequest(
        controller_id=2, controller_epoch=3, broker_epoch=9, live_leaders=[leader],
        ungrouped_partition_states=[p for t in topics.values() for p in t],
        topic_states=[
            LeaderAndIsrTopicState(topic_name=t, partition_states=p) for t, p in topics.items()
        ],
    )  # fmt: skip
    return decode_request(4, version, encode_request(request, version))


@pytest.mark.parametrize("version", range(5))
def test_leader_and_isr(version: int) -> None:
    named: dict[str, Any] = {"topic_name": "t"} if version < 2 else {}
    states = [partition(0, **named), partition(1, is_new=True, **named)]
    update = at_once(decode_leader_and_isr(leader_and_isr({"t": states}, version)))
    expected = LeaderAndIsr(
        BrokerId(1), LeaderEpoch(5), ControllerEpoch(3), (1, 2), ZkVersion(7), (1, 2, 3),
        adding=(3,) if version >= 3 else (),
    )  # fmt: skip
    assert update.states[0] == (T0, expected)
    assert update.states[1][0] == T1
    assert [state.is_new for _, state in update.states] == [False, version >= 1]
    assert update.leaders == {1: ("h1", 9092)}
    assert update.new_topics == (["t"] if version >= 1 else [])


def test_a_large_request_is_decoded_in_steps() -> None:
    states = [partition(index) for index in range(2 * STEP + 1)]
    steps = decode_leader_and_isr(leader_and_isr({"t": states}, 4))
    assert len(list(steps)) == 2


@pytest.mark.parametrize("version", range(4))
def test_stop_replica(version: int) -> None:
    plain, v1 = StopReplicaRequest.StopReplicaPartitionV0, StopReplicaRequest.StopReplicaTopicV1
    own = [
        StopReplicaPartitionState(partition_index=p, leader_epoch=4 + p, delete_partition=not p)
        for p in (0, 1)
    ]
    request = StopReplicaRequest(
        controller_id=2, controller_epoch=3, broker_epoch=9, delete_partitions=True,
        ungrouped_partitions=[plain(topic_name="t", partition_index=p) for p in (0, 1)],
        topics=[v1(name="t", partition_indexes=[0, 1])],
        topic_states=[StopReplicaTopicState(topic_name="t", partition_states=own)],
    )  # fmt: skip
    message = decode_request(5, version, encode_request(request, version))
    unknown = UNKNOWN_LEADER_EPOCH
    assert decode_stop_replica(message, version) == (
        [StopReplica(T0, 4, True), StopReplica(T1, 5, False)]
        if version == 3
        else [StopReplica(T0, unknown, True), StopReplica(T1, unknown, True)]
    )
