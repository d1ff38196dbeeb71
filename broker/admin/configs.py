"""Describes and changes configuration, for DescribeConfigs, AlterConfigs and its incremental form.

A value has a source: set on the topic, set for this broker or for all while they run, given in this
broker's file, or a default.  It also has synonyms: the other places that would give it, in order of
precedence.  `dynamic_broker_config` says which properties of a broker can change while it runs;
`broker_loggers` has the levels of its loggers.

Source: kafka.server.ConfigHelper, kafka.server.ConfigAdminManager, kafka.server.ZkAdminManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from highwater.broker.admin.config_operations import Operation, apply_operations, joined
from highwater.broker.context import Need
from highwater.broker.membership.agreement import FOLLOWED, told_of
from highwater.broker.quota.listener_limits import limits_of
from highwater.broker.replica.throttles import RATES
from highwater.broker.settings import broker_loggers, group_configs
from highwater.broker.settings.client_quotas import read_entity, write_entity
from highwater.broker.settings.dynamic_broker_config import (
    DEFAULT,
    DynamicBrokerConfig,
    is_foreign,
    is_sensitive,
    of_listener_form,
    stores_of,
)
from highwater.broker.settings.zookeeper_errors import zookeeper_errors
from highwater.kafka import znodes
from highwater.kafka.config.property_row import Kind, text_of
from highwater.kafka.config.property_table import BROKER, DYNAMIC, INERT, KEPT, TOPIC
from highwater.kafka.config.topic_values import check_overrides, effective
from highwater.kafka.config.unserved import inert
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.sanitizer import sanitize
from highwater.kafka.security import acls
from highwater.kafka.topic_names import check_name
from highwater.world.api import BadVersion, NodeExists, NoNode, ZkError, ZooKeeper

if TYPE_CHECKING:
    from highwater.broker.services import Services
    from highwater.kafka.config import Config


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def needs(operation: acls.Operation) -> Callable[[Any, Any], Sequence[Need]]:
    """The operation that the resource needs: on the topic or group, or on the cluster."""

    def of_resource(resource: Any, _: Any) -> Sequence[Need]:
        if resource.resource_type == ResourceType.TOPIC:
            return (Need(operation, acls.ResourceType.TOPIC, resource.resource_name),)
        if resource.resource_type == ResourceType.GROUP:
            return (Need(operation, acls.ResourceType.GROUP, resource.resource_name),)
        return (Need(operation, acls.ResourceType.CLUSTER),)

    return of_resource


class Source(IntEnum):
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    GROUP_CONFIG = 8


_UNKNOWN = 0
"""The type of a property that is not in the table."""
NO_TEXT = ""
"""The documentation of a logger, whether or not it is asked for, as in Kafka."""
ANY_VERSION = -1


@dataclass(frozen=True, slots=True)
class Synonym:
    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class Entry:
    """One property, as DescribeConfigs answers it."""

    name: str
    value: str | None
    source: Source
    type: int
    read_only: bool
    sensitive: bool
    synonyms: tuple[Synonym, ...]
    documentation: str | None = None


def topic_entries(
    config: Config, overrides: Mapping[str, str], dynamic: DynamicBrokerConfig | None = None
) -> list[Entry]:
    """Every property of a topic with these overrides."""
    values = effective(config, overrides)
    entries = []
    for name, row in TOPIC.items():
        text = text_of(values[name])
        synonyms = broker_synonyms(config, row.synonyms, dynamic)
        if name in overrides:
            synonyms = [Synonym(name, text, Source.TOPIC_CONFIG), *synonyms]
        source = synonyms[0].source if synonyms else Source.DEFAULT_CONFIG
        entries.append(Entry(name, text, source, row.kind, False, False, tuple(synonyms), row.doc))
    return entries


def group_entries(config: Config, overrides: Mapping[str, str]) -> list[Entry]:
    """Every property of a group with these overrides.  What comes from the broker counts as a
    default, under the property's own name, as in Kafka."""
    values = group_configs.effective(config, overrides)
    entries = []
    for name, row in group_configs.GROUP.items():
        text = text_of(values[name])
        source = Source.GROUP_CONFIG if name in overrides else Source.DEFAULT_CONFIG
        synonyms = (Synonym(name, text, source),)
        entries.append(Entry(name, text, source, row.kind, False, False, synonyms, row.doc))
    return entries


