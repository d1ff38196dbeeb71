"""What the proxies learn from answers to clients."""

from __future__ import annotations

import uuid

import pytest

from highwater.cluster.links.answers_seen import FETCH, METADATA, PRODUCE, take_note
from highwater.cluster.links.link_rules import Links
from highwater.kafka.wire import codec, messages
from highwater.kafka.wire.header import response_header

ID = uuid.UUID(int=7)


def frame(key: int, version: int, answer: object) -> memoryview:
    return memoryview(
        response_header(key, version, 1) + bytes(codec.encode_response(answer, version))
    )


@pytest.mark.parametrize(("version", "expected"), [(9, {}), (12, {ID: "orders"})])
def test_the_names_of_topics_by_their_ids(version: int, expected: dict[uuid.UUID, str]) -> None:
    cls, links = messages.MetadataResponse, Links()
    answer = cls(topics=[cls.MetadataResponseTopic(name="orders", topic_id=ID)])
    take_note(links, METADATA, version, frame(METADATA, version, answer))
    assert links.topic_ids == expected


def test_the_errors_of_partitions() -> None:
    produce, fetch, links = messages.ProduceResponse, messages.FetchResponse, Links()
    topic = produce.TopicProduceResponse
    parts = [topic.PartitionProduceResponse(error_code=code) for code in (0, 6, 6)]
    answer = produce(responses=[topic(name="orders", partition_responses=parts)])
    take_note(links, PRODUCE, 7, frame(PRODUCE, 7, answer))
    topic = fetch.FetchableTopicResponse
    answer = fetch(
        responses=[topic(topic="orders", partitions=[topic.PartitionData(error_code=1)])]
    )
    take_note(links, FETCH, 11, frame(FETCH, 11, answer))
    take_note(links, FETCH, 11, memoryview(b"\0\0\0\1no answer"))
    assert links.answers == {("Produce", "6"): 2, ("Fetch", "1"): 1}
