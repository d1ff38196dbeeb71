"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, and the watcher that brings changes to
brokers.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import trio

from highwater.broker.handlers import (
    alter_configs,
    create_topics,
    describe_configs,
    incremental_alter_configs,
)
from highwater.broker.settings.config_changes import (
    CHANGE_EXPIRATION_S,
    DynamicConfigWatcher,
    TopicConfigs,
    load_new_topics,
)
from highwater.kafka import znodes
from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire.messages import (
    AlterConfigsRequest,
    CreateTopicsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from highwater.world.api import NoNode
from tests.unit.broker.handlers.conftest import in_broker

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


async def make_topic(b: Any, name: str, **configs: str) -> None:
    new = CreateTopicsRequest.CreatableTopic
    given = [
        new.CreatableTopicConfig(name=n.replace("_", "."), value=v) for n, v in configs.items()
    ]
    topic = new(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=given)
    await b.ask(create_topics, 4, CreateTopicsRequest(topics=[topic], timeout_ms=0))
    await b.update_metadata({name: {0: 1}})


async def describe(
    b: Any, kind: int, name: str, version: int = 4, keys: list[str] | None = None
) -> Any:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    return (await b.ask(describe_configs, version, request)).results[0]


async def alter(b: Any, name: str, *operations: tuple[str, int, str | None], **more: Any) -> str:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    given: dict[str, Any] = {"resource_type": TOPIC} | more
    request = IncrementalAlterConfigsRequest(
        resources=[
            resource(
                resource_name=name,
                configs=[
                    resource.AlterableConfig(name=n, config_operation=op, value=v)
                    for n, op, v in operations
                ],
                resource_type=given["resource_type"],
            )
        ],
        validate_only=given.get("validate_only", False),
    )
    found = await b.ask(incremental_alter_configs, 1, request)
    return ErrorCode(found.responses[0].error_code).name


@pytest.mark.parametrize("version", range(5))
@in_broker(message_max_bytes=777, originals={"message.max.bytes": "777"})
async def test_describe_topic(b: Any, version: int) -> None:
    await make_topic(b, "t", retention_ms="5")
    found = await describe(b, TOPIC, "t", version)
    assert found.error_code == 0
    by_name = {c.name: c for c in found.configs}
    assert len(by_name) == 36
    assert by_name["retention.ms"].value == "5"
    assert by_name["max.message.bytes"].value == "777"
    assert by_name["segment.ms"].value == str(168 * 3600 * 1000)
    assert by_name["cleanup.policy"].value == "delete"
    if version == 0:
        assert by_name["segment.bytes"].is_default
        assert not by_name["retention.ms"].is_default
    else:
        sources = {n: c.config_source for n, c in by_name.items()}
        assert sources["retention.ms"] == 1
        assert sources["max.message.bytes"] == 4
        assert sources["segment.bytes"] == 5
        synonyms = [(s.name, s.value, s.source) for s in by_name["max.message.bytes"].synonyms]
        assert synonyms == [("message.max.bytes", "777", 4), ("message.max.bytes", "1048588", 5)]
        # as Kafka: a default that stands under another name than the foremost is no synonym
        assert by_name["segment.ms"].synonyms == []
    if version >= 3:
        assert by_name["retention.ms"].config_type == 5


@in_broker(num_io_threads=3, originals={"num.io.threads": "3"})
async def test_describe_broker(b: Any) -> None:
    found = await describe(b, BROKER, "1", keys=["num.io.threads", "broker.id", "log.roll.ms"])
    values = {c.name: (c.value, c.config_source, c.read_only) for c in found.configs}
    assert values == {
        "broker.id": ("1", 5, True),
        "num.io.threads": ("3", 4, False),
        "log.roll.ms": (None, 5, False),
    }
    assert (await describe(b, BROKER, "2")).error_code == ErrorCode.INVALID_REQUEST
    assert (await describe(b, BROKER, "x")).error_code == ErrorCode.INVALID_REQUEST
    assert (await describe(b, BROKER, "")).configs == []
    assert (await describe(b, 77, "x")).error_code == ErrorCode.INVALID_REQUEST
    unknown = await describe(b, TOPIC, "none")
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    illegal = await describe(b, TOPIC, "a b")
    assert illegal.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@in_broker()
async def test_incremental_operations(b: Any) -> None:
    await make_topic(b, "t", retention_ms="5", segment_bytes="1000")
    assert (
        await alter(b, "t", ("retention.ms", SET, "6"), ("segment.bytes", DELETE, None)) == "NONE"
    )
    assert await b.stored_config("t") == {"retention.ms": "6"}
    assert await alter(b, "t", ("cleanup.policy", APPEND, "compact")) == "NONE"
    assert (await b.stored_config("t"))["cleanup.policy"] == "delete,compact"
    assert await alter(b, "t", ("cleanup.policy", SUBTRACT, "delete")) == "NONE"
    assert (await b.stored_config("t"))["cleanup.policy"] == "compact"
    before = await b.stored_config("t")
    refused: list[tuple[list[tuple[str, int, str | None]], str]] = [
        ([("retention.ms", APPEND, "1")], "INVALID_CONFIG"),
        ([("retention.ms", SET, "x")], "INVALID_CONFIG"),
        ([("cheese", SET, "x")], "INVALID_CONFIG"),
        ([("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "8")],
         "INVALID_CONFIG"),
        ([("retention.ms", SET, None)], "INVALID_REQUEST"),
        ([("retention.ms", 9, "1")], "INVALID_REQUEST"),
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], "INVALID_REQUEST"),
    ]  # fmt: skip
    for operations, code in refused:
        assert await alter(b, "t", *operations) == code
    assert await alter(b, "t", ("retention.ms", SET, "1"), validate_only=True) == "NONE"
    assert await alter(b, "none", ("retention.ms", SET, "1")) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert await alter(b, "", ("retention.ms", SET, "1")) == "INVALID_REQUEST"
    assert await alter(b, "1", ("broker.id", SET, "1"), resource_type=BROKER) == "INVALID_REQUEST"
    throttle = ("leader.replication.throttled.rate", DELETE, None)
    assert await alter(b, "1", throttle, resource_type=BROKER) == "NONE"
    assert await alter(b, "2", throttle, resource_type=BROKER) == "INVALID_REQUEST"
    assert await b.stored_config("t") == before


@pytest.mark.parametrize("has_znode", [True, False])
@in_broker()
async def test_two_at_once_do_not_undo_each_other(b: Any, has_znode: bool) -> None:
    await make_topic(b, "t")
    if not has_znode:
        with suppress(NoNode):
            await b.zk.delete(znodes.config_path("topics", "t"))
    async with trio.open_nursery() as nursery:
        for name in ("retention.ms", "segment.bytes", "flush.ms", "retention.bytes"):
            nursery.start_soon(alter, b, "t", (name, SET, "100"))
    assert len(await b.stored_config("t")) == 4


@pytest.mark.parametrize("version", range(3))
@in_broker()
async def test_alter_configs_replaces(b: Any, version: int) -> None:
    await make_topic(b, "t", retention_ms="5")
    resource = AlterConfigsRequest.AlterConfigsResource
    configs = [resource.AlterableConfig(name="flush.ms", value="9")]
    request = AlterConfigsRequest(
        resources=[
            resource(resource_type=TOPIC, resource_name="t", configs=configs),
            resource(resource_type=TOPIC, resource_name="none", configs=[]),
            resource(resource_type=BROKER, resource_name="1", configs=[]),
        ]
    )
    found = await b.ask(alter_configs, version, request)
    assert [ErrorCode(r.error_code).name for r in found.responses] == [
        "NONE", "UNKNOWN_TOPIC_OR_PARTITION", "NONE",
    ]  # fmt: skip
    assert await b.stored_config("t") == {"flush.ms": "9"}


@in_broker()
async def test_watcher_tells_of_all_topics_and_then_of_changes(b: Any) -> None:
    await make_topic(b, "a", retention_ms="5")
    await make_topic(b, "b")
    await alter(b, "a", ("retention.ms", SET, "6"))
    told: list[tuple[str, dict[str, str]]] = []
    watcher = DynamicConfigWatcher(
        b.zk, TopicConfigs(lambda topic, config: told.append((topic, dict(config))))
    )
    await watcher.load()
    assert told == [("a", {"retention.ms": "6"}), ("b", {})]
    told.clear()
    async with trio.open_nursery() as nursery:
        await nursery.start(watcher.run)
        await trio.sleep(1)
        assert told == [], "what was there at the start is not told twice"
        await alter(b, "b", ("flush.ms", SET, "1"))
        await alter(b, "a", ("flush.ms", SET, "2"))
        await trio.sleep(1)
        assert sorted(told) == [
            ("a", {"retention.ms": "6", "flush.ms": "2"}), ("b", {"flush.ms": "1"}),
        ]  # fmt: skip
        other = znodes.encode_config_change("brokers/1")
        await b.zk.create(znodes.CONFIG_CHANGE_PREFIX, other, sequential=True)
        await b.zk.create(znodes.CONFIG_CHANGE_PREFIX, b"{nonsense", sequential=True)
        told.clear()
        await alter(b, "a", ("flush.ms", SET, "3"))
        await trio.sleep(1)
        assert [topic for topic, _ in told] == ["a"], "nonsense stops nothing"
        nursery.cancel_scope.cancel()


@in_broker()
async def test_a_change_is_not_passed_over_that_comes_while_all_is_read(b: Any) -> None:
    """Its announcement is new, although the topic had been read when it came."""
    for name in ("a", *(f"b{n}" for n in range(30))):
        await make_topic(b, name)
    last: dict[str, str] = {}
    read, changed = trio.Event(), trio.Event()

    def apply(topic: str, config: Any) -> None:
        if topic == "a":
            last.update(config)
            read.set()

    async def change() -> None:
        await read.wait()
        await alter(b, "a", ("flush.ms", SET, "7"))
        changed.set()

    watcher = DynamicConfigWatcher(b.zk, TopicConfigs(apply))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(change)
        await watcher.load()
        assert changed.is_set(), "it came before the others were read"
        assert last == {}
        await nursery.start(watcher.run)
        await trio.sleep(1)
        assert last == {"flush.ms": "7"}
        nursery.cancel_scope.cancel()


@in_broker()
async def test_an_override_without_effect_is_named_by_one_warning(b: Any, caplog: Any) -> None:
    await make_topic(b, "a", retention_ms="5")
    await make_topic(b, "b")
    given = ("message.downconversion.enable", SET, "false")
    await alter(b, "a", given, ("local.retention.ms", SET, "-2"))
    watcher = DynamicConfigWatcher(b.zk, b.services.topic_configs)
    await watcher.load()
    await watcher.load()
    told = "topic a: without effect here: message.downconversion.enable, local.retention.ms"
    assert caplog.text.count("without effect here") == caplog.text.count(told) == 1


@in_broker()
async def test_watcher_misses_nothing_in_a_burst_and_purges_what_is_old(b: Any) -> None:
    await make_topic(b, "a")
    last: dict[str, str] = {}
    watcher = DynamicConfigWatcher(b.zk, TopicConfigs(lambda topic, config: last.update(config)))
    await watcher.load()
    async with trio.open_nursery() as nursery:
        await nursery.start(watcher.run)
        for n in range(50):
            await alter(b, "a", ("flush.ms", SET, str(n)))
        await trio.sleep(1)
        assert last == {"flush.ms": "49"}
        assert len(await b.zk.children(znodes.CONFIG_CHANGES)) == 50
        await trio.sleep(CHANGE_EXPIRATION_S + 1)
        await alter(b, "a", ("flush.ms", SET, "99"))
        await trio.sleep(1)
        assert len(await b.zk.children(znodes.CONFIG_CHANGES)) == 1
        assert last == {"flush.ms": "99"}
        nursery.cancel_scope.cancel()


@in_broker()
async def test_a_new_topics_configuration_is_there_before_its_partitions(b: Any) -> None:
    await make_topic(b, "t", min_insync_replicas="2")
    replicas = b.services.replicas
    assert "t" not in replicas.topic_overrides
    await load_new_topics(b.services, ["t", "never-configured"])
    assert replicas.topic_overrides["t"] == {"min.insync.replicas": "2"}
    b.services.session = None
    await load_new_topics(b.services, ["later"])
    assert "later" not in replicas.topic_overrides


@in_broker()
async def test_a_topic_that_was_new_while_the_broker_was_away_is_read_as_well(b: Any) -> None:
    await make_topic(b, "t", min_insync_replicas="2")
    replicas, configs = b.services.replicas, b.services.topic_configs
    await DynamicConfigWatcher(b.zk, configs).load()
    changed = znodes.encode_config({"min.insync.replicas": "1"})
    await b.zk.set(znodes.config_path("topics", "t"), changed)
    await make_topic(b, "later", min_insync_replicas="3")
    await load_new_topics(b.services, [], ["t", "later", "t"])
    assert replicas.topic_overrides["later"] == {"min.insync.replicas": "3"}
    assert replicas.topic_overrides["t"] == {"min.insync.replicas": "2"}, "it was just read"
    await load_new_topics(b.services, [], ["t"])
    assert replicas.topic_overrides["t"] == {"min.insync.replicas": "1"}
