"""Znode data against what Kafka 3.9.2 at inter.broker.protocol.version 2.6 wrote."""

from __future__ import annotations

import json

import pytest

from highwater.kafka import znodes
from highwater.kafka.replica_assignment import ReplicaAssignment
from highwater.kafka.types import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    Endpoint,
    LeaderEpoch,
    TopicPartition,
    ZkVersion,
)
from highwater.kafka.znodes import PartitionState, TopicState

TP = TopicPartition("t", 0)


def _ids(*ids: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(i) for i in ids)


def test_paths() -> None:
    assert znodes.state_path(TP) == "/brokers/topics/t/partitions/0/state"
    assert znodes.broker_path(7) == "/brokers/ids/7"
    assert znodes.config_path("topics", "t") == "/config/topics/t"


def test_partition_state_is_kafkas_json() -> None:
    state = PartitionState(
        ControllerEpoch(1), BrokerId(1), LeaderEpoch(0), _ids(1, 2, 3), ZkVersion(4)
    )
    data = znodes.encode_partition_state(state)
    assert data == b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2,3]}'
    assert znodes.decode_partition_state(TP, data, 4) == state
    empty = state._replace(leader=BrokerId(-1), isr=())
    assert znodes.decode_partition_state(TP, znodes.encode_partition_state(empty), 4) == empty


def test_partition_state_that_does_not_parse_names_the_znode() -> None:
    with pytest.raises(znodes.BadZnode, match="/brokers/topics/t/partitions/0/state"):
        znodes.decode_partition_state(TP, b"{}", 0)


def test_topic_assignment() -> None:
    topic = TopicState({0: ReplicaAssignment(_ids(4, 1, 2), _ids(4), _ids(2))})
    data = znodes.encode_topic(topic)
    assert data == (
        b'{"version":3,"partitions":{"0":[4,1,2]},"adding_replicas":{"0":[4]},'
        b'"removing_replicas":{"0":[2]}}'
    )
    assert znodes.decode_topic("t", data) == topic


def test_topic_of_other_versions() -> None:
    old = znodes.decode_topic("t", b'{"version":1,"partitions":{"10":[1],"2":[2]}}')
    assert list(old.partitions) == [2, 10]
    later = b'{"version":3,"topic_id":"oEVGzPvtQ_GLwkSUbUNGYg","partitions":{}}'
    topic = znodes.decode_topic("t", later)
    assert json.loads(znodes.encode_topic(topic))["topic_id"] == "oEVGzPvtQ_GLwkSUbUNGYg"
    for nothing in (b'"abc"', b"5", b"null", b'"AAAAAAAAAAAAAAAAAAAAAA"', b'"\\u00e9"'):
        data = b'{"version":3,"topic_id":%s,"partitions":{}}' % nothing
        assert znodes.decode_topic("t", data).topic_id is None
    with pytest.raises(znodes.BadZnode, match="/brokers/topics/t"):
        znodes.decode_topic("t", b'{"partitions":{"x":[1]}}')


def test_reassignment_keeps_the_origin_over_a_second_target() -> None:
    first = ReplicaAssignment(_ids(1, 2, 3)).reassign_to(_ids(4, 5, 1))
    assert first == ReplicaAssignment(_ids(4, 5, 1, 2, 3), _ids(4, 5), _ids(2, 3))
    assert (first.target, first.origin) == (_ids(4, 5, 1), _ids(1, 2, 3))
    second = first.reassign_to(_ids(6, 1))
    assert second == ReplicaAssignment(_ids(6, 1, 2, 3), _ids(6), _ids(2, 3))
    assert first.reassign_to(first.origin) == ReplicaAssignment(_ids(1, 2, 3))


def test_a_new_order_of_the_same_replicas_is_a_finished_reassignment() -> None:
    swapped = ReplicaAssignment(_ids(1, 2, 3)).reassign_to(_ids(3, 2, 1))
    assert swapped == ReplicaAssignment(_ids(3, 2, 1))
    assert not swapped.is_being_reassigned


