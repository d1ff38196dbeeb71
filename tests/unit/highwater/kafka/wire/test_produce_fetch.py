"""The hand-written Produce and Fetch codecs against kafka-python's, at every version served."""

from __future__ import annotations

import struct

import pytest
from kafka.protocol.consumer import FetchRequest as TheirFetch
from kafka.protocol.consumer import FetchResponse as TheirFetchResponse
from kafka.protocol.producer import ProduceRequest as TheirProduce
from kafka.protocol.producer import ProduceResponse as TheirProduceResponse

from highwater.kafka.types import TopicPartition
from highwater.kafka.wire import fetch, produce

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("bé", 0)


@pytest.mark.parametrize("version", range(produce.MAX_VERSION + 1))
@pytest.mark.parametrize("txn", [None, "tx"])
def test_produce_request(version: int, txn: str | None) -> None:
    topic = TheirProduce.TopicProduceData
    part = topic.PartitionProduceData
    body = TheirProduce(
        transactional_id=txn,
        acks=-1,
        timeout_ms=1500,
        topic_data=[
            topic(
                name="a",
                partition_data=[part(index=0, records=b"x" * 300), part(index=1, records=None)],
            ),
            topic(name="bé", partition_data=[part(index=0, records=b"")]),
        ],
    ).encode(version=version)
    got = produce.parse_produce(memoryview(body), version)
    assert (got.acks, got.timeout_ms) == (-1, 1500)
    assert got.transactional_id == (txn if version >= produce.FIRST_WITH_BATCHES else None)
    assert [(tp, None if r is None else bytes(r)) for tp, r in got.partitions] == [
        (A0, b"x" * 300),
        (A1, None),
        (B0, b""),
    ]


@pytest.mark.parametrize("version", range(produce.MAX_VERSION + 1))
def test_produce_request_cut_short(version: int) -> None:
    topic = TheirProduce.TopicProduceData
    part = topic.PartitionProduceData(index=0, records=b"x" * 300)
    body = TheirProduce(
        transactional_id=None,
        acks=1,
        timeout_ms=1,
        topic_data=[topic(name="a", partition_data=[part])],
    ).encode(version=version)
    for end in range(len(body) - 8):
        with pytest.raises((ValueError, IndexError, struct.error)):
            produce.parse_produce(memoryview(body)[:end], version)


@pytest.mark.parametrize("version", range(produce.MAX_VERSION + 1))
def test_produce_response(version: int) -> None:
    results = [
        produce.PartitionResult(A0, 0, 42, -1, 7),
        produce.PartitionResult(B0, 6),
        produce.PartitionResult(A1, 87, message="bad récord"),
    ]
    got = TheirProduceResponse.decode(
        produce.produce_response(results, version, 9), version=version
    )
    assert got.throttle_time_ms == (9 if version >= produce.FIRST_THROTTLED else 0)
    assert [t.name for t in got.responses] == ["a", "bé"]
    first, second = got.responses[0].partition_responses
    assert (first.index, first.error_code, first.base_offset) == (0, 0, 42)
    assert second.error_code == 87
    if version >= 5:
        assert first.log_start_offset == 7
    if version >= 8:
        assert second.error_message == "bad récord"
        assert first.error_message is None


def test_an_answer_names_the_leader() -> None:
    results = [produce.PartitionResult(A0, 6, leader=(3, 17)), produce.PartitionResult(A1, 0, 5)]
    body = produce.produce_response(results, 10)
    places = [
        produce.NodeEndpoint(3, "h3", 9092, None),
        produce.NodeEndpoint(4, "hé", 65535, "rack"),
    ]
    body = body[:-1] + produce.endpoint_tags(places)
    got = TheirProduceResponse.decode(body, version=10)
    first, second = got.responses[0].partition_responses
    assert (first.current_leader.leader_id, first.current_leader.leader_epoch) == (3, 17)
    assert second.base_offset == 5
    found = [(n.node_id, n.host, n.port, n.rack) for n in got.node_endpoints]
    assert found == [tuple(place) for place in places]
    old = produce.produce_response(results, 9)
    assert (
        TheirProduceResponse.decode(old, version=9).responses[0].partition_responses[1].index == 1
    )


