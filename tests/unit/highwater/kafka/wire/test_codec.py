"""Messages there and back, and garbage."""

from __future__ import annotations

from time import perf_counter

import pytest

from highwater.kafka.wire import codec, fetch, produce
from highwater.kafka.wire.header import BadHeader, parse_request_header, request_header
from highwater.kafka.wire.messages import (
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
)
from highwater.kafka.wire.varint import MAX_ELEMENTS


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


def test_a_structure_in_a_tagged_field_may_be_left_out() -> None:
    """As every consumer leaves out the replica's state, which only followers have."""
    fetch, version = 1, 15
    made = codec.request_class(fetch)(max_wait_ms=500)
    request = codec.decode_request(fetch, version, codec.encode_request(made, version))
    assert (request.max_wait_ms, request.replica_state) == (500, None)


def test_a_null_that_may_be() -> None:
    assert codec.decode_request(3, 1, b"\xff\xff\xff\xff").topics is None


MANY = MAX_ELEMENTS + 1
FIVE_BYTES = b"\xff\xff\xff\xff\x07"
"""A varint of 2^31 - 1."""


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        (3, 1, MANY.to_bytes(4, "big") + b"\0\1a" * MANY),  # names of topics
        (3, 9, FIVE_BYTES + b"\2a\0" * MANY),
        (3, 9, b"\2" + b"\xff" * 1_000_000),  # a varint, each step of which is longer
        (3, 12, FIVE_BYTES + (b"\0" * 16 + b"\2a" + b"\1\x63\0") * 60_000),  # tags for each topic
    ],
    ids=["topics", "compact", "varint", "tags"],
)
def test_what_would_take_minutes_is_refused_at_once(key: int, version: int, body: bytes) -> None:
    began = perf_counter()
    with pytest.raises(codec.BadMessage):
        codec.decode_request(key, version, body)
    assert perf_counter() - began < 2


def test_elements_are_counted_over_all_arrays() -> None:
    topic = b"\2t" + b"\xb9\x17" + b"\0\0\0\1" * 3000 + b"\0"  # 3000 partitions
    body = b"\2g\x65" + topic * 100 + b"\0\0"
    with pytest.raises(codec.BadMessage, match="more than 250000 elements"):
        codec.decode_request(9, 6, body)
    assert len(codec.decode_request(9, 6, b"\2g\x51" + topic * 80 + b"\0\0").topics) == 80


def test_produce_and_fetch_count_too() -> None:
    head = (-1).to_bytes(2, "big", signed=True) + b"\0\1" + b"\0" * 4
    with pytest.raises(ValueError, match="more than 250000 elements"):
        produce.parse_produce(memoryview(head + b"\x7f\xff\xff\xff" + b"\0" * 3_000_000), 8)
    with pytest.raises(ValueError, match="more than 250000 elements"):
        produce.parse_produce(memoryview(b"\0" + head[2:] + FIVE_BYTES + b"\0" * 3_000_000), 9)
    for version, count in ((4, b"\x7f\xff\xff\xff"), (12, b"\0" * 8 + FIVE_BYTES)):
        with pytest.raises(ValueError, match="more than 250000 elements"):
            fetch.parse_fetch(memoryview(b"\0" * 17 + count + b"\0" * 3_000_000), version)


@pytest.mark.parametrize(
    ("key", "before"),
    [(4, 8), (5, 9), (6, 8)],
    ids=["LeaderAndIsr", "StopReplica", "UpdateMetadata"],
)
def test_the_controllers_requests_count_too(key: int, before: int) -> None:
    """`before`: the bytes in version 0 before its array of partitions."""
    claimed = (codec.MAX_CONTROL_ELEMENTS + 1).to_bytes(4, "big")
    with pytest.raises(codec.BadMessage, match="more than 2000000 elements"):
        codec.decode_request(key, 0, b"\0" * before + claimed + b"\0" * 100_000)


def test_a_header_has_few_tags() -> None:
    head = request_header(3, 9, 1, "c")[:-1]
    with pytest.raises(BadHeader, match="tagged fields"):
        parse_request_header(head + FIVE_BYTES + b"\1\0" * 1_000_000)


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        (42, 0, b"\0\0\0\1\xff\xff"),  # DeleteGroups: handlers met None, found by fuzzing
        (15, 5, b"\2\0\0\0"),
        (20, 1, b"\0\0\0\2\0\1t\xff\xff\0\0\0\0"),
    ],
)
def test_a_list_of_names_holds_no_null(key: int, version: int, body: bytes) -> None:
    with pytest.raises(codec.BadMessage, match="with a null in its field"):
        codec.decode_request(key, version, body)
