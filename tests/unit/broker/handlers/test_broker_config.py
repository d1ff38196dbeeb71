"""Dynamic broker configuration and the levels of loggers, through the handlers and the watcher."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from highwater.broker.handlers import alter_configs, describe_configs, incremental_alter_configs
from highwater.broker.settings.client_quotas import read_entity
from highwater.broker.settings.config_changes import DynamicConfigWatcher, TopicConfigs
from highwater.kafka.config.property_table import KEPT
from highwater.kafka.config.property_table import TOPIC as OF_TOPICS
from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire.messages import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from tests.unit.broker.handlers.conftest import in_broker

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND = 0, 1, 2


async def alter(
    b: Any, name: str, *operations: tuple[str, int, str | None], kind: int = BROKER
) -> tuple[str, str | None]:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [
        resource.AlterableConfig(name=n, config_operation=o, value=v) for n, o, v in operations
    ]
    request = IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=kind, resource_name=name, configs=configs)],
        validate_only=False,
    )
    answer = (await b.ask(incremental_alter_configs, 1, request)).responses[0]
    return ErrorCode(answer.error_code).name, answer.error_message


async def described(b: Any, name: str, *keys: str, kind: int = BROKER) -> dict[str, Any]:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    found = (await b.ask(describe_configs, 4, request)).results[0]
    return {
        c.name: (c.value, c.config_source, c.read_only, [s.source for s in c.synonyms])
        for c in found.configs
    }


def follower(b: Any) -> DynamicConfigWatcher:
    """Stands for the broker's own watcher."""

    def apply(path: str, config: Any) -> None:
        kind, _, name = path.partition("/")
        if kind == "brokers":
            b.services.dynamic.configured(name, config)

    return DynamicConfigWatcher(b.zk, TopicConfigs(lambda topic, config: None), apply)


@in_broker(num_io_threads=9, originals={"num.io.threads": "9"})
async def test_the_brokers_value_wins_over_the_default_and_both_can_be_taken_back(b: Any) -> None:
    config = b.services.config
    changes: list[object] = []
    b.services.dynamic.on_change = changes.append
    watcher = follower(b)
    assert await alter(b, "", ("num.io.threads", SET, "12")) == ("NONE", None)
    await watcher.load()
    assert config.num_io_threads == 12
    assert await alter(b, "1", ("num.io.threads", SET, "20"), ("log.roll.ms", SET, "99")) == (
        "NONE",
        None,
    )
    await watcher.load()
    assert (config.num_io_threads, config.log_roll_ms, config.segment_ms) == (20, 99, 99)
    assert changes == [("num.io.threads",), ("num.io.threads", "log.roll.ms")]
    assert await described(b, "1", "num.io.threads") == {
        "num.io.threads": ("20", 2, False, [2, 3, 4, 5])
    }
    assert await described(b, "") == {"num.io.threads": ("12", 3, False, [3])}
    await alter(b, "1", ("num.io.threads", DELETE, None), ("log.roll.ms", DELETE, None))
    await alter(b, "", ("num.io.threads", DELETE, None))
    await watcher.load()
    assert (config.num_io_threads, config.log_roll_ms) == (9, None)


@in_broker()
async def test_what_cannot_be_set_is_refused_with_one_line(b: Any) -> None:
    for name, value, complaint in (
        ("broker.id", "2", "cannot be changed while a broker runs"),
        ("metric.reporters", "a.B", "cannot be set: it names Java classes"),
        ("process.roles", "broker", "cannot be set: a KRaft property"),
        ("metrics.num.samples", "3", "cannot be changed while a broker runs"),
        ("listener.name.x.max.connections", "2", "there is no such listener"),
        ("listener.name.plaintext.max.connections", "-1", "must be at least 0"),
        ("listener.name.plaintext.queued.max.requests", "2", "cannot be changed while a broker"),
        ("log.cleaner.threads", "3", "from half to twice the current value, 1"),
        ("log.cleaner.threads", "0", "must be at least 1"),
        ("authorizer.class.name", "A", "cannot be changed while a broker runs"),
        ("listener.name.x.ssl.key.password", "hunter2", "cannot be changed while a broker"),
        ("listener.name.x.ssl.provider", "hunter2", "cannot be set: TLS is OpenSSL's"),
        ("num.io.threads", "17", "from half to twice the current value, 8"),
        ("num.io.threads", "3", "from half to twice the current value, 8"),
        ("num.io.threads", "many", "not a whole number"),
        ("max.connections.per.ip", "0", "lets nobody in"),
        ("max.connections.per.ip.overrides", "nonsense", "is not ADDRESS:COUNT"),
        ("queued.max.request.bytes", "5", "one request could never be read"),
        ("leader.replication.throttled.rate", "-1", "a number of bytes a second"),
        ("follower.replication.throttled.rate", "fast", "a number of bytes a second"),
        ("unclean.leader.election.enable", "perhaps", "neither true nor false"),
    ):
        code, message = await alter(b, "1", (name, SET, value))
        assert code == "INVALID_REQUEST", name
        assert complaint in (message or ""), message
        assert "hunter2" not in (message or "")
    assert (await alter(b, "2", ("num.io.threads", SET, "9")))[0] == "INVALID_REQUEST"
    assert (await alter(b, "1", ("log.roll.ms", APPEND, "9")))[0] == "INVALID_CONFIG"
    assert await alter(b, "1", ("follower.replication.throttled.rate", DELETE, None)) == (
        "NONE",
        None,
    )
    assert await b.zk.children("/config/brokers") == []


