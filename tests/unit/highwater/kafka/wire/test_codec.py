"""Messages there and back, and garbage."""

from __future__ import annotations

import pytest

from highwater.kafka.wire import codec
from highwater.kafka.wire.messages import (
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
)


@pytest.mark.parametrize("version", range(13))
def test_metadata_there_and_back(version: int) -> None:
    answer = MetadataResponse(
        brokers=[MetadataResponse.MetadataResponseBroker(node_id=1, host="h", port=9092)],
        topics=[
            MetadataResponse.MetadataResponseTopic(
                name="t",
                partitions=[
                    MetadataResponse.MetadataResponseTopic.MetadataResponsePartition(
                        partition_index=2, leader_id=1, replica_nodes=[1], isr_nodes=[1]
                    )
                ],
            )
        ],
    )
    decoded = codec.decode_response(3, version, codec.encode_response(answer, version))
    assert decoded.brokers[0].host == "h"
    assert decoded.topics[0].partitions[0].partition_index == 2
    assert decoded.version == version


def test_api_versions_error_is_read_as_v0() -> None:
    body = codec.encode_response(ApiVersionsResponse(error_code=35, api_keys=[]), 0)
    assert codec.decode_response(18, 3, body).error_code == 35


def test_unknown_api_and_version() -> None:
    with pytest.raises(codec.UnknownApi):
        codec.decode_request(999, 0, b"")
    with pytest.raises(codec.UnknownApi):
        codec.decode_request(3, 99, b"")


def test_a_body_cut_at_any_place_is_refused_or_equal() -> None:
    part = ProduceRequest.TopicProduceData.PartitionProduceData(index=1, records=b"r" * 40)
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[ProduceRequest.TopicProduceData(name="topic", partition_data=[part])],
    )
    for version in (3, 8, 9):
        body = bytes(codec.encode_request(request, version))
        for cut in range(len(body)):
            with pytest.raises(codec.BadMessage):
                codec.decode_request(0, version, body[:cut])


def test_a_huge_count_costs_nothing() -> None:
    with pytest.raises(codec.BadMessage):
        codec.decode_request(3, 1, b"\x7f\xff\xff\xff" + b"\0" * 8)
    assert (
        codec.decode_request(3, 1, codec.encode_request(MetadataRequest(topics=None), 1))
        is not None
    )


@pytest.mark.parametrize(
    ("key", "version", "body", "field"),
    [
        (61, 0, b"\0\0", "topics"),  # compact array: 0 is null
        (61, 0, b"\2\2t\0\0\0", "partition_indexes"),  # within an element of an array
        (66, 0, b"\1\0\0", "producer_id_filters"),
        (11, 0, b"\xff\xff" + b"\0" * 4, "group_id"),
    ],
)
def test_a_null_where_the_schema_has_none(key: int, version: int, body: bytes, field: str) -> None:
    with pytest.raises(codec.BadMessage, match=f"field {field} is null"):
        codec.decode_request(key, version, body + b"\0" * 20)


def test_a_null_that_may_be() -> None:
    assert codec.decode_request(3, 1, b"\xff\xff\xff\xff").topics is None
