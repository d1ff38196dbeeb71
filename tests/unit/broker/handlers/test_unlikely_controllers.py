"""Requests that no controller sends: from a client with every right, who sends anything.

They came from `tests/fuzzing`; each made a handler fail once.
"""

from __future__ import annotations

from typing import Any

import pytest

from highwater.broker.admin import topic_znodes
from highwater.broker.handlers import leader_and_isr, update_metadata
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.controller_messages import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tests.unit.broker.handlers.conftest import in_broker


def leadership(topic: str | None, **more: Any) -> LeaderAndIsrRequest:
    given: dict[str, Any] = {
        "partition_index": 0, "controller_epoch": 1, "leader": 1, "leader_epoch": 0, "isr": [1],
        "partition_epoch": 0, "replicas": [1], "adding_replicas": [], "removing_replicas": [],
        "is_new": True,
    }  # fmt: skip
    state = LeaderAndIsrPartitionState(**given | more)
    return LeaderAndIsrRequest(
        controller_id=1, controller_epoch=1, broker_epoch=10, live_leaders=[],
        ungrouped_partition_states=[],
        topic_states=[LeaderAndIsrTopicState(topic_name=topic, partition_states=[state])],
    )  # fmt: skip


@in_broker()
async def test_a_leader_epoch_below_0_is_older_than_all(b: Any) -> None:
    answer = await b.ask(leader_and_isr, 4, leadership("t", leader_epoch=-1))
    assert answer.error_code == 0
    told = [p.error_code for p in answer.partition_errors]
    assert told == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert b.services.logs.get(TopicPartition("t", 0)) is None


@in_broker()
@pytest.mark.parametrize("name", ["a/b", "..", "x" * 250, "", "ü"])
async def test_a_name_that_no_folder_can_have_costs_no_directory(b: Any, name: str) -> None:
    answer = await b.ask(leader_and_isr, 4, leadership(name))
    told = [p.error_code for p in answer.partition_errors]
    assert told == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert not b.services.logs.offline_dirs
    assert not list(b.services.replicas.partitions)


@in_broker()
async def test_a_null_is_no_list(b: Any) -> None:
    for request in (leadership("t", isr=None), leadership("t", replicas=None)):
        answer = await b.ask(leader_and_isr, 2, request)
        assert answer.error_code == ErrorCode.INVALID_REQUEST


@in_broker()
async def test_a_security_protocol_that_does_not_exist(b: Any) -> None:
    for protocol in (4, 99, -1):
        endpoint = UpdateMetadataEndpoint(
            port=9092, host="h", listener="X", security_protocol=protocol
        )
        request = UpdateMetadataRequest(
            controller_id=1, controller_epoch=1, broker_epoch=10, topic_states=[],
            live_brokers=[UpdateMetadataBroker(id=7, rack=None, endpoints=[endpoint])],
        )  # fmt: skip
        answer = await b.ask(update_metadata, 6, request)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert not b.services.metadata.is_alive(7)


@in_broker()
@pytest.mark.parametrize("name", ["..", "a/b", "x" * 250, "", "ü"])
async def test_a_name_that_no_znode_can_have_is_not_learned(b: Any, name: str) -> None:
    """DeleteTopics of such a topic ended with a traceback (`scripts/long fuzz`, part 23)."""
    state = {
        "partition_index": 0, "controller_epoch": 1, "leader": 1, "leader_epoch": 0, "isr": [1],
        "zk_version": 0, "replicas": [1], "offline_replicas": [],
    }  # fmt: skip
    request = UpdateMetadataRequest(
        controller_id=1, controller_epoch=1, broker_epoch=10, live_brokers=[],
        topic_states=[
            UpdateMetadataTopicState(
                topic_name=name, partition_states=[UpdateMetadataPartitionState(**state)]
            )
        ],
    )  # fmt: skip
    answer = await b.ask(update_metadata, 6, request)
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert not b.services.metadata.has_topic(name)


@in_broker()
async def test_a_broker_below_0_is_not_learned(b: Any) -> None:
    """New partitions were given to it, and nobody could read their znode (`scripts/long fuzz`)."""
    endpoint = UpdateMetadataEndpoint(port=9092, host="h", listener="X", security_protocol=0)
    request = UpdateMetadataRequest(
        controller_id=1, controller_epoch=1, broker_epoch=10, topic_states=[],
        live_brokers=[UpdateMetadataBroker(id=-1, rack=None, endpoints=[endpoint])],
    )  # fmt: skip
    answer = await b.ask(update_metadata, 6, request)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert not b.services.metadata.is_alive(-1)


@in_broker()
async def test_partitions_of_a_damaged_topic_are_refused_with_the_remedy(b: Any) -> None:
    await b.zk.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[-1]}}')
    with pytest.raises(ApiError, match=r"/brokers/topics/t has no list .*; correct that znode"):
        await topic_znodes.add_partitions(b.services, "t", 2, None)
