"""Changes of features' levels: which are allowed, and how they are written.

`checked` is Kafka's check, feature by feature.  The limits go into one znode, which the controller
watches (`controller/rules/feature_levels.py`).  Every registered broker must support a level that
a feature is raised to.

Source: org.apache.kafka.controller.FeatureControlManager (KIP-584, KIP-778).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import IntEnum
from typing import NamedTuple

from highwater.broker.settings.zookeeper_errors import zookeeper_errors
from highwater.kafka import znodes
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.features import KAFKAS
from highwater.kafka.types import BrokerEpoch, BrokerId, BrokerInfo
from highwater.kafka.znode_fields import is_id
from highwater.world.api import BadVersion, NoNode, ZooKeeper


class UpgradeType(IntEnum):
    """FeatureUpdate.UpgradeType."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class Update(NamedTuple):
    feature: str
    level: int
    upgrade_type: int


def checked(updates: Iterable[Update], used: Mapping[str, int]) -> dict[str, int]:
    """The levels to be set; `used` has the levels in use.

    Raises ApiError(INVALID_UPDATE_VERSION), which says for which feature and why.
    """
    levels: dict[str, int] = {}
    for feature, level, kind in updates:
        most, now = KAFKAS.get(feature), levels.get(feature, used.get(feature, 0))
        if kind not in tuple(UpgradeType):
            raise invalid(feature, level, f"there is no upgrade type {kind}")
        if most is None:
            raise invalid(feature, level, "no broker supports this feature")
        if not 0 <= level <= most:
            raise invalid(feature, level, f"the levels are 0 to {most}")
        if level < now and kind == UpgradeType.UPGRADE:
            raise invalid(feature, level, f"its level is {now}, and a downgrade was not asked for")
        if level > now and kind != UpgradeType.UPGRADE:
            raise invalid(feature, level, f"its level is {now}, so this is no downgrade")
        levels[feature] = level
    return levels


def invalid(feature: str, level: int, reason: str) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_UPDATE_VERSION, f"{feature} cannot have the level {level}: {reason}"
    )


async def check_registered(zk: ZooKeeper, levels: Mapping[str, int]) -> None:
    """Raises ApiError if a registered broker does not support one of the levels."""
    with zookeeper_errors():
        for broker in await _registered(zk):
            for feature, level in levels.items():
                if broker.level(feature) < level:
                    reason = f"broker {broker.id} supports it up to {broker.level(feature)}"
                    raise invalid(feature, level, reason)


async def _registered(zk: ZooKeeper) -> list[BrokerInfo]:
    found = []
    for name in sorted(filter(is_id, await zk.children(znodes.BROKER_IDS))):
        broker = BrokerId(int(name))
        with suppress(NoNode):  # it has just gone
            data, stat = await zk.get(znodes.broker_path(broker))
            found.append(znodes.decode_broker(broker, data, BrokerEpoch(stat.czxid)))
    return found


async def write(zk: ZooKeeper, levels: Mapping[str, int]) -> None:
    """Writes the levels as limits; those of other features stay.  Raises ApiError."""
    with zookeeper_errors():
        while True:
            try:
                data, stat = await zk.get(znodes.FEATURE_LIMITS)
                limits = znodes.decode_feature_limits(data) | dict(levels)
                new = znodes.encode_feature_limits(limits)
                await zk.set(znodes.FEATURE_LIMITS, new, stat.version)
            except BadVersion:
                continue  # another broker has just written it
            except NoNode as e:
                detail = f"{znodes.FEATURE_LIMITS} does not exist: a broker's start creates it"
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, detail) from e
            return
