"""Produce, DeleteRecords and DescribeProducers: the answers that Apache Kafka has been seen to
give."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from highwater.broker.handlers import (
    delete_records,
    describe_producers,
    offset_for_leader_epoch,
    produce,
)
from highwater.broker.replica.partition import LeaderAndIsr
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.types import BrokerId, ControllerEpoch, LeaderEpoch, TopicPartition, ZkVersion
from highwater.kafka.wire.codec import decode_response, encode_request
from highwater.kafka.wire.compression import Compression
from highwater.kafka.wire.fetch import FetchPartition
from highwater.kafka.wire.messages import (
    DeleteRecordsRequest,
    DescribeProducersRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)
from highwater.kafka.wire.records import Record, build_batch
from tests.unit.broker.handlers.conftest import in_broker

TP = TopicPartition("t", 0)
_Topic = ProduceRequest.TopicProduceData


def batch(key: bytes | None = b"k", **more: Any) -> bytes:
    return bytes(build_batch([Record(key, b"v", 1, ())], **more))


def produced(records: bytes, topic: str = "t") -> Any:
    place = _Topic.PartitionProduceData(index=0, records=records)
    data = [_Topic(name=topic, partition_data=[place])]
    return ProduceRequest(transactional_id=None, acks=1, timeout_ms=1000, topic_data=data)


def send(b: Any, version: int, request: Any) -> Any:
    body = memoryview(bytearray(encode_request(request, version)))
    reply = produce.handle(b.context(produce, version), body)
    assert isinstance(reply, Response)
    assert reply.parts is not None
    return decode_response(0, version, b"".join(reply.parts))  # type: ignore[arg-type]


def error_of(answer: Any) -> str:
    return ErrorCode(answer.responses[0].partition_responses[0].error_code).name


def state(leader: int, epoch: int, replicas: tuple[int, ...]) -> LeaderAndIsr:
    return LeaderAndIsr(
        BrokerId(leader), LeaderEpoch(epoch), ControllerEpoch(1), replicas, ZkVersion(epoch),
        replicas,
    )  # fmt: skip


async def lead(b: Any, *followers: int, **overrides: str) -> Any:
    """The only partition, led by this broker."""
    await b.services.logs.load("the-cluster", 1)
    manager = b.services.replicas
    manager.topic_overrides["t"] = {k.replace("_", "."): v for k, v in overrides.items()}
    replicas = (1, *followers)
    partition = manager.partitions[TP] = manager._host(TP, is_new=True)
    partition.make_leader(state(1, 0, replicas), 0)
    return partition


@pytest.mark.parametrize("version", [3, 6, 9])
@in_broker()
async def test_a_compacted_topic_takes_only_records_with_keys(b: Any, version: int) -> None:
    partition = await lead(b, cleanup_policy="compact,delete")
    assert error_of(send(b, version, produced(batch(None)))) == "INVALID_RECORD"
    zipped = batch(None, compression=Compression.GZIP)
    assert error_of(send(b, version, produced(zipped))) == "INVALID_RECORD"
    assert partition.log.log_end_offset == 0
    assert error_of(send(b, version, produced(batch()))) == "NONE"


@in_broker()
async def test_zstd_is_for_version_7_and_later(b: Any) -> None:
    await lead(b)
    records = batch(compression=Compression.ZSTD)
    answer = send(b, 6, produced(records))
    assert error_of(answer) == "UNSUPPORTED_COMPRESSION_TYPE"
    assert error_of(send(b, 7, produced(records))) == "NONE"


@in_broker()
async def test_a_zombie_does_not_tell_a_consumer_that_what_it_read_is_gone(b: Any) -> None:
    """A consumer that has read on asks a leader that was replaced while it stood still: an
    OFFSET_OUT_OF_RANGE would make that consumer begin again from the start."""

    await lead(b, 2)
    send(b, 9, produced(batch()))
    replicas = b.services.replicas

    def read(epoch: int) -> Any:
        return replicas.read(FetchPartition(TP, -1, 1, epoch, -1, 1000), 1000, -1, 0, True)

    assert read(0).diverging is None
    with pytest.raises(ApiError) as refused:
        read(1)
    assert refused.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH

    def ends(epoch: int, replica_id: int) -> tuple[int, int]:
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        place = topic.OffsetForLeaderPartition(
            partition=0, current_leader_epoch=-1, leader_epoch=epoch
        )
        asked = OffsetForLeaderEpochRequest(
            replica_id=replica_id, topics=[topic(topic="t", partitions=[place])]
        )
        context = b.context(offset_for_leader_epoch, 3)
        answer: Any = offset_for_leader_epoch.handle(context, asked)
        found = answer.message.topics[0].partitions[0]
        return found.error_code, found.end_offset

    assert ends(0, -1) == (0, 1)
    assert ends(1, -1) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1)
    assert ends(1, 2) == (0, -1)


@in_broker()
async def test_a_partition_of_other_brokers_is_known(b: Any) -> None:
    b.services.replicas.is_known = lambda tp: b.services.metadata.partition(tp) is not None
    await b.update_metadata({"elsewhere": {0: 2}})
    answer = send(b, 9, produced(batch(), "elsewhere"))
    assert error_of(answer) == "NOT_LEADER_OR_FOLLOWER"
    answer = send(b, 9, produced(batch(), "nowhere"))
    assert error_of(answer) == "UNKNOWN_TOPIC_OR_PARTITION"
    answer = send(b, 10, produced(batch(), "elsewhere"))
    leader = answer.responses[0].partition_responses[0].current_leader
    assert (leader.leader_id, leader.leader_epoch) == (2, 0)
    assert [(n.node_id, n.host, n.port) for n in answer.node_endpoints] == [(2, "h", 9092)]


@in_broker()
async def test_deleted_records_are_answered_once_the_followers_know(b: Any) -> None:
    partition = await lead(b, 2)
    for _ in range(3):
        send(b, 9, produced(batch()))
    b.services.replicas.follower_progress(FetchPartition(TP, 0, 3, -1, 0, 100), 2)
    assert partition.high_watermark == 3
    topic_class = DeleteRecordsRequest.DeleteRecordsTopic
    place = topic_class.DeleteRecordsPartition(partition_index=0, offset=2)
    topics = [topic_class(name="t", partitions=[place])]
    request = DeleteRecordsRequest(topics=topics, timeout_ms=60_000)
    answers = []

    async def delete() -> None:
        answers.append(await b.ask(delete_records, 2, request))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(b.services.completions.run)
        nursery.start_soon(delete)
        await trio.sleep(1)
        assert not answers
        b.services.replicas.follower_progress(FetchPartition(TP, 0, 3, -1, 2, 100), 2)
        await trio.sleep(1)
        found = answers[0].topics[0].partitions[0]
        assert (found.error_code, found.low_watermark) == (0, 2)
        nursery.cancel_scope.cancel()


@in_broker()
async def test_no_record_above_the_hw_is_deleted(b: Any) -> None:
    await lead(b, 1)
    topic_class = DeleteRecordsRequest.DeleteRecordsTopic
    places = [topic_class.DeleteRecordsPartition(partition_index=p, offset=2) for p in (0, 1)]
    topics = [topic_class(name="t", partitions=places)]
    answer = await b.ask(delete_records, 2, DeleteRecordsRequest(topics=topics, timeout_ms=1000))
    names = [ErrorCode(place.error_code).name for place in answer.topics[0].partitions]
    assert sorted(names) == ["OFFSET_OUT_OF_RANGE", "UNKNOWN_TOPIC_OR_PARTITION"]


@in_broker()
async def test_followers_tell_of_producers_too(b: Any) -> None:
    partition = await lead(b, 2)
    records = batch(producer_id=5, producer_epoch=1, base_sequence=0)
    send(b, 9, produced(records))
    partition.make_follower(state(2, 1, (1, 2)))
    topic_class = DescribeProducersRequest.TopicRequest
    request = DescribeProducersRequest(topics=[topic_class(name="t", partition_indexes=[0])])
    answer = await b.ask(describe_producers, 0, request)
    found = answer.topics[0].partitions[0]
    assert found.error_code == 0
    assert [p.producer_id for p in found.active_producers] == [5]
