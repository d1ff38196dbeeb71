"""Each control message at each version, against bytes that Kafka 3.9.2's own classes wrote."""

from __future__ import annotations

from typing import Any

import pytest

from highwater.kafka.wire import controller_messages as control

# Written by org.apache.kafka.common.message.* with the values of `_message` below.
VECTORS = """
LeaderAndIsrRequest 0
  000000010000000700000001000174000000030000000700000001000000050000000200000001000000020000000900
  000003000000010000000200000004000000010000000100016800002384
LeaderAndIsrResponse 0
  000000000001000174000000030038
LeaderAndIsrRequest 1
  000000010000000700000001000174000000030000000700000001000000050000000200000001000000020000000900
  00000300000001000000020000000401000000010000000100016800002384
LeaderAndIsrResponse 1
  000000000001000174000000030038
LeaderAndIsrRequest 2
  0000000100000007000000000000004d0000000100017400000001000000030000000700000001000000050000000200
  00000100000002000000090000000300000001000000020000000401000000010000000100016800002384
LeaderAndIsrResponse 2
  000000000001000174000000030038
LeaderAndIsrRequest 3
  0000000100000007000000000000004d0000000100017400000001000000030000000700000001000000050000000200
  000001000000020000000900000003000000010000000200000004000000010000000400000001000000020100000001
  0000000100016800002384
LeaderAndIsrResponse 3
  000000000001000174000000030038
LeaderAndIsrRequest 4
  0000000100000007000000000000004d0202740200000003000000070000000100000005030000000100000002000000
  09040000000100000002000000040200000004020000000201000002000000010268000023840000
LeaderAndIsrResponse 4
  00000202740000000300380000
StopReplicaRequest 0
  0000000100000007010000000100017400000003
StopReplicaResponse 0
  00000000000100017400000003004a
ControlledShutdownRequest 0
  00000002
ControlledShutdownResponse 0
  00000000000100017400000003
StopReplicaRequest 1
  0000000100000007000000000000004d0100000001000174000000020000000300000004
StopReplicaResponse 1
  00000000000100017400000003004a
ControlledShutdownRequest 1
  00000002
ControlledShutdownResponse 1
  00000000000100017400000003
StopReplicaRequest 2
  0000000100000007000000000000004d010202740300000003000000040000
StopReplicaResponse 2
  000002027400000003004a0000
ControlledShutdownRequest 2
  00000002000000000000004d
ControlledShutdownResponse 2
  00000000000100017400000003
StopReplicaRequest 3
  0000000100000007000000000000004d02027402000000030000000501000000
StopReplicaResponse 3
  000002027400000003004a0000
ControlledShutdownRequest 3
  00000002000000000000004d00
ControlledShutdownResponse 3
  0000020274000000030000
UpdateMetadataRequest 0
  000000010000000700000001000174000000030000000700000001000000050000000200000001000000020000000900
  0000030000000100000002000000040000000200000001000168000023840000000200016900002385
UpdateMetadataResponse 0
  000b
UpdateMetadataRequest 1
  000000010000000700000001000174000000030000000700000001000000050000000200000001000000020000000900
  000003000000010000000200000004000000020000000100000001000023840001680000000000020000000100002385
  0001690001
UpdateMetadataResponse 1
  000b
UpdateMetadataRequest 2
  000000010000000700000001000174000000030000000700000001000000050000000200000001000000020000000900
  000003000000010000000200000004000000020000000100000001000023840001680000000172000000020000000100
  0023850001690001ffff
UpdateMetadataResponse 2
  000b
UpdateMetadataRequest 3
  000000010000000700000001000174000000030000000700000001000000050000000200000001000000020000000900
  000003000000010000000200000004000000020000000100000001000023840001680009504c41494e54455854000000
  01720000000200000001000023850001690001580001ffff
UpdateMetadataResponse 3
  000b
UpdateMetadataRequest 4
  000000010000000700000001000174000000030000000700000001000000050000000200000001000000020000000900
  0000030000000100000002000000040000000100000004000000020000000100000001000023840001680009504c4149
  4e5445585400000001720000000200000001000023850001690001580001ffff
UpdateMetadataResponse 4
  000b
UpdateMetadataRequest 5
  0000000100000007000000000000004d0000000100017400000001000000030000000700000001000000050000000200
  000001000000020000000900000003000000010000000200000004000000010000000400000002000000010000000100
  0023840001680009504c41494e5445585400000001720000000200000001000023850001690001580001ffff
UpdateMetadataResponse 5
  000b
UpdateMetadataRequest 6
  0000000100000007000000000000004d0202740200000003000000070000000100000005030000000100000002000000
  0904000000010000000200000004020000000400000300000001020000238402680a504c41494e544558540000000272
  0000000002020000238502690258000100000000
UpdateMetadataResponse 6
  000b00
"""


def _vectors() -> list[tuple[str, int, bytes]]:
    found: list[tuple[str, int, str]] = []
    for line in VECTORS.strip().splitlines():
        if line.startswith(" "):
            name, version, digits = found[-1]
            found[-1] = (name, version, digits + line.strip())
        else:
            name, number = line.split()
            found.append((name, int(number), ""))
    return [(name, version, bytes.fromhex(digits)) for name, version, digits in found]