@pytest.mark.parametrize("version", range(fetch.MIN_VERSION, fetch.MAX_VERSION + 1))
def test_fetch_request(version: int) -> None:
    topic = TheirFetch.FetchTopic
    part = topic.FetchPartition(
        partition=1, current_leader_epoch=5, fetch_offset=77, log_start_offset=3,
        partition_max_bytes=999,
    )  # fmt: skip
    if version >= 12:
        part.last_fetched_epoch = 4
    body = TheirFetch(
        replica_id=2, max_wait_ms=500, min_bytes=1, max_bytes=10_000, isolation_level=1,
        session_id=9, session_epoch=8, topics=[topic(topic="a", partitions=[part])],
        forgotten_topics_data=[TheirFetch.ForgottenTopic(topic="bé", partitions=[0])]
        if version >= 7 else [],
        rack_id="r" if version >= 11 else "",
    ).encode(version=version)  # fmt: skip
    got = fetch.parse_fetch(memoryview(body), version)
    assert (got.replica_id, got.max_wait_ms, got.min_bytes, got.max_bytes) == (2, 500, 1, 10_000)
    assert got.isolation_level == 1
    assert (got.session_id, got.session_epoch) == ((9, 8) if version >= 7 else (0, -1))
    assert got.forgotten == ([B0] if version >= 7 else [])
    assert got.rack_id == ("r" if version >= 11 else "")
    assert got.partitions == [
        fetch.FetchPartition(
            A1, 5 if version >= 9 else -1, 77, 4 if version >= 12 else -1,
            3 if version >= 5 else -1, 999,
        )
    ]  # fmt: skip


@pytest.mark.parametrize("version", range(fetch.MIN_VERSION, fetch.MAX_VERSION + 1))
def test_fetch_response(version: int) -> None:
    parts = fetch.response_parts(
        version,
        0,
        31,
        [
            fetch.FetchedPartition(A0, 0, 10, 9, 1, b"records!", 8, [(5, 6)], (3, 4)),
            fetch.FetchedPartition(A1, 6, -1, -1, -1, b"", 0),
            fetch.FetchedPartition(B0, 0, 3, 3, 0, b"more", 4, []),
        ],
        2,
    )
    got = TheirFetchResponse.decode(b"".join(parts), version=version)
    assert got.throttle_time_ms == 2
    if version >= 7:
        assert got.session_id == 31
    (a, b) = got.responses
    first, second = a.partitions
    assert (first.high_watermark, first.last_stable_offset, bytes(first.records)) == (
        10,
        9,
        b"records!",
    )
    assert [(t.producer_id, t.first_offset) for t in first.aborted_transactions] == [(5, 6)]
    assert second.error_code == 6
    assert second.aborted_transactions is None
    assert not second.records
    assert bytes(b.partitions[0].records) == b"more"
    if version >= 12:
        assert (first.diverging_epoch.epoch, first.diverging_epoch.end_offset) == (3, 4)


@pytest.mark.parametrize("version", range(7, 12))
def test_follower_request_and_answer(version: int) -> None:
    request = fetch.FetchRequest(
        1, 500, 1, 1000, 0, 5, 6,
        [fetch.FetchPartition(A1, 5 if version >= 9 else -1, 77, -1, 3, 999)],
        [B0], "",
    )  # fmt: skip
    assert fetch.parse_fetch(memoryview(fetch.build_fetch(request, version)), version) == request
    answered = [fetch.FetchedPartition(A1, 0, 10, 9, 1, b"records!", 8, [(5, 6)])]
    body = b"".join(fetch.response_parts(version, 0, 31, answered))
    back = fetch.parse_fetch_answer(memoryview(body), version)
    assert (back.error, back.session_id) == (0, 31)
    assert (back.partitions[0].tp, bytes(back.partitions[0].records)) == (A1, b"records!")