def broker_synonyms(
    config: Config,
    names: Sequence[str],
    dynamic: DynamicBrokerConfig | None = None,
    name: str = "",
) -> list[Synonym]:
    """Dynamic values, given ones, then defaults, beginning with the first one under `name`, which
    is the foremost of the names if it is not given (Kafka cuts them there).
    """
    found = []
    if dynamic is not None:
        for values, source in (
            (dynamic.own, Source.DYNAMIC_BROKER_CONFIG),
            (dynamic.default, Source.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ):
            found += [
                Synonym(n, None if is_sensitive(n) else values[n], source)
                for n in names
                if n in values
            ]
    found += [
        Synonym(n, _text(config, n), Source.STATIC_BROKER_CONFIG)
        for n in names
        if n in config.originals
    ]
    found += [
        Synonym(n, text_of(BROKER[n].default), Source.DEFAULT_CONFIG)
        for n in names
        if (n in KEPT or n in INERT) and BROKER[n].default is not None
    ]
    while found and found[0].name != (name or names[0]):
        del found[0]
    return found


def _own_synonyms(config: Config, name: str, dynamic: DynamicBrokerConfig) -> tuple[Synonym, ...]:
    """Those of a broker's property: of a listener's own form, also the general one."""
    names = _TOGETHER.get(name, (name,))
    if (base := of_listener_form(name)) is not None:
        names = (name, base)
    return tuple(broker_synonyms(config, names, dynamic, name))


_TOGETHER = {
    name: row.synonyms for row in TOPIC.values() for name in row.synonyms if len(row.synonyms) > 1
}
"""Properties of brokers that say the same in other units, in order of precedence."""


def _text(config: Config, name: str) -> str | None:
    return None if is_sensitive(name) else config.originals[name]


def broker_entries(config: Config, dynamic: DynamicBrokerConfig) -> list[Entry]:
    """Every property of this broker, and last the given ones that Kafka does not know."""
    entries = []
    for name, row in KEPT.items():
        value = getattr(config, row.attribute)
        sensitive = is_sensitive(name)
        text = None if sensitive or value is None else text_of(value)
        synonyms = _own_synonyms(config, name, dynamic)
        source = synonyms[0].source if synonyms else Source.DEFAULT_CONFIG
        fixed = name not in DYNAMIC
        entries.append(Entry(name, text, source, row.kind, fixed, sensitive, synonyms, row.doc))
    for name in RATES:
        if synonyms := _own_synonyms(config, name, dynamic):
            value, source = synonyms[0].value, synonyms[0].source
            entries.append(Entry(name, value, source, Kind.LONG, True, False, synonyms))
    limits = limits_of({**config.originals, **dynamic.own})
    for name in sorted({*stores_of(dynamic.own), *limits}):
        synonyms = _own_synonyms(config, name, dynamic)
        value, source = synonyms[0].value, synonyms[0].source
        kind = Kind.INT if name in limits else Kind.STRING
        entries.append(Entry(name, value, source, kind, False, False, synonyms))
    for name in sorted({*dynamic.default, *dynamic.own}):
        synonyms, kept = _own_synonyms(config, name, dynamic), inert(name)
        if kept is not None and synonyms:
            value, source = synonyms[0].value, synonyms[0].source
            entries.append(Entry(name, value, source, kept.kind, False, False, synonyms))
    for name in sorted({*config.originals, *dynamic.default, *dynamic.own}):
        if is_foreign(name):
            synonyms = _own_synonyms(config, name, dynamic)
            entries.append(Entry(name, None, synonyms[0].source, _UNKNOWN, True, True, synonyms))
    return entries


def followed_entry(followed: Mapping[str, int]) -> Entry:
    source = Source.DEFAULT_CONFIG
    return Entry(FOLLOWED, told_of(followed), source, Kind.STRING, True, False, ())


async def describe(services: Services, kind: int, name: str) -> list[Entry]:
    """All properties of a resource; raises ApiError."""
    if kind == ResourceType.TOPIC:
        check_name(name)
        if not services.metadata.has_topic(name):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
        with zookeeper_errors():
            overrides = await services.topic_configs.look(services.zk, name)
        return topic_entries(services.config, overrides, services.dynamic)
    if kind == ResourceType.BROKER:
        if not name:
            return _default_entries(services.dynamic)
        check_broker(services, name)
        return broker_entries(services.config, services.dynamic)
    if kind == ResourceType.GROUP:
        _check_group(name)
        with zookeeper_errors():
            overrides = await read_entity(services.zk, group_configs.path_of(name))
        return group_entries(services.config, overrides)
    if kind == ResourceType.BROKER_LOGGER:
        check_broker(services, name)
        source, of_none = Source.DYNAMIC_BROKER_LOGGER_CONFIG, _UNKNOWN
        return [
            Entry(logger, level, source, of_none, False, False, (), NO_TEXT)
            for logger, level in broker_loggers.levels().items()
        ]
    detail = (
        f"resource type {kind} cannot be described; topics (2), brokers (4, 8) and groups (32) can"
    )
    raise ApiError(ErrorCode.INVALID_REQUEST, detail)


def _default_entries(dynamic: DynamicBrokerConfig) -> list[Entry]:
    """The values that are set for all brokers."""
    source, types = Source.DYNAMIC_DEFAULT_BROKER_CONFIG, dict.fromkeys(RATES, Kind.LONG)
    entries = []
    for name, given in sorted(dynamic.default.items()):
        row, sensitive = BROKER.get(name), is_sensitive(name)
        text = None if sensitive else given
        kind = types.get(name, _UNKNOWN) if row is None else row.kind
        synonyms, about = (Synonym(name, text, source),), (row.doc or None) if row else None
        fixed = name not in DYNAMIC and inert(name) is None
        entries.append(Entry(name, text, source, kind, fixed, sensitive, synonyms, about))
    return entries


def check_broker(services: Services, name: str) -> None:
    if not (name.removeprefix("-").isdecimal() and len(name) <= 11):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"a broker id is a number, not {name!r}")
    if int(name) != services.broker_id:
        detail = f"this is broker {services.broker_id}; ask broker {name} itself"
        raise ApiError(ErrorCode.INVALID_REQUEST, detail)


