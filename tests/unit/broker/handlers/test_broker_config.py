"""Dynamic broker configuration and the levels of loggers, through the handlers and the watcher."""

from __future__ import annotations

import logging
from typing import Any

from broker.admin.broker_config import DYNAMIC
from broker.admin.dynamic_config import DynamicConfigWatcher, TopicConfigs
from broker.handlers import describe_configs, incremental_alter_configs
from highwater.common.config_checks import known_properties
from highwater.common.errors import ErrorCode
from highwater.common.wire.messages import DescribeConfigsRequest, IncrementalAlterConfigsRequest

BROKER, LOGGER = 4, 8
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
    """What the broker's own watcher does."""

    def apply(path: str, config: Any) -> None:
        kind, _, name = path.partition("/")
        if kind == "brokers":
            b.services.dynamic.configured(name, config)

    return DynamicConfigWatcher(b.zk, TopicConfigs(lambda topic, config: None), apply)


def test_the_brokers_value_wins_over_the_default_and_both_can_be_taken_back(in_broker: Any) -> None:
    async def body(b: Any) -> None:
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

    in_broker(body, num_io_threads=9, originals={"num.io.threads": "9"})


def test_what_cannot_be_set_is_refused_with_one_line(in_broker: Any) -> None:
    async def body(b: Any) -> None:
        for name, value, complaint in (
            ("broker.id", "2", "cannot be changed while a broker runs"),
            ("no.such", "2", "is no property"),
            ("authorizer.class.name", "A", "cannot be set: authorization is not built yet"),
            ("listener.name.x.ssl.key.password", "hunter2", "cannot be set: TLS is not built yet"),
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

    in_broker(body)


def test_the_rates_of_throttles_have_no_place_but_here(in_broker: Any) -> None:
    async def body(b: Any) -> None:
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

    in_broker(body)


def test_unclean_election_by_default_is_followed(in_broker: Any) -> None:
    async def body(b: Any) -> None:
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

    in_broker(body)


def test_lists_are_appended_to(in_broker: Any) -> None:
    async def body(b: Any) -> None:
        assert await alter(b, "1", ("log.cleanup.policy", APPEND, "compact")) == ("NONE", None)
        await follower(b).load()
        assert b.services.config.log_cleanup_policy == "delete,compact"

    in_broker(body)


def test_everything_listed_as_dynamic_is_a_property() -> None:
    assert set(DYNAMIC) <= set(known_properties())


def test_levels_of_loggers(in_broker: Any) -> None:
    async def body(b: Any) -> None:
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
            assert (await alter(b, "1", ("root", DELETE, None), kind=LOGGER))[
                0
            ] == "INVALID_REQUEST"
        finally:
            logger.setLevel(logging.NOTSET)

    in_broker(body)