@in_broker(originals={"foo.bar": "hunter1", "node.id": "1"})
async def test_a_name_that_kafka_does_not_know_is_kept_and_its_value_never_told(
    b: Any, caplog: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    assert await alter(b, "1", ("foo.bar", SET, "hunter2"), ("num.io.threads", SET, "9")) == (
        "NONE",
        None,
    )
    assert await alter(b, "", ("foo.bar", SET, "hunter3")) == ("NONE", None)
    assert await alter(b, "1", ("listener.name.x.foo", SET, "hunter4")) == ("NONE", None)
    code, message = await alter(b, "", ("listener.name.x.foo", SET, "hunter4"))
    assert (code, "by its id" in (message or "")) == ("INVALID_REQUEST", True)
    # as in a broker that starts: all of it comes from ZooKeeper
    await follower(b).load()
    assert (await read_entity(b.zk, "brokers/1"))["foo.bar"] == "hunter2"
    assert b.services.config.num_io_threads == 9
    assert await described(b, "1", "foo.bar") == {"foo.bar": (None, 2, True, [2, 3, 4])}
    assert await described(b, "", "foo.bar") == {"foo.bar": (None, 3, True, [3])}
    assert await told_raw(b, "1", "foo.bar") == [(None, True, 0, [None, None, None])]
    assert await told_raw(b, "", "foo.bar") == [(None, True, 0, [None])]
    assert await alter(b, "1", ("foo.bar", DELETE, None)) == ("NONE", None)
    assert "foo.bar" not in await read_entity(b.zk, "brokers/1")
    assert (await alter(b, "1", ("foo.bar", APPEND, "a")))[0] == "INVALID_CONFIG"
    assert "hunter" not in caplog.text


async def told_raw(b: Any, name: str, key: str) -> list[tuple[Any, ...]]:
    """The value, sensitivity and type of a property, and the values of its synonyms."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=BROKER, resource_name=name, configuration_keys=[key]
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    found = (await b.ask(describe_configs, 4, request)).results[0].configs
    return [(c.value, c.is_sensitive, c.config_type, [s.value for s in c.synonyms]) for c in found]


@in_broker()
async def test_alter_configs_replaces_unknown_names_too(b: Any) -> None:
    for entity, path in (("1", "brokers/1"), ("", "brokers/<default>")):
        for properties in ({"foo.bar": "a"}, {"foo.other": "b"}, {}):
            assert await replace(b, entity, properties) == "NONE"
            assert await read_entity(b.zk, path) == properties
        assert await replace(b, entity, {"broker.id": "3"}) == "INVALID_REQUEST"


async def replace(b: Any, name: str, properties: dict[str, str]) -> str:
    resource = AlterConfigsRequest.AlterConfigsResource
    entries = [resource.AlterableConfig(name=n, value=v) for n, v in properties.items()]
    request = AlterConfigsRequest(
        resources=[resource(resource_type=BROKER, resource_name=name, configs=entries)],
        validate_only=False,
    )
    answer = await b.ask(alter_configs, 1, request)
    return ErrorCode(answer.responses[0].error_code).name


@in_broker()
async def test_the_number_of_threads_is_bound_for_all_brokers_too(b: Any) -> None:
    assert (await alter(b, "", ("log.cleaner.threads", SET, "3")))[0] == "INVALID_REQUEST"
    assert (await alter(b, "1", ("log.cleaner.threads", SET, "2")))[0] == "NONE"
    await follower(b).load()
    assert b.services.config.log_cleaner_threads == 2
    # the broker's own value holds, so that this one changes nothing now
    assert (await alter(b, "", ("log.cleaner.threads", SET, "9")))[0] == "NONE"


@in_broker()
async def test_what_is_set_in_zookeeper_and_cannot_be_followed_is_named(
    b: Any, caplog: Any
) -> None:
    b.services.dynamic.configured("1", {"ssl.key.password": "hunter2", "broker.id": "7"})
    assert "brokers/1 without effect here: broker.id, ssl.key.password" in caplog.text
    assert "hunter2" not in caplog.text


async def documented(b: Any, kind: int, name: str, asked: bool) -> dict[str, str | None]:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource], include_documentation=asked)
    for version in (3, 4):
        found = (await b.ask(describe_configs, version, request)).results[0].configs
    return {c.name: c.documentation for c in found}


@in_broker()
async def test_documentation_is_given_to_whoever_asks_for_it(b: Any) -> None:
    told = await documented(b, BROKER, "1", True)
    assert told == {name: row.doc for name, row in KEPT.items()}
    assert set((await documented(b, BROKER, "1", False)).values()) == {None}
    await b.update_metadata({"t": {0: 1}})
    assert await documented(b, TOPIC, "t", True) == {n: row.doc for n, row in OF_TOPICS.items()}


def test_each_property_is_documented_by_one_sentence() -> None:
    for row in (*KEPT.values(), *OF_TOPICS.values()):
        assert row.doc.endswith("."), row.name
        assert "\n" not in row.doc


@in_broker()
async def test_the_rates_of_throttles_have_no_place_but_here(b: Any) -> None:
    changes: list[object] = []
    dynamic = b.services.dynamic
    dynamic.on_change = changes.append
    watcher = follower(b)
    leader, moves = (
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
    assert await alter(b, "", (leader, SET, "100"), (moves, SET, "7")) == ("NONE", None)
    await watcher.load()
    assert dynamic.rates == {leader: 100, moves: 7}
    assert await alter(b, "1", (leader, SET, "50")) == ("NONE", None)
    await watcher.load()
    assert dynamic.rates == {leader: 50, moves: 7}
    assert await alter(b, "1", (leader, DELETE, None)) == ("NONE", None)
    assert await alter(b, "", (leader, DELETE, None)) == ("NONE", None)
    await watcher.load()
    assert dynamic.rates == {moves: 7}
    assert changes[:2] == [(leader, moves), (leader,)]
    assert set(changes[2:]) == {(leader,)}


@in_broker()
async def test_unclean_election_by_default_is_followed(b: Any) -> None:
    changes: list[object] = []
    b.services.dynamic.on_change = changes.append
    name = "unclean.leader.election.enable"
    assert await alter(b, "", (name, SET, "true")) == ("NONE", None)
    await follower(b).load()
    assert b.services.config.unclean_leader_election_enable
    assert await alter(b, "", (name, DELETE, None)) == ("NONE", None)
    await follower(b).load()
    assert not b.services.config.unclean_leader_election_enable
    assert changes == [(name,), (name,)]


@in_broker()
async def test_lists_are_appended_to(b: Any) -> None:
    assert await alter(b, "1", ("log.cleanup.policy", APPEND, "compact")) == ("NONE", None)
    await follower(b).load()
    assert b.services.config.log_cleanup_policy == "delete,compact"


@in_broker()
async def test_levels_of_loggers(b: Any) -> None:
    told = []
    b.services.levels_changed.append(lambda: told.append(1))
    logger = logging.getLogger("kafka.request.logger")
    logger.setLevel(logging.WARNING)
    try:
        levels = await described(b, "1", "kafka.request.logger", kind=LOGGER)
        assert levels == {"kafka.request.logger": ("WARN", 6, False, [])}
        on = ("kafka.request.logger", SET, "DEBUG")
        assert await alter(b, "1", on, kind=LOGGER) == ("NONE", None)
        assert logger.isEnabledFor(logging.DEBUG)
        assert told == [1]
        bad = ("kafka.request.logger", SET, "LOUD")
        assert (await alter(b, "1", bad, kind=LOGGER))[0] == "INVALID_CONFIG"
        unknown = ("no.such.logger.anywhere", SET, "INFO")
        assert (await alter(b, "1", unknown, kind=LOGGER))[0] == "INVALID_CONFIG"
        assert (await alter(b, "1", ("root", DELETE, None), kind=LOGGER))[0] == "INVALID_REQUEST"
    finally:
        logger.setLevel(logging.NOTSET)


@in_broker()
async def test_the_default_of_every_property_of_logs_changes_while_they_run(b: Any) -> None:
    """Each property of topics whose default a broker may change, except those of one broker."""
    wanted = {
        "log.cleaner.delete.retention.ms": ("7", "delete_retention_ms", 7),
        "log.cleaner.max.compaction.lag.ms": ("8", "max_compaction_lag_ms", 8),
        "log.cleaner.min.cleanable.ratio": ("0.25", "min_cleanable_dirty_ratio", 0.25),
        "log.cleaner.min.compaction.lag.ms": ("3", "min_compaction_lag_ms", 3),
        "log.cleanup.policy": ("compact", "cleanup_policy", "compact"),
        "compression.type": ("zstd", "compression_type", "zstd"),
        "compression.gzip.level": ("9", "gzip_level", 9),
        "compression.lz4.level": ("3", "lz4_level", 3),
        "compression.zstd.level": ("7", "zstd_level", 7),
        "log.message.timestamp.before.max.ms": ("11", "oldest_ms", 11),
        "log.message.timestamp.after.max.ms": ("12", "latest_ms", 12),
        "log.preallocate": ("true", "preallocate", True),
        "log.roll.jitter.ms": ("13", "segment_jitter_ms", 13),
        "log.roll.ms": ("1000", "segment_ms", 1000),
        "log.retention.ms": ("99", "retention_ms", 99),
        "log.segment.bytes": ("4096", "segment_bytes", 4096),
        "message.max.bytes": ("555", "max_message_bytes", 555),
    }

    for name, (value, attribute, becomes) in wanted.items():
        assert await alter(b, "", (name, SET, value)) == ("NONE", None), name
        await follower(b).load()
        b.services.logs.reconfigure()
        assert getattr(b.services.logs.default_config, attribute) == becomes, name


@in_broker()
async def test_what_is_not_built_is_kept_at_run_time_as_at_the_start(b: Any) -> None:
    kerberos, threads = "sasl.kerberos.min.time.before.relogin", "background.threads"
    watcher = follower(b)
    assert await alter(b, "1", (kerberos, SET, "58000")) == ("NONE", None)
    assert await alter(b, "", (threads, SET, "12")) == ("NONE", None)
    await watcher.load()
    assert await described(b, "1", kerberos) == {kerberos: ("58000", 2, False, [2, 5])}
    assert await described(b, "1", threads) == {threads: ("12", 3, False, [3, 5])}
    assert (await alter(b, "1", (kerberos, SET, "soon")))[0] == "INVALID_REQUEST"
    assert (await alter(b, "", (kerberos, SET, "1")))[0] == "INVALID_REQUEST"
    assert (await alter(b, "1", ("ssl.protocol", SET, "TLSv1.2")))[0] == "INVALID_REQUEST"


@in_broker(originals={"log.retention.hours": "7"})
async def test_synonyms_are_of_other_units_too(b: Any) -> None:
    name, hours = "log.retention.ms", "log.retention.hours"
    assert await alter(b, "1", (name, SET, "9000")) == ("NONE", None)
    await follower(b).load()
    assert await described(b, "1", name) == {name: ("9000", 2, False, [2, 4, 5])}
    assert (await described(b, "1", hours))[hours][3] == [4, 5]


@in_broker(originals={"listener.name.plaintext.max.connections": "7"})
async def test_a_listeners_own_limit_of_connections_follows_while_the_broker_runs(b: Any) -> None:
    name = "listener.name.plaintext.max.connections"
    seen: list[Mapping[str, str]] = []
    b.services.dynamic.limits = seen.append
    watcher = follower(b)
    assert await alter(b, "1", (name, SET, "9")) == ("NONE", None)
    await watcher.load()
    assert await described(b, "1", name) == {name: ("9", 2, False, [2, 4, 5])}
    assert (await alter(b, "", (name, SET, "9")))[0] == "INVALID_REQUEST"
    await alter(b, "1", (name, DELETE, None))
    await watcher.load()
    assert seen == [{name: "9"}, {}]
    assert await described(b, "1", name) == {name: ("7", 4, False, [4, 5])}