def _leader_and_isr(version: int) -> Any:
    partition: dict[str, Any] = {
        "partition_index": 3, "controller_epoch": 7, "leader": 1, "leader_epoch": 5, "isr": [1, 2],
        "partition_epoch": 9, "replicas": [1, 2, 4], "adding_replicas": [4],
        "removing_replicas": [2], "is_new": True,
    }  # fmt: skip
    request = control.LeaderAndIsrRequest(
        controller_id=1,
        controller_epoch=7,
        broker_epoch=77,
        live_leaders=[control.LeaderAndIsrLiveLeader(broker_id=1, host_name="h", port=9092)],
    )
    if version < 2:
        request.ungrouped_partition_states = [
            control.LeaderAndIsrRequest.LeaderAndIsrPartitionState(topic_name="t", **partition)
        ]
    else:
        request.topic_states = [
            control.LeaderAndIsrTopicState(
                topic_name="t", partition_states=[control.LeaderAndIsrPartitionState(**partition)]
            )
        ]
    return request


def _stop_replica(version: int) -> Any:
    request = control.StopReplicaRequest(controller_id=1, controller_epoch=7, broker_epoch=77)
    kinds = control.StopReplicaRequest
    if version < 3:
        request.delete_partitions = True
    if version == 0:
        request.ungrouped_partitions = [
            kinds.StopReplicaPartitionV0(topic_name="t", partition_index=3)
        ]
    elif version < 3:
        request.topics = [kinds.StopReplicaTopicV1(name="t", partition_indexes=[3, 4])]
    else:
        state = control.StopReplicaPartitionState(
            partition_index=3, leader_epoch=5, delete_partition=True
        )
        request.topic_states = [
            control.StopReplicaTopicState(topic_name="t", partition_states=[state])
        ]
    return request


def _update_metadata(version: int) -> Any:
    partition: dict[str, Any] = {
        "partition_index": 3, "controller_epoch": 7, "leader": 1, "leader_epoch": 5, "isr": [1, 2],
        "zk_version": 9, "replicas": [1, 2, 4], "offline_replicas": [4],
    }  # fmt: skip
    endpoint = control.UpdateMetadataEndpoint
    request = control.UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=7,
        broker_epoch=77,
        live_brokers=[
            control.UpdateMetadataBroker(
                id=1,
                v0_host="h",
                v0_port=9092,
                rack="r",
                endpoints=[
                    endpoint(port=9092, host="h", listener="PLAINTEXT", security_protocol=0)
                ],
            ),
            control.UpdateMetadataBroker(
                id=2, v0_host="i", v0_port=9093, rack=None,
                endpoints=[endpoint(port=9093, host="i", listener="X", security_protocol=1)],
            ),
        ],
    )  # fmt: skip
    if version < 5:
        request.ungrouped_partition_states = [
            control.UpdateMetadataRequest.UpdateMetadataPartitionState(topic_name="t", **partition)
        ]
    else:
        request.topic_states = [
            control.UpdateMetadataTopicState(
                topic_name="t",
                partition_states=[control.UpdateMetadataPartitionState(**partition)],
            )
        ]
    return request


def _message(name: str, version: int) -> Any:
    error: dict[str, Any] = {"topic_name": "t", "partition_index": 3}
    match name:
        case "LeaderAndIsrRequest":
            return _leader_and_isr(version)
        case "LeaderAndIsrResponse":
            return control.LeaderAndIsrResponse(
                error_code=0,
                partition_errors=[control.LeaderAndIsrPartitionError(error_code=56, **error)],
            )
        case "StopReplicaRequest":
            return _stop_replica(version)
        case "StopReplicaResponse":
            return control.StopReplicaResponse(
                error_code=0,
                partition_errors=[control.StopReplicaPartitionError(error_code=74, **error)],
            )
        case "UpdateMetadataRequest":
            return _update_metadata(version)
        case "UpdateMetadataResponse":
            return control.UpdateMetadataResponse(error_code=11)
        case "ControlledShutdownRequest":
            return control.ControlledShutdownRequest(broker_id=2, broker_epoch=77)
        case "ControlledShutdownResponse":
            return control.ControlledShutdownResponse(
                error_code=0, remaining_partitions=[control.RemainingPartition(**error)]
            )
    raise AssertionError(name)


@pytest.mark.parametrize(
    ("name", "version", "data"), _vectors(), ids=lambda v: "" if isinstance(v, bytes) else str(v)
)
def test_bytes_are_those_of_apache_kafka(name: str, version: int, data: bytes) -> None:
    assert bytes(_message(name, version).encode(version=version)) == data
    decoded = getattr(control, name).decode(memoryview(data), version=version)
    decoded._header = None  # decoding leaves it unset, and encoding asks for it
    assert bytes(decoded.encode(version=version)) == data


def test_every_version_has_a_vector() -> None:
    seen = {(name, version) for name, version, _ in _vectors()}
    for api, last in (
        ("LeaderAndIsr", control.LEADER_AND_ISR_VERSION),
        ("StopReplica", control.STOP_REPLICA_VERSION),
        ("UpdateMetadata", control.UPDATE_METADATA_VERSION),
        ("ControlledShutdown", control.CONTROLLED_SHUTDOWN_VERSION),
    ):
        for kind in ("Request", "Response"):
            assert {v for n, v in seen if n == api + kind} == set(range(last + 1))


def test_fields_of_the_decoded_request() -> None:
    data = next(d for n, v, d in _vectors() if (n, v) == ("UpdateMetadataRequest", 6))
    request = control.UpdateMetadataRequest.decode(memoryview(data), version=6)
    (topic,) = request.topic_states
    (partition,) = topic.partition_states
    assert (topic.topic_name, partition.partition_index, partition.zk_version) == ("t", 3, 9)
    assert partition.offline_replicas == [4]
    assert [b.rack for b in request.live_brokers] == ["r", None]
