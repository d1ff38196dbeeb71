"""DescribeClientQuotas and AlterClientQuotas, and the quota on controller mutations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from highwater.broker.handlers import (
    alter_client_quotas,
    create_partitions,
    create_topics,
    delete_topics,
    describe_client_quotas,
)
from highwater.broker.quota.entities import DEFAULT, Entity
from highwater.broker.settings.config_changes import DynamicConfigWatcher, TopicConfigs
from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire.messages import (
    AlterClientQuotasRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeClientQuotasRequest,
)
from tests.unit.broker.handlers.conftest import in_broker

_Entry = AlterClientQuotasRequest.EntryData


async def alter(
    b: Any, entity: Mapping[str, str | None], validate_only: bool = False, **quotas: float | None
) -> str:
    entry = _Entry(
        entity=[_Entry.EntityData(entity_type=k, entity_name=n) for k, n in entity.items()],
        ops=[
            _Entry.OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in quotas.items()
        ],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)
    answer = await b.ask(alter_client_quotas, 1, request)
    return ErrorCode(answer.entries[0].error_code).name


async def described(b: Any, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    component = DescribeClientQuotasRequest.ComponentData
    request = DescribeClientQuotasRequest(
        components=[component(entity_type=t, match_type=m, match=n) for t, m, n in components],
        strict=strict,
    )
    answer = await b.ask(describe_client_quotas, 1, request)
    if answer.error_code:
        return ErrorCode(answer.error_code).name
    return {
        tuple((e.entity_type, e.entity_name) for e in entry.entity): {
            v.key: v.value for v in entry.values
        }
        for entry in answer.entries
    }


@in_broker()
async def test_quotas_are_set_described_and_taken_away(b: Any) -> None:
    alice, both = {"user": "alice/x"}, {"user": "alice/x", "client-id": "c 1"}
    assert await alter(b, alice, producer_byte_rate=1000, request_percentage=12.5) == "NONE"
    assert await alter(b, both, consumer_byte_rate=5) == "NONE"
    assert await alter(b, {"user": None}, consumer_byte_rate=7) == "NONE"
    assert await alter(b, {"client-id": "c"}, controller_mutation_rate=0.5) == "NONE"
    assert await alter(b, {"ip": "10.0.0.1"}, connection_creation_rate=9) == "NONE"
    a, ab = (("user", "alice/x"),), (("client-id", "c 1"), ("user", "alice/x"))
    everything = await described(b)
    assert everything == {
        a: {"producer_byte_rate": 1000, "request_percentage": 12.5},
        ab: {"consumer_byte_rate": 5},
        (("user", None),): {"consumer_byte_rate": 7},
        (("client-id", "c"),): {"controller_mutation_rate": 0.5},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 9},
    }
    assert set(await described(b, ("user", 0, "alice/x"))) == {a, ab}
    assert set(await described(b, ("user", 0, "alice/x"), strict=True)) == {a}
    assert set(await described(b, ("user", 1, None))) == {(("user", None),)}
    assert set(await described(b, ("user", 2, None), ("client-id", 2, None))) == {ab}
    assert set(await described(b, ("ip", 2, None))) == {(("ip", "10.0.0.1"),)}
    assert await alter(b, alice, producer_byte_rate=None) == "NONE"
    assert (await described(b))[a] == {"request_percentage": 12.5}
    assert await b.zk.children("/config/users/alice%2Fx/clients") == ["c%201"]


@in_broker()
async def test_what_is_no_quota_is_refused_and_changes_nothing(b: Any) -> None:
    user: dict[str, str | None] = {"user": "u"}
    assert await alter(b, user, producer_byte_rate=1.5) == "INVALID_REQUEST"
    assert await alter(b, user, bytes=1) == "INVALID_REQUEST"
    assert await alter(b, user, connection_creation_rate=1) == "INVALID_REQUEST"
    assert await alter(b, {"ip": "nowhere"}, connection_creation_rate=1) == "INVALID_REQUEST"
    assert await alter(b, {"ip": "::1", "user": "u"}) == "INVALID_REQUEST"
    assert await alter(b, {"group": "u"}) == "INVALID_REQUEST"
    assert await alter(b, {}) == "INVALID_REQUEST"
    assert await alter(b, user, validate_only=True, producer_byte_rate=1) == "NONE"
    assert await described(b) == {}
    assert await described(b, ("user", 2, None), ("user", 2, None)) == "INVALID_REQUEST"
    assert await described(b, ("user", 2, None), ("ip", 2, None)) == "INVALID_REQUEST"
    assert await described(b, ("group", 2, None)) == "UNSUPPORTED_VERSION"


@in_broker()
async def test_every_broker_follows(b: Any) -> None:
    seen: dict[str, dict[str, str]] = {}
    watcher = DynamicConfigWatcher(
        b.zk,
        TopicConfigs(lambda topic, config: None),
        lambda path, config: seen.update({path: dict(config)}),
    )
    await alter(b, {"user": "u", "client-id": None}, producer_byte_rate=10)
    await watcher.load()
    assert seen == {"users/u": {}, f"users/u/clients/{DEFAULT}": {"producer_byte_rate": "10"}}
    await alter(b, {"user": "u"}, request_percentage=1)
    await watcher.changes._execute(await watcher.changes._names(watched=False))
    assert seen["users/u"] == {"request_percentage": "1.0"}


def topics(*partitions: int) -> CreateTopicsRequest:
    new = CreateTopicsRequest.CreatableTopic
    return CreateTopicsRequest(
        topics=[
            new(name=f"t{i}", num_partitions=n, replication_factor=1, assignments=[], configs=[])
            for i, n in enumerate(partitions)
        ],
        timeout_ms=0,
    )


@in_broker()
async def test_controller_mutations_have_a_quota(b: Any) -> None:
    quotas = b.services.quotas
    quotas.configured(Entity("ANONYMOUS", None), {"controller_mutation_rate": "1"})
    answer = await b.ask(create_topics, 6, topics(15, 1))
    assert [ErrorCode(t.error_code).name for t in answer.topics] == [
        "REQUEST_TIMED_OUT", "THROTTLING_QUOTA_EXCEEDED",
    ]  # fmt: skip
    assert 3900 < answer.throttle_time_ms <= 4000, "15 of a burst of 11"
    assert await b.stored_topic("t1") is None
    await b.update_metadata({"t0": dict.fromkeys(range(15), 1)})
    answer = await b.ask(delete_topics, 5, DeleteTopicsRequest(topic_names=["t0"]))
    assert ErrorCode(answer.responses[0].error_code).name == "THROTTLING_QUOTA_EXCEEDED"
    grow = CreatePartitionsRequest.CreatePartitionsTopic(name="t0", count=17, assignments=None)
    request = CreatePartitionsRequest(topics=[grow], timeout_ms=0, validate_only=False)
    answer = await b.ask(create_partitions, 3, request)
    assert ErrorCode(answer.results[0].error_code).name == "THROTTLING_QUOTA_EXCEEDED"
    answer = await b.ask(create_partitions, 2, request)  # permissive: done, and throttled
    assert ErrorCode(answer.results[0].error_code).name == "REQUEST_TIMED_OUT"
    assert 5900 < answer.throttle_time_ms <= 6000
    assert len(await b.stored_topic("t0")) == 17
