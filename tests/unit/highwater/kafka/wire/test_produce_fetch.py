"""The hand-written Produce and Fetch codecs against kafka-python's, at every version served."""

from __future__ import annotations

import struct
from uuid import UUID

import pytest
from kafka.protocol.consumer import FetchRequest as TheirFetch
from kafka.protocol.consumer import FetchResponse as TheirFetchResponse
from kafka.protocol.producer import ProduceRequest as TheirProduce
from kafka.protocol.producer import ProduceResponse as TheirProduceResponse

from highwater.kafka.topic_ids import unknown_name
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire import fetch, produce
from highwater.kafka.wire.node_endpoints import NodeEndpoint, endpoint_tags

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("bé", 0)
IDS = {"a": UUID(int=7), "bé": UUID(int=9)}
NAMES = {IDS["a"].bytes: "a"}
"""Of the second topic only the id is known."""
UNKNOWN = TopicPartition(unknown_name(IDS["bé"].bytes), 0)


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
                topic_id=IDS["a"],
                partition_data=[part(index=0, records=b"x" * 300), part(index=1, records=None)],
            ),
            topic(name="bé", topic_id=IDS["bé"], partition_data=[part(index=0, records=b"")]),
        ],
    ).encode(version=version)
    got = produce.parse_produce(memoryview(body), version, NAMES.get)
    by_id = version >= produce.BY_ID
    assert got.topic_ids == ({"a": IDS["a"].bytes, UNKNOWN.topic: IDS["bé"].bytes} if by_id else {})
    assert (got.acks, got.timeout_ms) == (-1, 1500)
    assert got.transactional_id == (txn if version >= produce.FIRST_WITH_BATCHES else None)
    assert [(tp, None if r is None else bytes(r)) for tp, r in got.partitions] == [
        (A0, b"x" * 300),
        (A1, None),
        (UNKNOWN if by_id else B0, b""),
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
    ids = {name: known.bytes for name, known in IDS.items()}
    got = TheirProduceResponse.decode(
        produce.produce_response(results, version, 9, ids), version=version
    )
    assert got.throttle_time_ms == (9 if version >= produce.FIRST_THROTTLED else 0)
    if version >= produce.BY_ID:
        assert [t.topic_id for t in got.responses] == list(IDS.values())
    else:
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
        NodeEndpoint(3, "h3", 9092, None),
        NodeEndpoint(4, "hé", 65535, "rack"),
    ]
    body = body[:-1] + endpoint_tags(places)
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
    by_id = version >= fetch.BY_ID
    asked = TheirFetch(
        replica_id=2, max_wait_ms=500, min_bytes=1, max_bytes=10_000, isolation_level=1,
        session_id=9, session_epoch=8,
        topics=[topic(topic="a", topic_id=IDS["a"], partitions=[part])],
        forgotten_topics_data=[
            TheirFetch.ForgottenTopic(topic="bé", topic_id=IDS["bé"], partitions=[0])
        ] if version >= 7 else [],
        rack_id="r" if version >= 11 else "",
    )  # fmt: skip
    if version >= 15:
        asked.replica_state = TheirFetch.ReplicaState(replica_id=2, replica_epoch=5)
    body = asked.encode(version=version)
    got = fetch.parse_fetch(memoryview(body), version)
    assert (got.replica_id, got.max_wait_ms, got.min_bytes, got.max_bytes) == (2, 500, 1, 10_000)
    assert got.isolation_level == 1
    assert (got.session_id, got.session_epoch) == ((9, 8) if version >= 7 else (0, -1))
    assert got.by_id == by_id
    forgotten = [(IDS["bé"].bytes, 0) if by_id else B0]
    assert got.forgotten == (forgotten if version >= 7 else [])
    assert got.rack_id == ("r" if version >= 11 else "")
    assert got.partitions == [
        fetch.FetchPartition(
            TopicPartition("", 1) if by_id else A1, 5 if version >= 9 else -1, 77,
            4 if version >= 12 else -1, 3 if version >= 5 else -1, 999,
            IDS["a"].bytes if by_id else b"",
        )
    ]  # fmt: skip


@pytest.mark.parametrize("version", range(fetch.MIN_VERSION, fetch.MAX_VERSION + 1))
def test_fetch_response(version: int) -> None:
    of_a = IDS["a"].bytes
    parts = fetch.response_parts(
        version,
        0,
        31,
        [
            fetch.FetchedPartition(A0, 0, 10, 9, 1, b"records!", 8, [(5, 6)], (3, 4), of_a),
            fetch.FetchedPartition(A1, 6, -1, -1, -1, b"", 0, topic_id=of_a, leader=(3, 17)),
            fetch.FetchedPartition(B0, 0, 3, 3, 0, b"more", 4, [], topic_id=IDS["bé"].bytes),
        ],
        2,
        [NodeEndpoint(3, "h3", 9092, None)] if version >= fetch.TELLS_LEADER else [],
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
        assert (second.current_leader.leader_id, second.current_leader.leader_epoch) == (3, 17)
    if version >= fetch.BY_ID:
        assert [t.topic_id for t in got.responses] == list(IDS.values())
    if version >= fetch.TELLS_LEADER:
        assert [(n.node_id, n.host, n.port) for n in got.node_endpoints] == [(3, "h3", 9092)]


@pytest.mark.parametrize("version", range(fetch.BY_ID, fetch.MAX_VERSION + 1))
def test_fetch_request_cut_short(version: int) -> None:
    topic = TheirFetch.FetchTopic
    part = topic.FetchPartition(partition=1, fetch_offset=77, partition_max_bytes=999)
    body = TheirFetch(
        max_wait_ms=500, topics=[topic(topic_id=IDS["a"], partitions=[part])],
    ).encode(version=version)  # fmt: skip
    assert fetch.parse_fetch(memoryview(body), version).replica_id == -1
    for end in range(len(body) - 1):
        with pytest.raises((ValueError, IndexError, struct.error)):
            fetch.parse_fetch(memoryview(body)[:end], version)


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
