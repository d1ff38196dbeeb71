"""Topic ids in a cluster that a broker of Apache Kafka 2.6 joins: out of use while it is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer

from highwater.kafka.wire.messages import ApiVersionsRequest, MetadataRequest
from tests.integration.oracle.rig import (
    HIGHWATER,
    OLD_APACHE,
    PARTITIONS,
    Mixed,
    create,
    eventually,
)
from tests.integration.reading import read_all

pytestmark = [
    pytest.mark.integration, pytest.mark.apache, pytest.mark.slow, pytest.mark.timeout(240),
]  # fmt: skip
TOPIC, FETCH = "mixed", 1


def topic_id(mixed: Mixed, broker: int) -> UUID | None:
    asked = MetadataRequest.MetadataRequestTopic(name=TOPIC)
    (topic,) = mixed.call(broker, MetadataRequest(topics=[asked]), 12).topics
    return topic.topic_id


def latest_fetch(mixed: Mixed, broker: int) -> int:
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    answer = mixed.call(broker, request, 3)
    return next(int(a.max_version) for a in answer.api_keys if a.api_key == FETCH)


def written(mixed: Mixed, n: int) -> None:
    """All of these are acknowledged by all replicas."""
    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": mixed.bootstrap, "acks": "all"})
    for number in range(n):
        producer.produce(
            TOPIC, b"v", partition=number % PARTITIONS,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )  # fmt: skip
    assert (producer.flush(60), failed) == (0, [])


def test_ids_go_out_of_use_beside_an_older_broker(
    tmp_path: Path, apache_tool: Callable[..., Any]
) -> None:
    kinds = {1: HIGHWATER, 2: OLD_APACHE, 3: HIGHWATER}
    mixed = Mixed(tmp_path / "cluster", kinds)
    with mixed.background:
        create(mixed, TOPIC)
        written(mixed, 60)
        assert {topic_id(mixed, n) for n in (1, 3)} == {None}
        assert {latest_fetch(mixed, n) for n in (1, 3)} == {12}
        assert mixed.controller() != 2, "the one that knows ids has to give them"
        mixed.background.kill(2)
        eventually(lambda: latest_fetch(mixed, 1) == latest_fetch(mixed, 3) == 17, "ids are in use")
        eventually(lambda: topic_id(mixed, 1) is not None, "the topic has an id")
        given = topic_id(mixed, 1)
        written(mixed, 60)
        mixed.background.start(2)
        eventually(lambda: topic_id(mixed, 1) is None, "nobody is answered it any more")
        eventually(lambda: mixed.whole(TOPIC), "all are in sync", lambda: mixed.state(TOPIC))
        for partition in range(PARTITIONS):
            mixed.move_leader(TOPIC, partition, 2)
        written(mixed, 60)
        mixed.background.kill(2)
        eventually(lambda: topic_id(mixed, 3) == given, "it is the same id as before")
        assert len(read_all(mixed.bootstrap, TOPIC, PARTITIONS)) == 180
