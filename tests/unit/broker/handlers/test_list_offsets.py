"""ListOffsets when the lookup of a timestamp needs bytes that are only on the disk: the answers are
the same, and the loop does not wait."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from highwater.broker.handlers import list_offsets
from highwater.broker.log.parts import Origin
from highwater.broker.replica.partition import LeaderAndIsr
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import BrokerId, ControllerEpoch, LeaderEpoch, TopicPartition, ZkVersion
from highwater.kafka.wire.messages import ListOffsetsRequest
from highwater.kafka.wire.records import Record, build_batch
from highwater.world.sim.failing_call import FailingCall
from tests.unit.broker.handlers.conftest import in_broker

RECORDS = 60
SEGMENTS_AT_LEAST = 5
ASKED = (-2, -1, -3, 0, 1, 17, 30, 31, 44, 59, 60, 61)


async def lead(b: Any) -> None:
    """Leads a partition of t for each time to ask for, with a record at each of the times 1 to
    RECORDS in many segments."""
    await b.services.logs.load("the-cluster", 1)
    for index in range(len(ASKED)):
        lead_partition(b, TopicPartition("t", index))


def lead_partition(b: Any, tp: TopicPartition) -> None:
    partition = b.services.replicas._host(tp, is_new=True)
    b.services.replicas.partitions[tp] = partition
    alone = LeaderAndIsr(
        BrokerId(1), LeaderEpoch(0), ControllerEpoch(1), (1,), ZkVersion(0), (1,)
    )  # fmt: skip
    partition.make_leader(alone, 0)
    for time in range(1, RECORDS + 1):
        records = memoryview(bytearray(build_batch([Record(b"k", b"v", time, ())])))
        b.services.replicas.append(partition, records, 1, Origin.CLIENT)
    log = partition.leader_log()
    assert len(log.segments) >= SEGMENTS_AT_LEAST
    assert partition.high_watermark == RECORDS


def request() -> Any:
    topic = ListOffsetsRequest.ListOffsetsTopic
    place = topic.ListOffsetsPartition
    partitions = [
        place(partition_index=index, current_leader_epoch=-1, timestamp=t)
        for index, t in enumerate(ASKED)
    ]
    elsewhere = place(partition_index=1, current_leader_epoch=-1, timestamp=5)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[
            topic(name="t", partitions=partitions),
            topic(name="other", partitions=[elsewhere]),
        ],
    )


def found(reply: Any) -> list[tuple[str, str, int, int]]:
    assert isinstance(reply, Response)
    return [
        (topic.name, ErrorCode(p.error_code).name, p.timestamp, p.offset)
        for topic in reply.message.topics
        for p in topic.partitions
    ]


@pytest.mark.parametrize("cold", [0.3, 1.0])
@in_broker(log_segment_bytes=1000)
async def test_a_timestamp_is_found_on_the_disk_alone(b: Any, cold: float) -> None:
    await lead(b)
    context = b.context(list_offsets, 7)
    at_once = list_offsets.handle(context, request())
    expected = found(at_once)
    times = [t for t in ASKED if 0 < t <= RECORDS]
    assert [row for row in expected if row[2] in times] == [
        ("t", "NONE", time, time - 1) for time in (RECORDS, 1, *times)
    ]
    assert expected[-1][:2] == ("other", "UNKNOWN_TOPIC_OR_PARTITION")

    disk = b.services.world.disk._disk
    disk.cold = cold
    reply = list_offsets.handle(context, request())
    assert inspect.isawaitable(reply), "it did not look whether it had to wait"
    assert disk.loads == 0
    assert found(await reply) == expected
    assert disk.loads >= len(times)


@in_broker(log_segment_bytes=1000)
async def test_a_disk_that_fails_a_load_costs_its_directory(b: Any) -> None:
    await lead(b)
    b.failed_dirs = []
    disk = b.services.world.disk._disk
    disk.cold, disk.failing = 1.0, FailingCall("load", "/data/")
    reply = list_offsets.handle(b.context(list_offsets, 7), request())
    assert inspect.isawaitable(reply)
    answers = {(topic, error) for topic, error, _, _ in found(await reply)}
    assert b.failed_dirs == ["/data"]
    assert ("t", "KAFKA_STORAGE_ERROR") in answers
