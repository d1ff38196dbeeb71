"""Properties of single groups: described, changed, and used by the group's members."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from highwater.broker.admin import configs
from highwater.broker.handlers import alter_configs, describe_configs, incremental_alter_configs
from highwater.broker.settings.config_changes import DynamicConfigWatcher, TopicConfigs
from highwater.kafka import znodes
from highwater.kafka.errors import ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.wire.messages import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from tests.running import running_in
from tests.unit.broker.handlers.test_consumer_groups import Consumers, run

GROUP = 32
SESSION, BEATS = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
SHARE = "share."
RESET, ISOLATION = SHARE + "auto.offset.reset", SHARE + "isolation.level"
SET, DELETE, APPEND = 0, 1, 2
Shown = dict[str, tuple[str, int]]


class Configured(Consumers):
    async def shows(self, group: str = "g", version: int = 4) -> Shown | str:
        """By property, the value and its source, or an error."""
        cls = DescribeConfigsRequest.DescribeConfigsResource
        resource = cls(resource_type=GROUP, resource_name=group, configuration_keys=None)
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        (result,) = (await self.b.ask(describe_configs, version, request)).results
        if result.error_code:
            return ErrorCode(result.error_code).name
        return {c.name: (c.value, c.config_source) for c in result.configs}

    async def sets(
        self, *changes: tuple[str, int, str | None], group: str = "g", **more: Any
    ) -> str:
        cls = IncrementalAlterConfigsRequest.AlterConfigsResource
        given = [
            cls.AlterableConfig(name=name, config_operation=operation, value=value)
            for name, operation, value in changes
        ]
        resource = cls(resource_type=GROUP, resource_name=group, configs=given)
        request = IncrementalAlterConfigsRequest(
            resources=[resource], **{"validate_only": False, **more}
        )
        (result,) = (await self.b.ask(incremental_alter_configs, 1, request)).responses
        return ErrorCode(result.error_code).name


in_configured = running_in(
    lambda body, **config: run(lambda node: body(Configured(node.b)), **config)
)
DEFAULTS: Shown = {
    SESSION: ("45000", 5), BEATS: ("5000", 5),
    SHARE + "session.timeout.ms": ("45000", 5), SHARE + "heartbeat.interval.ms": ("5000", 5),
    SHARE + "record.lock.duration.ms": ("30000", 5), RESET: ("latest", 5),
    ISOLATION: ("read_uncommitted", 5),
}  # fmt: skip


@pytest.mark.parametrize("version", range(5))
@in_configured()
async def test_a_group_shows_its_own_and_the_brokers_values(node: Configured, version: int) -> None:
    found = await node.shows(version=version)
    assert isinstance(found, dict)
    assert {name: value for name, (value, _) in found.items()} == {
        name: value for name, (value, _) in DEFAULTS.items()
    }
    if version < 1:
        return
    assert found == DEFAULTS
    assert await node.sets((SESSION, SET, "50000")) == "NONE"
    assert await node.shows(version=version) == DEFAULTS | {SESSION: ("50000", 8)}
    assert await node.shows("another", version) == DEFAULTS
    assert await node.sets((SESSION, DELETE, None)) == "NONE"
    assert await node.shows(version=version) == DEFAULTS


@in_configured(
    group_consumer_session_timeout_ms=50_000,
    originals={"group.consumer.session.timeout.ms": "50000"},
)
async def test_what_the_broker_is_given_is_a_default(node: Configured) -> None:
    found = await node.shows()
    assert isinstance(found, dict)
    assert found[SESSION] == ("50000", 5)


@in_configured()
async def test_values_lie_within_the_brokers_bounds(node: Configured) -> None:
    for name, value in (
        (SESSION, "44999"), (SESSION, "60001"), (BEATS, "4999"), (BEATS, "15001"), (SESSION, "x"),
        (SESSION, ""), ("session.timeout.ms", "50000"),
    ):  # fmt: skip
        assert await node.sets((name, SET, value)) == "INVALID_CONFIG", (name, value)
    assert await node.sets((SESSION, APPEND, "50000")) == "INVALID_CONFIG"
    assert await node.sets((SESSION, SET, None)) == "INVALID_REQUEST"
    assert await node.sets((SESSION, 9, "50000")) == "INVALID_REQUEST"
    assert await node.sets((SESSION, SET, "50000"), (SESSION, SET, "50001")) == "INVALID_REQUEST"
    assert await node.sets((SESSION, SET, "50000"), group="") == "INVALID_REQUEST"
    assert await node.shows("") == "INVALID_REQUEST"
    assert await node.sets((SESSION, SET, "50000"), validate_only=True) == "NONE"
    assert await node.shows() == DEFAULTS


@in_configured()
async def test_a_share_groups_properties_have_kafkas_values(node: Configured) -> None:
    for name, value in (
        (SHARE + "session.timeout.ms", "44999"), (SHARE + "heartbeat.interval.ms", "15001"),
        (SHARE + "record.lock.duration.ms", "14999"), (SHARE + "record.lock.duration.ms", "60001"),
        (RESET, "none"), (RESET, "by_duration:"), (RESET, "by_duration:-PT1H"),
        (ISOLATION, "serializable"), (ISOLATION, "READ_COMMITTED"), (SHARE + "x", "1"),
    ):  # fmt: skip
        assert await node.sets((name, SET, value)) == "INVALID_CONFIG", (name, value)
    given = {
        RESET: "by_duration:PT1H", ISOLATION: "read_committed",
        SHARE + "record.lock.duration.ms": "60000", SHARE + "session.timeout.ms": "46000",
    }  # fmt: skip
    assert await node.sets(*((name, SET, value) for name, value in given.items())) == "NONE"
    assert await node.shows() == DEFAULTS | {name: (value, 8) for name, value in given.items()}


@in_configured(
    group_consumer_min_session_timeout_ms=5000, group_consumer_max_heartbeat_interval_ms=50_000
)
async def test_heartbeats_come_within_a_session(node: Configured) -> None:
    assert await node.sets((SESSION, SET, "5000")) == "INVALID_CONFIG", "as often as sessions end"
    assert await node.sets((SESSION, SET, "5001")) == "NONE"
    assert await node.sets((BEATS, SET, "5001")) == "INVALID_CONFIG"


@in_configured()
async def test_a_groups_own_times_are_used_from_the_next_heartbeat_on(node: Configured) -> None:
    await node.leads()
    watcher = DynamicConfigWatcher(
        node.b.zk, TopicConfigs(lambda *_: None),
        lambda path, found: node.b.services.groups.configs.configured(
            path.removeprefix("groups/"), found
        ),
    )  # fmt: skip
    await watcher.load()
    assert await node.sets((SESSION, SET, "60000"), group="g") == "NONE"
    assert await node.sets((BEATS, SET, "9000"), group="odd name/%") == "NONE"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watcher.run)
        joined = await node.joins("a")
        assert joined.heartbeat_interval_ms == 5000
        await trio.sleep(1)
        assert node.b.services.groups.configs.of("odd name/%") == {BEATS: 9000}, "it was read"
        assert await node.code("a", 1) == "NONE"
        await trio.sleep(59)
        assert await node.code("a", 1) == "NONE", "the session is longer"
        assert await node.sets((BEATS, SET, "7000"), (SESSION, DELETE, None)) == "NONE"
        await trio.sleep(1)
        assert (await node.beat("a", 1)).heartbeat_interval_ms == 7000, "it is followed"
        await trio.sleep(46)
        assert await node.code("a", 1) == "UNKNOWN_MEMBER_ID"
        nursery.cancel_scope.cancel()


@in_configured()
async def test_a_change_before_the_first_reading_is_not_the_last_one(node: Configured) -> None:
    """What changed while the broker had no session was not announced to it."""
    found = node.b.services.groups.configs
    found.configured("g", {BEATS: "9000"})
    assert await node.sets((BEATS, SET, "7000")) == "NONE"
    await found.load()
    assert found.of("g") == {BEATS: 7000}


@in_configured()
async def test_what_another_version_wrote_is_left_out(node: Configured) -> None:
    await node.b.zk.create(f"{znodes.CONFIG}/groups")
    wrong = znodes.encode_config({SESSION: "soon", BEATS: "9000", "share.x": "1"})
    await node.b.zk.create(f"{znodes.CONFIG}/groups/g", wrong)
    await node.b.zk.create(f"{znodes.CONFIG}/groups/h", b"no JSON")
    await node.leads()
    await node.joins("a")
    await trio.sleep(1)
    assert node.b.services.groups.configs.of("g") == {BEATS: 9000}
    assert await node.sets(("share.x", DELETE, None), (SESSION, DELETE, None)) == "NONE"
    assert await node.shows() == DEFAULTS | {BEATS: ("9000", 8)}


@in_configured()
async def test_the_older_request_replaces_all(node: Configured) -> None:
    assert await node.sets((BEATS, SET, "9000")) == "NONE"
    cls = AlterConfigsRequest.AlterConfigsResource
    given = [cls.AlterableConfig(name=SESSION, value="50000")]
    resource = cls(resource_type=GROUP, resource_name="g", configs=given)
    request = AlterConfigsRequest(resources=[resource], validate_only=False)
    assert (await node.b.ask(alter_configs, 2, request)).responses[0].error_code == 0
    assert await node.shows() == DEFAULTS | {SESSION: ("50000", 8)}


def test_rights_are_those_on_the_group() -> None:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=GROUP, resource_name="g"
    )
    (need,) = configs.needs(Operation.DESCRIBE_CONFIGS)(resource, None)
    assert (need.operation, need.type, need.name) == (
        Operation.DESCRIBE_CONFIGS, ResourceType.GROUP, "g",
    )  # fmt: skip
