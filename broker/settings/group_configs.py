"""Properties of single groups: times of the consumer protocol, in place of the brokers' (KIP-848).

They are in /config/groups/G, whatever kind of group G is, and whether it exists or not; a change is
announced under /config/changes.  A broker reads them all when its first consumer group needs them,
and follows changes from its start.  A member learns of a change by its next heartbeat, which begins
its session again.

Source: org.apache.kafka.coordinator.group.GroupConfig, GroupConfigManager.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import trio

from highwater.broker.settings.client_quotas import entity_names, read_entity
from highwater.kafka.config.checks import ConfigError, parse_value
from highwater.kafka.config.property_row import Property
from highwater.kafka.config.property_table import BROKER
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.sanitizer import desanitize, sanitize
from highwater.world.api import ZkError

if TYPE_CHECKING:
    from highwater.kafka.config import Config
    from highwater.world.api import ZooKeeper

log = logging.getLogger(__name__)

SESSION_TIMEOUT, HEARTBEAT_INTERVAL = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
)
RETRY_S = 1.0
_BOUNDS = {
    SESSION_TIMEOUT: ("group.consumer.min.session.timeout.ms",
                      "group.consumer.max.session.timeout.ms"),
    HEARTBEAT_INTERVAL: ("group.consumer.min.heartbeat.interval.ms",
                         "group.consumer.max.heartbeat.interval.ms"),
}  # fmt: skip


def _row(name: str) -> Property:
    broker = f"group.{name}"
    return dataclasses.replace(
        BROKER[broker], name=name, doc=f"In place of {broker}: {_about(broker)}"
    )


def _about(broker: str) -> str:
    doc = BROKER[broker].doc
    return doc[:1].lower() + doc[1:]


GROUP: Final[Mapping[str, Property]] = {n: _row(n) for n in (SESSION_TIMEOUT, HEARTBEAT_INTERVAL)}
"""The properties of a group."""


def path_of(group_id: str) -> str:
    """A group's path below /config/."""
    return f"groups/{sanitize(group_id)}"


def defaults(config: Config) -> dict[str, int]:
    return {name: getattr(config, row.attribute) for name, row in GROUP.items()}


def effective(config: Config, overrides: Mapping[str, str]) -> dict[str, int]:
    """The values of a group's properties; overrides that cannot be read are left out."""
    return defaults(config) | _typed(overrides)


def check(config: Config, overrides: Mapping[str, str]) -> None:
    """Raises ApiError(INVALID_CONFIG) for an override that is invalid, alone or with the other."""
    for name, text in overrides.items():
        if name not in GROUP:
            raise _invalid(f"{name} is not a property of groups; choose of {', '.join(GROUP)}")
        try:
            value = parse_value(GROUP[name], text)
        except ConfigError as e:
            raise _invalid(str(e)) from e
        least, most = (getattr(config, BROKER[bound].attribute) for bound in _BOUNDS[name])
        if not least <= int(str(value)) <= most:
            low, high = _BOUNDS[name]
            raise _invalid(f"{name}={value}: not between {low}={least} and {high}={most}")
    values = effective(config, overrides)
    if values[HEARTBEAT_INTERVAL] >= values[SESSION_TIMEOUT]:
        session = f"{SESSION_TIMEOUT}={values[SESSION_TIMEOUT]}"
        raise _invalid(f"{HEARTBEAT_INTERVAL}={values[HEARTBEAT_INTERVAL]}: not below {session}")


def _typed(overrides: Mapping[str, str]) -> dict[str, int]:
    found = {}
    for name in GROUP:
        if name in overrides:
            try:
                found[name] = int(str(parse_value(GROUP[name], overrides[name])))
            except ConfigError as e:
                log.warning("a group's property is not understood: %s", e)
    return found


def _invalid(detail: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_CONFIG, detail)


class GroupConfigs:
    """The overrides of all groups, as this broker has read them."""

    def __init__(self) -> None:
        self._overrides: dict[str, dict[str, int]] = {}
        self.session: Callable[[], ZooKeeper | None] = lambda: None
        """Gives the broker's session, if it has one."""
        self.wanted = False
        """Whether a consumer group has needed them, so that they are read with each session."""
        self._announced: set[str] = set()

    def of(self, group_id: str) -> Mapping[str, int]:
        return self._overrides.get(group_id, {})

    def configured(self, stored_name: str, properties: Mapping[str, str]) -> None:
        """Takes a group's properties, which were read after a change."""
        self._announced.add(stored_name)
        self._set(stored_name, properties)

    def _set(self, stored_name: str, properties: Mapping[str, str]) -> None:
        values = _typed(properties)
        if values:
            self._overrides[desanitize(stored_name)] = values
        else:
            self._overrides.pop(desanitize(stored_name), None)

    async def load(self) -> None:
        """Reads the properties of all groups, but for those whose change came meanwhile."""
        while True:
            zk = self.session()
            try:
                if zk is not None:
                    for name in await entity_names(zk, "groups"):
                        properties = await _read(zk, name)
                        if name not in self._announced:
                            self._set(name, properties)
                    return
            except ZkError as e:
                log.info("properties of groups are not read yet: %s", e)
            await trio.sleep(RETRY_S)


async def _read(zk: ZooKeeper, name: str) -> dict[str, Any]:
    try:
        return dict(await read_entity(zk, f"groups/{name}"))
    except ValueError as e:
        log.warning("configuration of groups/%s is not understood: %s", name, e)
        return {}
