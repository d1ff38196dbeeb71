"""Properties of single groups: times of the consumer protocol (KIP-848), in place of the brokers';
and of share groups (KIP-932) those, and where and how their members read.

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
from typing import TYPE_CHECKING, Any, Final, cast

import trio

from highwater.broker.settings import share_offset_reset
from highwater.broker.settings.client_quotas import entity_names, read_entity
from highwater.kafka.config.checks import ConfigError, parse_value
from highwater.kafka.config.property_row import Kind, Property, Value
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
SHARE_SESSION_TIMEOUT, SHARE_HEARTBEAT_INTERVAL, SHARE_LOCK_DURATION = (
    "share.session.timeout.ms",
    "share.heartbeat.interval.ms",
    "share.record.lock.duration.ms",
)
SHARE_OFFSET_RESET, SHARE_ISOLATION_LEVEL = "share.auto.offset.reset", "share.isolation.level"
RETRY_S = 1.0
_TIMES: Final = (
    SESSION_TIMEOUT, HEARTBEAT_INTERVAL, SHARE_SESSION_TIMEOUT, SHARE_HEARTBEAT_INTERVAL,
    SHARE_LOCK_DURATION,
)  # fmt: skip
"""Those that have a property of brokers as their default, and two more as their bounds."""
_BEATS: Final = {
    HEARTBEAT_INTERVAL: SESSION_TIMEOUT,
    SHARE_HEARTBEAT_INTERVAL: SHARE_SESSION_TIMEOUT,
}
"""Intervals, and the times that must be longer."""


def _row(name: str) -> Property:
    broker = f"group.{name}"
    return dataclasses.replace(
        BROKER[broker], name=name, doc=f"In place of {broker}: {_about(broker)}"
    )


def _about(broker: str) -> str:
    doc = BROKER[broker].doc
    return doc[:1].lower() + doc[1:]


def _bounds(name: str) -> tuple[str, str]:
    """The properties of brokers between which a time lies."""
    kind, _, rest = name.partition(".")
    return f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"


_ISOLATION_LEVELS = ("read_committed", "read_uncommitted")


def _wrong_level(value: str) -> str | None:
    levels = ", ".join(_ISOLATION_LEVELS)
    return None if value in _ISOLATION_LEVELS else f"not one of its values; use one of {levels}"


_OWN: Final = (
    Property(
        name=SHARE_OFFSET_RESET,
        kind=Kind.STRING,
        default=share_offset_reset.LATEST,
        wrong=share_offset_reset.problem,
        doc="Where a share-partition begins that nobody has read yet: earliest, latest, or "
        "by_duration and an ISO 8601 duration.",
    ),
    Property(
        name=SHARE_ISOLATION_LEVEL,
        kind=Kind.STRING,
        default="read_uncommitted",
        wrong=_wrong_level,
        doc="Whether members of a share group get the records of open and aborted transactions.",
    ),
)
"""Those that no property of brokers stands in for."""
GROUP: Final[Mapping[str, Property]] = {row.name: row for row in (*map(_row, _TIMES), *_OWN)}
"""The properties of a group."""


def path_of(group_id: str) -> str:
    """A group's path below /config/."""
    return f"groups/{sanitize(group_id)}"


def defaults(config: Config) -> dict[str, Value]:
    return {
        name: getattr(config, row.attribute) if row.attribute else cast("Value", row.default)
        for name, row in GROUP.items()
    }


def effective(config: Config, overrides: Mapping[str, str]) -> dict[str, Value]:
    """The values of a group's properties; overrides that cannot be read are left out."""
    return defaults(config) | _typed(overrides)


def check(config: Config, overrides: Mapping[str, str]) -> None:
    """Raises ApiError(INVALID_CONFIG) for an override that is invalid, alone or with another."""
    for name, text in overrides.items():
        if name not in GROUP:
            raise _invalid(f"{name} is not a property of groups; choose of {', '.join(GROUP)}")
        try:
            value = parse_value(GROUP[name], text)
        except ConfigError as e:
            raise _invalid(str(e)) from e
        if name in _TIMES:
            low, high = _bounds(name)
            least, most = (getattr(config, BROKER[bound].attribute) for bound in (low, high))
            if not least <= int(str(value)) <= most:
                raise _invalid(f"{name}={value}: not between {low}={least} and {high}={most}")
    values = effective(config, overrides)
    for beat, session in _BEATS.items():
        if int(str(values[beat])) >= int(str(values[session])):
            raise _invalid(f"{beat}={values[beat]}: not below {session}={values[session]}")


def _typed(overrides: Mapping[str, str]) -> dict[str, Value]:
    found = {}
    for name, row in GROUP.items():
        if name in overrides:
            try:
                found[name] = parse_value(row, overrides[name])
            except ConfigError as e:
                log.warning("a group's property is not understood: %s", e)
    return found


def _invalid(detail: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_CONFIG, detail)


class GroupConfigs:
    """The overrides of all groups, as this broker has read them."""

    def __init__(self) -> None:
        self._overrides: dict[str, dict[str, Value]] = {}
        self.session: Callable[[], ZooKeeper | None] = lambda: None
        """Gives the broker's session, if it has one."""
        self.wanted = False
        """Whether a group has needed them, so that they are read with each session."""
        self.loaded = trio.Event()
        """Set when those of all groups have been read."""
        self._announced: set[str] = set()
        """The groups whose change has come since `load` began."""

    def of(self, group_id: str) -> Mapping[str, Value]:
        return self._overrides.get(group_id, {})

    def number(self, group_id: str, name: str, default: int) -> int:
        """The value of a time, or the broker's."""
        return int(str(self.of(group_id).get(name, default)))

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
            self._announced.clear()  # of what came before, a lost session may have missed more
            try:
                if zk is not None:
                    for name in await entity_names(zk, "groups"):
                        properties = await _read(zk, name)
                        if name not in self._announced:
                            self._set(name, properties)
                    self.loaded.set()
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