async def replace(
    services: Services, kind: int, name: str, configs: Mapping[str, str | None], validate_only: bool
) -> None:
    """AlterConfigs: sets the named properties; all others fall back.  Raises ApiError."""
    check_changeable(services, kind, name)
    overrides = {}
    for key, value in configs.items():
        if value is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{key} has no value (null)")
        overrides[key] = value
    if kind == ResourceType.BROKER:
        entity = name or DEFAULT
        services.dynamic.check(entity, overrides)
        if not validate_only:
            with zookeeper_errors():
                path = f"brokers/{entity}"
                _, version = await _read_versioned(services.zk, "brokers", entity)
                await write_entity(services.zk, path, overrides, version)
        return
    if kind == ResourceType.GROUP:
        group_configs.check(services.config, overrides)
        if not validate_only:
            with zookeeper_errors():
                _, version = await _read_versioned(services.zk, "groups", sanitize(name))
                path = group_configs.path_of(name)
                await write_entity(services.zk, path, overrides, version)
        return
    check_overrides(services.config, overrides)
    if not validate_only:
        with zookeeper_errors():
            await write_topic(services.zk, name, overrides, ANY_VERSION)
        await _go_by(services, name)


async def alter(
    services: Services,
    kind: int,
    name: str,
    operations: Sequence[tuple[str, int, str | None]],
    validate_only: bool,
) -> None:
    """IncrementalAlterConfigs of one resource: (property, operation, value).  Raises ApiError."""
    check_changeable(services, kind, name)
    keys = [key for key, _, _ in operations]
    repeated = sorted({key for key in keys if keys.count(key) > 1})
    if repeated:
        detail = f"{', '.join(repeated)} named more than once"
        raise ApiError(ErrorCode.INVALID_REQUEST, detail)
    if kind == ResourceType.BROKER_LOGGER:
        broker_loggers.alter(operations, validate_only)
        for tell in services.levels_changed:
            tell()
        return
    if kind == ResourceType.BROKER:
        await _alter_broker(services, name or DEFAULT, operations, validate_only)
        return
    if kind == ResourceType.GROUP:
        await _alter_group(services, name, operations, validate_only)
        return
    with zookeeper_errors():
        zk = services.zk
        while True:
            overrides, version = await _read_versioned(zk, "topics", name)
            defaults = effective(services.config, {})
            changed = apply_operations(TOPIC, "topics", defaults, overrides, operations)
            check_overrides(services.config, changed)
            if validate_only:
                return
            try:
                await write_topic(zk, name, changed, version)
            except (BadVersion, NodeExists, NoNode):
                continue  # another writer changed it meanwhile
            break
    await _go_by(services, name)