def test_broker_registration() -> None:
    endpoints = (
        Endpoint("CONTROLLER", "SSL", "h", 9090),
        Endpoint("PLAINTEXT", "PLAINTEXT", "::1", 9092),
    )
    data = znodes.encode_broker(endpoints, "r1", 17)
    value = json.loads(data)
    assert value == {
        "listener_security_protocol_map": {"CONTROLLER": "SSL", "PLAINTEXT": "PLAINTEXT"},
        "endpoints": ["CONTROLLER://h:9090", "PLAINTEXT://[::1]:9092"], "jmx_port": -1,
        "host": "::1", "port": 9092, "timestamp": "17", "version": 4, "rack": "r1",
    }  # fmt: skip
    info = znodes.decode_broker(BrokerId(1), data, BrokerEpoch(99))
    assert (info.endpoints, info.rack, info.epoch) == (endpoints, "r1", 99)
    without = json.loads(znodes.encode_broker(endpoints[:1], None, 17))
    assert "rack" not in without
    assert (without["host"], without["port"]) == (None, -1)


def test_broker_registration_of_other_versions() -> None:
    v1 = b'{"version":1,"host":"h","port":9092,"jmx_port":9999,"timestamp":"2"}'
    v2 = b'{"version":2,"host":"h","port":1,"jmx_port":9,"timestamp":"2","endpoints":["SSL://h:2"]}'
    one = znodes.decode_broker(BrokerId(1), v1, BrokerEpoch(1))
    two = znodes.decode_broker(BrokerId(1), v2, BrokerEpoch(1))
    assert one.endpoints == (Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092),)
    assert two.endpoints == (Endpoint("SSL", "SSL", "h", 2),)
    with pytest.raises(znodes.BadZnode, match="LISTENER://HOST:PORT"):
        znodes.decode_broker(BrokerId(1), b'{"version":4,"endpoints":["h:x"]}', BrokerEpoch(1))


def test_controller_and_epoch() -> None:
    data = znodes.encode_controller(BrokerId(1), 1700000000000)
    assert data == (
        b'{"version":2,"brokerid":1,"timestamp":"1700000000000","kraftControllerEpoch":-1}'
    )
    assert znodes.decode_controller(data).broker_id == 1
    assert znodes.decode_controller(b'{"version":1,"brokerid":3,"timestamp":"1"}').broker_id == 3
    assert znodes.decode_controller_epoch(znodes.encode_controller_epoch(ControllerEpoch(7))) == 7
    with pytest.raises(znodes.BadZnode, match="/controller_epoch"):
        znodes.decode_controller_epoch(b"x")
    with pytest.raises(znodes.BadZnode, match="/controller is not JSON"):
        znodes.decode_controller(b"")


def test_cluster_id_has_a_string_version() -> None:
    assert znodes.encode_cluster_id("abc") == b'{"version":"1","id":"abc"}'
    assert znodes.decode_cluster_id(b'{"version":"1","id":"abc"}') == "abc"


def test_notifications_and_requests() -> None:
    partitions = [TP, TopicPartition("u", 5)]
    assert znodes.encode_isr_change([TP]) == (
        b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
    )
    assert znodes.decode_isr_change(znodes.encode_isr_change(partitions)) == partitions
    election = znodes.encode_preferred_replica_election(partitions)
    assert znodes.decode_preferred_replica_election(election) == partitions
    assert znodes.encode_log_dir_event(BrokerId(1)) == b'{"version":1,"broker":1,"event":1}'
    assert znodes.decode_log_dir_event(znodes.encode_log_dir_event(BrokerId(4))) == 4
    targets = {TP: _ids(1, 2)}
    data = znodes.encode_reassign_partitions(targets)
    assert data == (b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}')
    assert znodes.decode_reassign_partitions(data) == targets


def test_configuration() -> None:
    data = znodes.encode_config({"k": "v"})
    assert data == b'{"version":1,"config":{"k":"v"}}'
    assert znodes.decode_config(data) == {"k": "v"}
    assert znodes.decode_config(b"") == {}
    change = znodes.encode_config_change("topics/t")
    assert change == b'{"version":2,"entity_path":"topics/t"}'
    assert znodes.decode_config_change(change) == "topics/t"
    v1 = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    assert znodes.decode_config_change(v1) == "topics/t"


def test_producer_ids() -> None:
    block = znodes.ProducerIdBlock(BrokerId(1), 0, 999)
    data = znodes.encode_producer_id_block(block)
    assert data == b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}'
    assert znodes.decode_producer_id_block(data) == block
    assert znodes.decode_producer_id_block(b"") is None
