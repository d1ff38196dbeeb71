"""The metadata cache: updates of the controller, and answers as another library reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from highwater.broker.metadata.metadata_cache import (
    DOUBT_AGAIN_MS,
    DOUBT_MS,
    GONE_NAMED_MS,
    MetadataCache,
)
from highwater.broker.metadata.metadata_encoding import (
    NOT_ASKED,
)
from highwater.broker.metadata.metadata_update import STEP, MetadataUpdate, decode_update
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import NO_BROKER, BrokerId, TopicPartition
from highwater.kafka.wire.codec import decode_request, decode_response, encode_request
from highwater.kafka.wire.controller_messages import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tests.waiting import at_once

METADATA, UPDATE_METADATA = 3, 6
VERSIONS = range(13)


def broker(broker_id: int, *listeners: str, rack: str | None = None) -> Any:
    return UpdateMetadataBroker(
        id=broker_id,
        rack=rack,
        endpoints=[
            UpdateMetadataEndpoint(
                port=9000 + broker_id, host=f"h{broker_id}", listener=name, security_protocol=0
            )
            for name in listeners or ("PLAINTEXT",)
        ],
    )


def state(index: int, leader: int, isr: list[int], **more: Any) -> Any:
    given: dict[str, Any] = {"leader_epoch": 5, "zk_version": 2, "controller_epoch": 1}
    given |= {"replicas": [1, 2, 3], "offline_replicas": []} | more
    return UpdateMetadataPartitionState(partition_index=index, leader=leader, isr=isr, **given)


def update(
    topics: dict[str, list[Any]], brokers: list[Any] | None = None, controller: int = 1
) -> MetadataUpdate:
    """An update as the controller sends it: encoded and decoded."""
    request = UpdateMetadataRequest(
        controller_id=controller,
        controller_epoch=1,
        broker_epoch=7,
        topic_states=[
            UpdateMetadataTopicState(topic_name=t, partition_states=p) for t, p in topics.items()
        ],
        live_brokers=[broker(i) for i in (1, 2, 3)] if brokers is None else brokers,
    )
    return through_bytes(request, 6)


def through_bytes(request: Any, version: int) -> MetadataUpdate:
    message = decode_request(UPDATE_METADATA, version, encode_request(request, version))
    return at_once(decode_update(message))


def apply(
    cache: MetadataCache, update: MetadataUpdate, now_ms: int | None = None
) -> list[TopicPartition]:
    return at_once(cache.apply(update, now_ms))


@pytest.fixture
def cache() -> MetadataCache:
    cache = MetadataCache(BrokerId(1), "the-cluster")
    apply(cache, update({"t": [state(0, 1, [1, 2]), state(1, 2, [2, 3])], "u": [state(0, 3, [3])]}))
    return cache


def answer(
    cache: MetadataCache, version: int, topics: tuple[str, ...] | None, listener: str = "PLAINTEXT"
) -> Any:
    body = cache.answer(version, listener, topics).data
    message = decode_response(METADATA, version, body)
    message._header = None  # which a decoded message lacks
    assert bytes(message.encode(version=version)) == body, "another encoder makes the same bytes"
    return message


def test_reading(cache: MetadataCache) -> None:
    assert list(cache.topics()) == ["t", "u"]
    assert cache.leader_of(TopicPartition("t", 1)) == 2
    assert cache.leader_of(TopicPartition("t", 9)) == NO_BROKER
    found = cache.partition(TopicPartition("t", 0))
    assert found is not None
    assert (found.leader_epoch, found.isr, found.replicas) == (5, (1, 2), (1, 2, 3))
    assert (found.zk_version, found.controller_epoch) == (2, 1)
    assert len(cache) == 3
    assert cache.is_alive(3)
    assert not cache.is_alive(4)
    endpoint = cache.endpoint_of(2, "PLAINTEXT")
    assert endpoint is not None
    assert (endpoint.host, endpoint.port) == ("h2", 9002)
    assert cache.endpoint_of(2, "OTHER") is None


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_of_every_version(cache: MetadataCache, version: int) -> None:
    found = answer(cache, version, None)
    assert [b.node_id for b in found.brokers] == [1, 2, 3]
    assert [(b.host, b.port) for b in found.brokers][1] == ("h2", 9002)
    assert [t.name for t in found.topics] == ["t", "u"]
    first = found.topics[0].partitions[0]
    assert (first.error_code, first.partition_index, first.leader_id) == (0, 0, 1)
    assert (list(first.replica_nodes), list(first.isr_nodes)) == ([1, 2, 3], [1, 2])
    if version >= 1:
        assert found.controller_id == 1
        assert found.topics[0].is_internal is False
    if version >= 2:
        assert found.cluster_id == "the-cluster"
    if version >= 7:
        assert first.leader_epoch == 5


@pytest.mark.parametrize("version", VERSIONS)
def test_unknown_and_illegal_names(cache: MetadataCache, version: int) -> None:
    found = answer(cache, version, ("t", "missing", "a b", "__consumer_offsets"))
    assert [ErrorCode(t.error_code).name for t in found.topics] == [
        "NONE", "UNKNOWN_TOPIC_OR_PARTITION", "INVALID_TOPIC_EXCEPTION",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]  # fmt: skip
    if version >= 1:
        assert found.topics[3].is_internal is True


@pytest.mark.parametrize("version", VERSIONS)
def test_dead_leader_and_missing_listener(cache: MetadataCache, version: int) -> None:
    apply(cache, update({}, [broker(1, "A", "B"), broker(3, "A")]))
    by_a = answer(cache, version, ("t", "u"), "A")
    assert [p.error_code for p in by_a.topics[0].partitions][1] == ErrorCode.LEADER_NOT_AVAILABLE
    assert by_a.topics[0].partitions[1].leader_id == -1
    by_b = answer(cache, version, ("u",), "B")
    assert [b.node_id for b in by_b.brokers] == [1]
    missing = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
    assert by_b.topics[0].partitions[0].error_code == missing


def test_v0_leaves_dead_replicas_out(cache: MetadataCache) -> None:
    apply(cache, update({}, [broker(1), broker(2)]))
    partition = answer(cache, 0, ("t",)).topics[0].partitions[0]
    assert partition.error_code == ErrorCode.REPLICA_NOT_AVAILABLE
    assert list(partition.replica_nodes) == [1, 2]
    assert answer(cache, 1, ("t",)).topics[0].partitions[0].error_code == 0


def test_offline_replicas_and_racks(cache: MetadataCache) -> None:
    brokers = [broker(1, rack="r1"), broker(2), broker(3)]
    apply(cache, update({"t": [state(0, 1, [1], offline_replicas=[3])]}, brokers))
    found = answer(cache, 12, ("t",))
    assert list(found.topics[0].partitions[0].offline_replicas) == [3]
    assert [b.rack for b in found.brokers] == ["r1", None, None]


@pytest.mark.parametrize("version", range(8, 13))
def test_authorized_operations(cache: MetadataCache, version: int) -> None:
    body = cache.answer(version, "PLAINTEXT", ("t",), topic_operations=0xDF8,
                        cluster_operations=0x1FA0).data  # fmt: skip
    topic = (0xDF8).to_bytes(4, "big")
    cluster = (0x1FA0).to_bytes(4, "big")
    assert topic in body
    assert (cluster in body) == (version <= 10)
    plain = cache.answer(version, "PLAINTEXT", ("t",)).data
    assert (NOT_ASKED & 0xFFFFFFFF).to_bytes(4, "big") in plain
    assert topic not in plain


def test_updates_are_incremental(cache: MetadataCache) -> None:
    before = answer(cache, 12, None)
    apply(cache, update({"t": [state(1, 3, [3])]}, controller=2))
    after = answer(cache, 12, None)
    assert before.topics[0].partitions[1].leader_id == 2
    assert after.topics[0].partitions[1].leader_id == 3
    assert after.topics[0].partitions[0].leader_id == 1
    assert after.controller_id == 2
    assert len(cache) == 3


def test_only_the_named_topic_is_encoded_again(cache: MetadataCache) -> None:
    cache.answer(12, "PLAINTEXT", None)
    parts = cache._encoded[12, "PLAINTEXT"]._parts
    kept = parts["u"]
    apply(cache, update({"t": [state(1, 3, [3])]}))
    assert "t" not in parts
    cache.answer(12, "PLAINTEXT", None)
    assert parts["u"] is kept
    apply(cache, update({}, [broker(1)]))
    assert not cache._encoded, "who is alive changes every topic's errors"


def test_same_question_same_bytes(cache: MetadataCache) -> None:
    first = cache.answer(12, "PLAINTEXT", ("t",))
    assert cache.answer(12, "PLAINTEXT", ("t",)) is first
    apply(cache, update({}))
    assert cache.answer(12, "PLAINTEXT", ("t",)) == first
    for i in range(1000):
        cache.answer(12, "PLAINTEXT", (f"no-{i}",))
    assert len(cache._answers) <= 256


def test_deletion(cache: MetadataCache) -> None:
    deleted = apply(cache, update({"t": [state(0, -2, []), state(1, -2, [])]}))
    assert deleted == [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert not cache.has_topic("t")
    assert len(cache) == 1
    assert apply(cache, update({"gone": [state(0, -2, [])]})) == [TopicPartition("gone", 0)]
    assert not cache.has_topic("gone")


def test_topics_that_are_not_among_all_are_dropped(cache: MetadataCache) -> None:
    before = len(cache)
    apply(cache, update({}))
    assert len(cache) == before, "nothing is said of them"
    known = set(cache.topics())
    assert {"t"} < known
    deleted = apply(cache, replace(update({}), all_topics=frozenset(known - {"t"})))
    assert deleted == [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert set(cache.topics()) == known - {"t"}
    assert cache.topic_id("t") == bytes(16)


def test_no_controller(cache: MetadataCache) -> None:
    apply(cache, update({}, controller=-1))
    assert answer(cache, 1, ()).controller_id == -1


def test_old_versions_of_update_metadata() -> None:
    for version in range(6):
        first = state(0, 1, [1])
        request = UpdateMetadataRequest(
            controller_id=1,
            controller_epoch=1,
            ungrouped_partition_states=[_with_topic(first, "t")],
            topic_states=[UpdateMetadataTopicState(topic_name="t", partition_states=[first])],
            live_brokers=[_with_v0(broker(1))],
        )  # fmt: skip
        cache = MetadataCache(BrokerId(1))
        apply(cache, through_bytes(request, version))
        assert cache.leader_of(TopicPartition("t", 0)) == 1, version
        endpoint = cache.endpoint_of(1, "PLAINTEXT")
        assert endpoint is not None, version
        assert (endpoint.host, endpoint.port) == ("h1", 9001)


def _with_topic(partition: Any, topic: str) -> Any:
    partition.topic_name = topic
    return partition


def _with_v0(live: Any) -> Any:
    live.v0_host, live.v0_port = live.endpoints[0].host, live.endpoints[0].port
    return live


def test_a_leader_that_is_announced_is_waited_for(cache: MetadataCache) -> None:
    t0, t1 = TopicPartition("t", 0), TopicPartition("t", 1)
    cache.expect(t0, 5, 100)
    assert cache.doubted(None, 100) == [], "that epoch is known"
    cache.expect(TopicPartition("new", 0), 0, 100)
    assert cache.doubted(("new",), 100) == []
    cache.expect(t0, 6, 100)
    cache.expect(t1, 6, 200)
    assert cache.doubted(None, 100) == ["t"]
    assert cache.doubted(("u",), 100) == []
    apply(cache, update({"t": [state(0, 2, [2], leader_epoch=6)]}))
    assert cache.doubted(None, 200) == ["t"]
    apply(cache, update({"t": [state(1, 2, [2], leader_epoch=5)]}))
    assert cache.doubted(None, 200) == ["t"], "that was older"
    assert cache.doubted(None, 200 + DOUBT_MS) == []
    apply(cache, update({"t": [state(1, 2, [2], leader_epoch=7)]}))
    assert cache.doubted(None, 200) == []
    cache.expect(t0, 8, 300)
    apply(cache, update({"t": [state(0, -2, []), state(1, -2, [])]}))
    assert cache.doubted(None, 300) == [], "deleted"


def test_a_broker_that_goes_is_named_a_little_longer(cache: MetadataCache) -> None:
    apply(cache, update({"t": [state(1, 3, [3])]}, [broker(1), broker(3)]), 1000)

    def named(now_ms: int) -> list[int]:
        body = cache.answer(12, "PLAINTEXT", ("t",), now_ms=now_ms).data
        return sorted(b.node_id for b in decode_response(3, 12, body).brokers)

    assert named(1000) == named(1000 + GONE_NAMED_MS - 1) == [1, 2, 3]
    assert not cache.is_alive(2)
    assert list(cache.brokers()) == [1, 3]
    assert named(1000 + GONE_NAMED_MS) == [1, 3]
    apply(cache, update({}, [broker(1), broker(2), broker(3)]), 7000)
    apply(cache, update({}, [broker(1), broker(2)]), 8000)
    assert named(8000) == [1, 2, 3]
    apply(cache, update({}, [broker(1), broker(2), broker(3)]), 9000)
    assert named(9000) == [1, 2, 3], "once, though it was gone"


def test_a_leader_is_in_doubt_until_there_is_news(cache: MetadataCache) -> None:
    cache.doubt(1, 100)
    assert cache.doubted(None, 100) == cache.doubted(("t",), 599) == ["t"]
    assert cache.doubted(("u", "no"), 100) == []
    assert cache.doubted(None, 100 + DOUBT_MS) == []
    cache.doubt(1, 700)
    assert cache.doubted(None, 700) == [], "not again so soon: it may be down for long"
    cache.doubt(1, 100 + DOUBT_AGAIN_MS)
    assert cache.doubted(None, 100 + DOUBT_AGAIN_MS) == ["t"]
    cache.doubt(3, 20_000)
    assert cache.doubted(None, 20_000) == ["u"]
    apply(cache, update({"u": [state(0, 2, [2])]}))
    assert cache.doubted(None, 20_000) == [], "another leads"
    cache.doubt(2, 30_000)
    assert cache.doubted(None, 30_000) == ["t", "u"]
    apply(cache, update({}, [broker(1), broker(3)]))
    assert cache.doubted(None, 30_000) == [], "the controller knows that it is gone"


def test_a_large_update_is_applied_in_steps(cache: MetadataCache) -> None:
    """A request between two steps is answered, and its answer is not kept once the rest has come.
    A topic is there whole or not at all: to clients, partitions that an answer lacks do not exist.
    """
    many = {t: [state(i, 1, [1]) for i in range(STEP + 50)] for t in ("a", "b")}
    steps = cache.apply(update({**many, "t": [state(0, -2, []), state(1, -2, [])]}), None)
    sizes = []
    deleted: list[TopicPartition] = []

    def all_steps() -> Iterator[None]:
        deleted.extend((yield from steps))

    for _ in all_steps():
        found = answer(cache, 12, ("a", "b"))
        sizes.append([len(t.partitions) for t in found.topics])
    assert sizes == [[STEP + 50, 0], [STEP + 50, STEP + 50]]
    found = answer(cache, 12, ("a", "b"))
    assert [len(t.partitions) for t in found.topics] == [STEP + 50, STEP + 50]
    assert deleted == [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert not cache.has_topic("t")
    assert len(cache) == 2 * (STEP + 50) + 1