async def _go_by(services: Services, topic: str) -> None:
    """Applies the change on this broker at once; where that fails, its watch brings the change."""
    with suppress(ApiError, ZkError, ValueError):
        await services.topic_configs.look(services.zk, topic)


async def _alter_group(
    services: Services,
    name: str,
    operations: Sequence[tuple[str, int, str | None]],
    validate_only: bool,
) -> None:
    defaults = group_configs.defaults(services.config)
    with zookeeper_errors():
        while True:
            overrides, version = await _read_versioned(services.zk, "groups", sanitize(name))
            changed = apply_operations(
                group_configs.GROUP, "groups", defaults, overrides, operations
            )
            group_configs.check(services.config, changed)
            if validate_only or (version is None and not changed):
                return
            try:
                await write_entity(services.zk, group_configs.path_of(name), changed, version)
            except (BadVersion, NodeExists):
                continue  # another writer changed it meanwhile
            return


async def _alter_broker(
    services: Services,
    entity: str,
    operations: Sequence[tuple[str, int, str | None]],
    validate_only: bool,
) -> None:
    """Checks what is set.  Any name may be taken back (an older or newer Kafka may have set it)."""
    with zookeeper_errors():
        zk = services.zk
        while True:
            properties, version = await _read_versioned(zk, "brokers", entity)
            wanted = {}
            for key, operation, value in operations:
                if operation == Operation.DELETE:
                    properties.pop(key, None)
                    continue
                if value is None:
                    raise ApiError(ErrorCode.INVALID_REQUEST, f"{key} has no value (null)")
                if operation != Operation.SET:
                    value = _joined_list(services.config, key, operation, value, properties)
                wanted[key] = value
            services.dynamic.check(entity, wanted)
            if validate_only or (version is None and not wanted):
                return
            try:
                await write_entity(zk, f"brokers/{entity}", properties | wanted, version)
            except (BadVersion, NodeExists):
                continue  # another writer changed it meanwhile
            return


def _joined_list(
    config: Config, key: str, operation: int, value: str, properties: Mapping[str, str]
) -> str:
    row = KEPT.get(key)
    if row is None or row.kind is not Kind.LIST:
        detail = f"{key} is not a list: it cannot be appended to or subtracted from"
        raise ApiError(ErrorCode.INVALID_CONFIG, detail)
    current = properties.get(key) or text_of(getattr(config, row.attribute))
    return joined(current, operation, value)


def check_changeable(services: Services, kind: int, name: str) -> None:
    """Raises ApiError for a resource whose configuration cannot change."""
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        if name or kind == ResourceType.BROKER_LOGGER:
            check_broker(services, name)
        return
    if kind == ResourceType.GROUP:
        _check_group(name)
        return
    if kind != ResourceType.TOPIC:
        can = "topics (2), brokers (4, 8) and groups (32)"
        detail = f"resource type {kind} cannot be changed; {can} can"
        raise ApiError(ErrorCode.INVALID_REQUEST, detail)
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "topics have no default entity; name one")
    if not services.metadata.has_topic(name):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")


def _check_group(name: str) -> None:
    if not name:
        detail = "groups have no default entity, but the brokers' group.consumer.*; name one"
        raise ApiError(ErrorCode.INVALID_REQUEST, detail)


async def _read_versioned(zk: ZooKeeper, kind: str, name: str) -> tuple[dict[str, str], int | None]:
    try:
        data, stat = await zk.get(znodes.config_path(kind, name))
    except NoNode:
        return {}, None
    return znodes.decode_config(data), stat.version


async def write_topic(
    zk: ZooKeeper, topic: str, overrides: Mapping[str, str], version: int | None
) -> None:
    """Writes the overrides and tells all brokers.

    `version` conditions the write; None means that there was no znode.  Raises BadVersion, NoNode
    or NodeExists where another writer came first.
    """
    path, data = znodes.config_path("topics", topic), znodes.encode_config(overrides)
    if version is None:
        await zk.create(path, data)
    else:
        try:
            await zk.set(path, data, version)
        except NoNode:
            if version != ANY_VERSION:
                raise
            try:
                await zk.create(path, data)
            except NodeExists:
                await zk.set(path, data)
    notification = znodes.encode_config_change(f"topics/{topic}")
    await zk.create(znodes.CONFIG_CHANGE_PREFIX, notification, sequential=True)
