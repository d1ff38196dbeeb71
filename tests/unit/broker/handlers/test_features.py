"""ApiVersions' features, and UpdateFeatures."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from highwater.broker.admin import feature_updates
from highwater.broker.admin.feature_updates import Update, checked
from highwater.broker.handlers import api_versions, consumer_group_heartbeat, update_features
from highwater.broker.metadata.metadata_cache import MetadataCache
from highwater.kafka import znodes
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.features import GROUP_VERSION, KAFKAS, SUPPORTED, TOPIC_IDS
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.types import BrokerId
from highwater.kafka.wire.messages import ApiVersionsRequest, UpdateFeaturesRequest
from highwater.world.api import NoNode
from tests.unit.broker.handlers.conftest import in_broker

UP, SAFE, UNSAFE = 1, 2, 3
INVALID = ErrorCode.INVALID_UPDATE_VERSION


async def offered(b: Any, version: int) -> Any:
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    return await b.ask(api_versions, version, request)


async def update(
    b: Any, feature: str, level: int, kind: int = UP, *, version: int = 2, validate: bool = False
) -> Any:
    entry = UpdateFeaturesRequest.FeatureUpdateKey(
        feature=feature, max_version_level=level, upgrade_type=kind, allow_downgrade=True
    )
    request = UpdateFeaturesRequest(
        timeout_ms=1000, feature_updates=[entry], validate_only=validate
    )
    return await b.ask(update_features, version, request)


async def limits(b: Any) -> dict[str, int]:
    return znodes.decode_feature_limits((await b.zk.get(znodes.FEATURE_LIMITS))[0])


async def register(b: Any, broker: int, **announced: int) -> None:
    data = znodes.encode_broker(
        [], None, 0, features={k.replace("_", "."): v for k, v in announced.items()}
    )
    await b.zk.create(znodes.broker_path(broker), data)


@in_broker()
async def test_api_versions_names_features_with_their_epoch(b: Any) -> None:
    before = await offered(b, 4)
    assert (before.finalized_features, before.finalized_features_epoch) == ([], -1)
    await b.update_metadata({}, features={GROUP_VERSION: 1, TOPIC_IDS: 1}, features_epoch=7)
    for version in (3, 4):
        answer = await offered(b, version)
        found = [
            (f.name, f.max_version_level, f.min_version_level) for f in answer.finalized_features
        ]
        assert found == [(GROUP_VERSION, 1, 1)], "our own are none of clients'"
        assert answer.finalized_features_epoch == 7
        supported = {f.name: (f.min_version, f.max_version) for f in answer.supported_features}
        assert supported == ({n: (0, m) for n, m in KAFKAS.items()} if version == 4 else {})
    await b.update_metadata({}, features={GROUP_VERSION: 1}, features_epoch=8)
    assert (await offered(b, 3)).finalized_features_epoch == 8, "no answer is kept too long"


@in_broker()
async def test_a_client_waits_until_the_broker_knows_the_levels(b: Any) -> None:
    """The Java client ends for good where the list lacks ConsumerGroupHeartbeat."""
    b.services.metadata = MetadataCache(BrokerId(1))
    answers: list[Any] = []

    async def ask() -> None:
        answers.append(await offered(b, 3))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        assert (await b.ask(api_versions, 0, ApiVersionsRequest())).error_code == 0, (
            "brokers ask so"
        )
        await trio.sleep(0.1)
        assert not answers
        await b.update_metadata({}, features={GROUP_VERSION: 1}, features_epoch=1)
    assert consumer_group_heartbeat.API.key in {entry.api_key for entry in answers[0].api_keys}


@in_broker()
async def test_without_a_controller_the_answer_comes_without_levels(b: Any) -> None:
    b.services.metadata = MetadataCache(BrokerId(1))
    began = trio.current_time()
    assert (await offered(b, 3)).finalized_features == []
    assert 4.9 < trio.current_time() - began < 5.1


@in_broker()
async def test_a_level_becomes_a_limit_beside_others(b: Any) -> None:
    await register(b, 1, group_version=1)
    await b.update_metadata({}, {1: None}, features={GROUP_VERSION: 1}, features_epoch=7)
    other = znodes.encode_feature_limits({"another": 3})
    await b.zk.set(znodes.FEATURE_LIMITS, other)
    for version in (0, 1, 2):
        assert (await update(b, GROUP_VERSION, 1, version=version)).error_code == 0
    assert await limits(b) == {GROUP_VERSION: 1, "another": 3}
    assert (await update(b, GROUP_VERSION, 0, SAFE, validate=True)).error_code == 0
    assert await limits(b) == {GROUP_VERSION: 1, "another": 3}, "only validated"


@in_broker()
async def test_what_is_refused_changes_nothing(b: Any) -> None:
    await register(b, 1, group_version=1)
    await b.update_metadata({}, {1: None}, features={GROUP_VERSION: 1}, features_epoch=7)
    for case in (("nope", 1, UP), (TOPIC_IDS, 0, SAFE), (GROUP_VERSION, 2, UP)):
        answer = await update(b, *case)
        assert answer.error_code == INVALID, case
        assert case[0] in answer.error_message
    assert (await update(b, GROUP_VERSION, 0, SAFE, version=0)).error_code == INVALID
    assert await limits(b) == {}


@in_broker()
async def test_a_level_that_a_registered_broker_lacks_is_refused(b: Any) -> None:
    await register(b, 1, group_version=1)
    await register(b, 2)
    answer = await update(b, GROUP_VERSION, 1)
    assert answer.error_code == INVALID
    assert "broker 2 supports it up to 0" in answer.error_message


@in_broker()
async def test_a_damaged_or_missing_znode_is_named(b: Any) -> None:
    await register(b, 1, group_version=1)
    await b.zk.set(znodes.FEATURE_LIMITS, b"{")
    answer = await update(b, GROUP_VERSION, 1)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert znodes.FEATURE_LIMITS in answer.error_message
    await b.zk.delete(znodes.FEATURE_LIMITS)
    assert znodes.FEATURE_LIMITS in (await update(b, GROUP_VERSION, 1)).error_message
    with pytest.raises(NoNode):
        await b.zk.get(znodes.FEATURE_LIMITS)


@pytest.mark.parametrize(
    ("updates", "levels"),
    [
        ([], {}),
        ([Update(GROUP_VERSION, 1, UP)], {GROUP_VERSION: 1}),
        ([Update(GROUP_VERSION, 0, SAFE)], {GROUP_VERSION: 0}),
        ([Update(GROUP_VERSION, 0, UNSAFE)], {GROUP_VERSION: 0}),
        ([Update(GROUP_VERSION, 1, SAFE)], {GROUP_VERSION: 1}),
        ([Update(GROUP_VERSION, 0, SAFE), Update(GROUP_VERSION, 1, UP)], {GROUP_VERSION: 1}),
        ([Update(GROUP_VERSION, 0, SAFE), Update(GROUP_VERSION, 1, SAFE)], None),
        ([Update(GROUP_VERSION, 0, UP)], None),
        ([Update(GROUP_VERSION, 1, 9)], None),
        ([Update(GROUP_VERSION, -1, UNSAFE)], None),
        ([Update(GROUP_VERSION, 1, UP), Update("nope", 1, UP)], None),
    ],
)
def test_updates_are_checked_one_after_the_other(
    updates: list[Update], levels: dict[str, int] | None
) -> None:
    used = {GROUP_VERSION: 1}
    if levels is None:
        with pytest.raises(ApiError) as raised:
            checked(updates, used)
        assert raised.value.code is INVALID
    else:
        assert checked(updates, used) == levels


def test_only_who_may_alter_the_cluster_changes_features() -> None:
    (need,) = update_features.API.access.whole
    (wanted,) = need(None, None)
    assert (wanted.operation, wanted.type) == (Operation.ALTER, ResourceType.CLUSTER)


def test_upgrade_types_are_kafkas() -> None:
    assert [t.value for t in feature_updates.UpgradeType] == [UP, SAFE, UNSAFE]
    assert all(level > 0 for level in SUPPORTED.values())
