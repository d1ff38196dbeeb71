"""Creating, deleting and growing topics: the writes to ZooKeeper, and the time of the answer."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from highwater.broker.admin import topic_znodes
from highwater.broker.handlers import create_partitions, create_topics, delete_topics, metadata
from highwater.kafka import znodes
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.wire.messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    MetadataRequest,
)
from highwater.kafka.znodes import TopicState
from tests.unit.broker.handlers.conftest import in_broker

_Topic = CreateTopicsRequest.CreatableTopic
_More = CreatePartitionsRequest.CreatePartitionsTopic


def topic(name: str, partitions: int = 2, factor: int = 2, **more: Any) -> Any:
    given: dict[str, Any] = {"assignments": [], "configs": []} | more
    return _Topic(name=name, num_partitions=partitions, replication_factor=factor, **given)


def creation(*topics: Any, timeout_ms: int = 1000, validate_only: bool = False) -> Any:
    return CreateTopicsRequest(
        topics=list(topics), timeout_ms=timeout_ms, validate_only=validate_only
    )


def codes(results: Any) -> dict[str, str]:
    return {r.name: ErrorCode(r.error_code).name for r in results}


@pytest.mark.parametrize("version", range(8))
@in_broker()
async def test_answers_when_there_are_leaders(b: Any, version: int) -> None:
    answers = []

    async def create() -> None:
        config = _Topic.CreatableTopicConfig(name="retention.ms", value="1000")
        request = creation(topic("t", configs=[config]))
        answers.append(await b.ask(create_topics, version, request))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(create)
        await trio.sleep(0.5)
        assert not answers
        stored = await b.stored_topic("t")
        assert sorted(stored) == [0, 1]
        assert all(len(set(r)) == 2 and set(r) <= {1, 2, 3} for r in stored.values())
        assert await b.stored_config("t") == {"retention.ms": "1000"}
        await b.update_metadata({"t": {0: 1}})
        await trio.sleep(0.1)
        assert not answers, "partition 1 has no leader yet"
        await b.update_metadata({"t": {1: 2}})
    result = answers[0].topics[0]
    assert codes(answers[0].topics) == {"t": "NONE"}
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (2, 2)
        values = {c.name: (c.value, c.config_source) for c in result.configs}
        assert values["retention.ms"] == ("1000", 1)
        assert values["segment.bytes"] == ("1073741824", 5)


@in_broker()
async def test_time_out(b: Any) -> None:
    started = trio.current_time()
    found = await b.ask(create_topics, 4, creation(topic("t"), timeout_ms=300))
    assert codes(found.topics) == {"t": "REQUEST_TIMED_OUT"}
    assert 0.25 < trio.current_time() - started < 0.5
    assert await b.stored_topic("t") is not None, "it was created all the same"
    found = await b.ask(create_topics, 4, creation(topic("u"), timeout_ms=0))
    assert codes(found.topics) == {"u": "REQUEST_TIMED_OUT"}


@in_broker()
async def test_each_topic_has_its_own_error(b: Any) -> None:
    await b.update_metadata({"known": {0: 1}})
    await b.zk.create(znodes.topic_path("in-zk"), znodes.encode_topic(TopicState({})))
    await b.zk.create(znodes.topic_path("a.b"), znodes.encode_topic(TopicState({})))
    await b.zk.create(znodes.delete_topic_path("leaving"))
    bad_config = _Topic.CreatableTopicConfig(name="retention.ms", value="soon")
    no_config = _Topic.CreatableTopicConfig(name="cheese", value="1")
    null_config = _Topic.CreatableTopicConfig(name="retention.ms", value=None)
    place = _Topic.CreatableReplicaAssignment
    twice = [place(partition_index=0, broker_ids=[1]), place(partition_index=0, broker_ids=[2])]
    gap = [place(partition_index=1, broker_ids=[1])]
    request = creation(
        topic("known"), topic("in-zk"), topic("a_b"), topic("leaving"), topic("a b"),
        topic("wide", factor=4), topic("none", partitions=0), topic("zero", factor=0),
        topic("bad", configs=[bad_config]), topic("cheesy", configs=[no_config]),
        topic("nulled", configs=[null_config]),
        topic("both", assignments=gap), topic("gap", -1, -1, assignments=gap),
        topic("twice", -1, -1, assignments=twice),
        topic("dup"), topic("dup"),
    )  # fmt: skip
    found = await b.ask(create_topics, 4, request)
    assert codes(found.topics) == {
        "known": "TOPIC_ALREADY_EXISTS", "in-zk": "TOPIC_ALREADY_EXISTS",
        "a_b": "INVALID_TOPIC_EXCEPTION", "leaving": "TOPIC_ALREADY_EXISTS",
        "a b": "INVALID_TOPIC_EXCEPTION", "wide": "INVALID_REPLICATION_FACTOR",
        "none": "INVALID_PARTITIONS", "zero": "INVALID_REPLICATION_FACTOR", "bad": "INVALID_CONFIG",
        "cheesy": "INVALID_CONFIG", "nulled": "INVALID_CONFIG", "both": "INVALID_REQUEST",
        "gap": "INVALID_REPLICA_ASSIGNMENT", "twice": "INVALID_REPLICA_ASSIGNMENT",
        "dup": "INVALID_REQUEST",
    }  # fmt: skip
    assert all(r.error_message for r in found.topics)
    names = [r.name for r in found.topics]
    assert names.count("dup") == 2, "as Kafka: an answer for each time it was asked for"
    assert await b.zk.children(znodes.TOPICS) == ["a.b", "in-zk"]


@in_broker(num_partitions=5, default_replication_factor=3)
async def test_defaults_assignments_and_validation_only(b: Any) -> None:
    place = _Topic.CreatableReplicaAssignment
    given = [
        place(partition_index=0, broker_ids=[3, 1]),
        place(partition_index=1, broker_ids=[1, 2]),
    ]
    await b.ask(create_topics, 4, creation(topic("defaults", -1, -1), timeout_ms=0))
    stored = await b.stored_topic("defaults")
    assert len(stored) == 5
    assert all(len(r) == 3 for r in stored.values())
    request = creation(topic("given", -1, -1, assignments=given), timeout_ms=0)
    await b.ask(create_topics, 4, request)
    assert await b.stored_topic("given") == {0: (3, 1), 1: (1, 2)}
    found = await b.ask(create_topics, 4, creation(topic("dry"), validate_only=True))
    assert codes(found.topics) == {"dry": "NONE"}
    assert await b.stored_topic("dry") is None


@in_broker()
async def test_only_the_controller_does_it(b: Any) -> None:
    b.controller.active = False
    found = await b.ask(create_topics, 4, creation(topic("t")))
    assert codes(found.topics) == {"t": "NOT_CONTROLLER"}
    b.services.candidate = None
    found = await b.ask(delete_topics, 4, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1))
    assert codes(found.responses) == {"t": "NOT_CONTROLLER"}
    more = CreatePartitionsRequest(topics=[_More(name="t", count=2)], timeout_ms=1)
    found = await b.ask(create_partitions, 1, more)
    assert codes(found.results) == {"t": "NOT_CONTROLLER"}
    assert await b.zk.children(znodes.TOPICS) == []


@in_broker()
async def test_without_zookeeper(b: Any) -> None:
    b.services.session = None
    found = await b.ask(create_topics, 4, creation(topic("t")))
    assert codes(found.topics) == {"t": "REQUEST_TIMED_OUT"}


@pytest.mark.parametrize("version", range(7))
@in_broker()
async def test_delete(b: Any, version: int) -> None:
    def request(timeout_ms: int, *names: str) -> Any:
        if version < 6:
            return DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)
        states = [DeleteTopicsRequest.DeleteTopicState(name=n) for n in names]
        return DeleteTopicsRequest(topics=states, timeout_ms=timeout_ms)

    await b.ask(create_topics, 4, creation(topic("t"), timeout_ms=0))
    await b.update_metadata({"t": {0: 1, 1: 1}})
    found = await b.ask(delete_topics, version, request(100, "t", "missing"))
    assert codes(found.responses) == {
        "t": "REQUEST_TIMED_OUT", "missing": "UNKNOWN_TOPIC_OR_PARTITION",
    }  # fmt: skip
    assert await b.zk.exists(znodes.delete_topic_path("t")) is not None
    answers = []

    async def again() -> None:
        answers.append(await b.ask(delete_topics, version, request(1000, "t")))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(again)
        await trio.sleep(0.2)
        await b.update_metadata({"t": {0: -2, 1: -2}})
    assert codes(answers[0].responses) == {"t": "NONE"}


@in_broker(delete_topic_enable=False)
async def test_deletion_switched_off(b: Any) -> None:
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1)
    found = await b.ask(delete_topics, 2, request)
    assert codes(found.responses) == {"t": "INVALID_REQUEST"}
    found = await b.ask(delete_topics, 3, request)
    assert codes(found.responses) == {"t": "TOPIC_DELETION_DISABLED"}


@in_broker()
async def test_create_partitions(b: Any) -> None:
    assignment = _More.CreatePartitionsAssignment

    await b.ask(create_topics, 4, creation(topic("t", 2, 2), topic("u", 1, 2), timeout_ms=0))
    before = await b.stored_topic("t")
    await b.update_metadata({"t": {0: 1, 1: 2}, "u": {0: 1}})

    async def ask(*topics: Any, **more: Any) -> dict[str, str]:
        given: dict[str, Any] = {"timeout_ms": 100, "validate_only": False} | more
        found = await b.ask(
            create_partitions, 3, CreatePartitionsRequest(topics=list(topics), **given)
        )
        return codes(found.results)

    for name in ("..", "", "t/partitions", "x" * 250):  # no path in ZooKeeper is made of these
        assert await ask(_More(name=name, count=3, assignments=None)) == {
            name: "UNKNOWN_TOPIC_OR_PARTITION"
        }
    for count in (2**31 - 1, 10_003):
        assert await ask(_More(name="t", count=count, assignments=None)) == {
            "t": "POLICY_VIOLATION"
        }
    wrong = [assignment(broker_ids=[1])]
    unknown = [assignment(broker_ids=[1, 9])]
    assert await ask(_More(name="t", count=3, assignments=None), validate_only=True) == {
        "t": "NONE"
    }
    assert await ask(
        _More(name="t", count=2, assignments=None), _More(name="x", count=2, assignments=None)
    ) == {"t": "INVALID_PARTITIONS", "x": "UNKNOWN_TOPIC_OR_PARTITION"}
    for bad in (wrong, unknown, [*wrong, *wrong]):
        assert await ask(_More(name="t", count=3, assignments=bad)) == {
            "t": "INVALID_REPLICA_ASSIGNMENT"
        }
    assert await b.stored_topic("t") == before
    given = [assignment(broker_ids=[3, 1])]
    assert await ask(_More(name="u", count=2, assignments=given)) == {"u": "REQUEST_TIMED_OUT"}
    assert (await b.stored_topic("u"))[1] == (3, 1)
    assert await ask(_More(name="t", count=5, assignments=None)) == {"t": "REQUEST_TIMED_OUT"}
    after = await b.stored_topic("t")
    assert {p: after[p] for p in (0, 1)} == before
    assert sorted(after) == [0, 1, 2, 3, 4]
    assert all(len(set(r)) == 2 for r in after.values())


@pytest.mark.parametrize("version", range(13))
@in_broker(num_partitions=4, default_replication_factor=2)
async def test_metadata_creates_topics(b: Any, version: int) -> None:
    asked = [MetadataRequest.MetadataRequestTopic(name=n) for n in ("auto", "b d")]
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=True)
    found = await b.ask(metadata, version, request)
    assert codes(found.topics) == {
        "auto": "LEADER_NOT_AVAILABLE", "b d": "INVALID_TOPIC_EXCEPTION",
    }  # fmt: skip
    assert len(await b.stored_topic("auto")) == 4
    if version >= 4:
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name="never")],
            allow_auto_topic_creation=False,
        )
        found = await b.ask(metadata, version, request)
        assert codes(found.topics) == {"never": "UNKNOWN_TOPIC_OR_PARTITION"}
    await b.update_metadata({"auto": {0: 2}})
    found = await b.ask(metadata, version, MetadataRequest(topics=asked[:1]))
    assert codes(found.topics) == {"auto": "NONE"}
    everything: list[Any] | None = [] if version == 0 else None
    found = await b.ask(metadata, version, MetadataRequest(topics=everything))
    assert codes(found.topics) == {"auto": "NONE"}


@in_broker()
async def test_metadata_creates_internal_topics_with_their_configuration(b: Any) -> None:
    asked = MetadataRequest.MetadataRequestTopic(name="__consumer_offsets")
    found = await b.ask(metadata, 12, MetadataRequest(topics=[asked]))
    assert codes(found.topics) == {"__consumer_offsets": "LEADER_NOT_AVAILABLE"}
    assert found.topics[0].is_internal
    assert len(await b.stored_topic("__consumer_offsets")) == 50
    assert (await b.stored_config("__consumer_offsets"))["cleanup.policy"] == "compact"
    asked = MetadataRequest.MetadataRequestTopic(name="__transaction_state")
    await b.update_metadata({}, {1: None})
    found = await b.ask(metadata, 12, MetadataRequest(topics=[asked]))
    assert codes(found.topics) == {"__transaction_state": "INVALID_REPLICATION_FACTOR"}


@in_broker(
    share_coordinator_state_topic_num_partitions=7,
    share_coordinator_state_topic_replication_factor=2,
    share_coordinator_state_topic_min_isr=1,
    share_coordinator_state_topic_segment_bytes=1000,
)
async def test_the_topic_of_share_groups_has_its_configuration(b: Any) -> None:
    asked = MetadataRequest.MetadataRequestTopic(name="__share_group_state")
    found = await b.ask(metadata, 12, MetadataRequest(topics=[asked]))
    assert codes(found.topics) == {"__share_group_state": "LEADER_NOT_AVAILABLE"}
    assert found.topics[0].is_internal
    stored = await b.stored_topic("__share_group_state")
    assert (len(stored), {len(replicas) for replicas in stored.values()}) == (7, {2})
    assert await b.stored_config("__share_group_state") == {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": "1",
        "retention.ms": "-1",
        "segment.bytes": "1000",
    }


@in_broker()
async def test_topic_ids_are_not_known(b: Any) -> None:
    import uuid

    wanted, other = uuid.UUID(int=7), uuid.UUID(int=8)
    topic = MetadataRequest.MetadataRequestTopic
    asked = [topic(topic_id=one, name=None) for one in (wanted, other)]
    found = await b.ask(metadata, 12, MetadataRequest(topics=asked))
    assert [(t.name, t.topic_id, t.error_code, t.partitions) for t in found.topics] == [
        (None, wanted, ErrorCode.UNKNOWN_TOPIC_ID, []),
        (None, other, ErrorCode.UNKNOWN_TOPIC_ID, []),
    ]
    state = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=wanted)
    found = await b.ask(delete_topics, 6, DeleteTopicsRequest(topics=[state], timeout_ms=1))
    assert [(t.name, t.topic_id, t.error_code) for t in found.responses] == [
        (None, wanted, ErrorCode.UNKNOWN_TOPIC_ID)
    ]


@in_broker()
async def test_racks_of_some_brokers_only(b: Any) -> None:
    await b.update_metadata({}, {1: "a", 2: "b", 3: None})
    found = await b.ask(create_topics, 4, creation(topic("t"), timeout_ms=0))
    assert codes(found.topics) == {"t": "UNKNOWN_SERVER_ERROR"}
    asked = [MetadataRequest.MetadataRequestTopic(name="auto")]
    found = await b.ask(metadata, 12, MetadataRequest(topics=asked))
    assert codes(found.topics) == {"auto": "LEADER_NOT_AVAILABLE"}


@in_broker()
async def test_who_makes_a_topic_second_does_not_change_its_configuration(b: Any) -> None:
    """Both have seen that there is none; the second is a client that only named it."""
    path = znodes.config_path("topics", "t")
    await b.zk.create(path, znodes.encode_config({"retention.ms": "1"}))  # of a topic that is gone
    await topic_znodes.write(b.zk, "t", {0: (1,)}, {"cleanup.policy": "compact"})
    with pytest.raises(ApiError) as refused:
        await topic_znodes.write(b.zk, "t", {0: (1,), 1: (1,)}, {})
    assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    data, _ = await b.zk.get(path)
    assert znodes.decode_config(data) == {"cleanup.policy": "compact"}
    assert len(await b.stored_topic("t")) == 1
