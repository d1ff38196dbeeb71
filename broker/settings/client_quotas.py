"""Quotas in ZooKeeper: reads those that a filter asks for, and changes those of an entity.

An entity is a user, a client id, both, or an address; each by its name, or the default one without
a name.  Configurations are under /config/users, /config/clients and /config/ips; a change is
announced under /config/changes, and every broker reads the entity again.

Source: kafka.server.ZkAdminManager, kafka.server.DynamicConfig.
"""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from highwater.broker.quota.entities import DEFAULT
from highwater.broker.quota.quota_manager import CONNECTION_RATE, FETCH, MUTATION, PRODUCE, REQUEST
from highwater.broker.settings.zookeeper_errors import zookeeper_errors
from highwater.kafka import znodes
from highwater.kafka.config import INT_MAX, LONG_MAX
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.sanitizer import desanitize, sanitize
from highwater.world.api import BadVersion, NodeExists, NoNode

if TYPE_CHECKING:
    from highwater.world.api import ZooKeeper

USER, CLIENT, IP = "user", "client-id", "ip"
EXACT, NO_NAME, ANY = 0, 1, 2
_WHOLE = {PRODUCE: LONG_MAX, FETCH: LONG_MAX, CONNECTION_RATE: INT_MAX}
_KEYS = {
    USER: (PRODUCE, FETCH, REQUEST, MUTATION),
    CLIENT: (PRODUCE, FETCH, REQUEST, MUTATION),
    IP: (CONNECTION_RATE,),
}
_FOLDERS = {USER: "users", CLIENT: "clients", IP: "ips"}
_EPSILON = 1e-6

Named = Mapping[str, str | None]
"""An entity: a name for each of its types; None for the default one."""


class Component(NamedTuple):
    """One condition of a filter."""

    entity_type: str
    match_type: int
    match: str | None

    def holds(self, entity: Named) -> bool:
        if self.entity_type not in entity:
            return False
        name = entity[self.entity_type]
        if self.match_type == ANY:
            return True
        return name == (self.match if self.match_type == EXACT else None)


class Operation(NamedTuple):
    key: str
    value: float | None
    """None removes the quota."""


async def describe(
    zk: ZooKeeper, components: Sequence[Component], strict: bool
) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    """Entities that meet every condition, and their quotas; a strict filter excludes entities with
    types that it does not name.  Raises ApiError.
    """
    _check_filter(components)
    asked = [c.entity_type for c in components]
    found = []
    with zookeeper_errors():
        async for entity, config in _all(zk):
            if strict and any(kind not in asked for kind in entity):
                continue
            if all(c.holds(entity) for c in components):
                values = _quotas(entity, config)
                if values:
                    found.append((entity, values))
    return found


def _check_filter(components: Sequence[Component]) -> None:
    asked = [c.entity_type for c in components]
    for kind in asked:
        if kind not in _KEYS:
            detail = f"entity type {kind!r} is none of user, client-id, ip"
            code = ErrorCode.UNSUPPORTED_VERSION if kind else ErrorCode.INVALID_REQUEST
            raise ApiError(code, detail)
        if asked.count(kind) > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"two conditions on the {kind}")
    if IP in asked and len(asked) > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "an ip goes with neither user nor client-id")
    if any(c.match_type not in (EXACT, NO_NAME, ANY) for c in components):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a match type that is none of 0, 1, 2")


def _quotas(entity: Named, config: Mapping[str, str]) -> dict[str, float]:
    found = {}
    for key in next(_KEYS[kind] for kind in entity):
        try:
            found[key] = float(config[key])
        except (KeyError, ValueError):
            continue
    return found


async def _all(zk: ZooKeeper) -> AsyncIterator[tuple[dict[str, str | None], dict[str, str]]]:
    for kind, folder in _FOLDERS.items():
        for stored in await entity_names(zk, folder):
            name = _shown(stored)
            yield {kind: name}, await read_entity(zk, f"{folder}/{stored}")
            if kind == USER:
                for client in await entity_names(zk, f"users/{stored}/clients"):
                    path = f"users/{stored}/clients/{client}"
                    yield {USER: name, CLIENT: _shown(client)}, await read_entity(zk, path)


async def entity_names(zk: ZooKeeper, folder: str) -> list[str]:
    """The configured names in a folder of /config, as they are stored."""
    try:
        return sorted(await zk.children(f"{znodes.CONFIG}/{folder}"))
    except NoNode:
        return []


async def read_entity(zk: ZooKeeper, path: str) -> dict[str, str]:
    """The entity's configuration; empty if it has none."""
    try:
        data, _ = await zk.get(f"{znodes.CONFIG}/{path}")
    except NoNode:
        return {}
    return znodes.decode_config(data)


async def alter(
    zk: ZooKeeper, entity: Named, operations: Iterable[Operation], validate_only: bool
) -> None:
    """Changes one entity's quotas; raises ApiError."""
    path, keys = _path_and_keys(entity)
    changes = {op.key: _text(op, keys) for op in operations}
    with zookeeper_errors():
        while True:
            try:
                data, stat = await zk.get(f"{znodes.CONFIG}/{path}")
                config, version = znodes.decode_config(data), stat.version
            except NoNode:
                config, version = {}, None
            for key, value in changes.items():
                config.pop(key, None)
                if value is not None:
                    config[key] = value
            if validate_only:
                return
            try:
                await write_entity(zk, path, config, version)
            except (BadVersion, NodeExists):
                continue  # another writer changed it meanwhile
            return


async def write_entity(
    zk: ZooKeeper, path: str, config: Mapping[str, str], version: int | None
) -> None:
    """Writes the znode (a new one if there is no version), and announces the change."""
    data = znodes.encode_config(config)
    if version is not None:
        await zk.set(f"{znodes.CONFIG}/{path}", data, version)
    else:
        folder = znodes.CONFIG
        for part in path.split("/")[:-1]:
            folder += f"/{part}"
            if await zk.exists(folder) is None:
                try:
                    await zk.create(folder)
                except NodeExists:
                    pass
        await zk.create(f"{znodes.CONFIG}/{path}", data)
    change = znodes.encode_config_change(path)
    await zk.create(znodes.CONFIG_CHANGE_PREFIX, change, sequential=True)


def _path_and_keys(entity: Named) -> tuple[str, Sequence[str]]:
    kinds = list(entity)
    if not kinds or any(kind not in _KEYS for kind in kinds):
        raise ApiError(ErrorCode.INVALID_REQUEST, "an entity is of user, client-id and ip")
    if any(name == "" for name in entity.values()):
        raise ApiError(ErrorCode.INVALID_REQUEST, "an entity with an empty name")
    if IP in entity:
        if len(kinds) > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, "an ip goes with neither user nor client-id")
        _check_address(entity[IP])
    parts = [part for kind in _FOLDERS if kind in entity for part in _stored(kind, entity[kind])]
    return "/".join(parts), _KEYS[kinds[0]]


def _check_address(name: str | None) -> None:
    if name is not None:
        try:
            ipaddress.ip_address(name)
        except ValueError:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} is not an address") from None


def _stored(kind: str, name: str | None) -> tuple[str, str]:
    return _FOLDERS[kind], DEFAULT if name is None else sanitize(name)


def _shown(stored: str) -> str | None:
    return None if stored == DEFAULT else desanitize(stored)


def _text(operation: Operation, keys: Sequence[str]) -> str | None:
    key, value = operation
    if value is None:
        return None
    if key not in keys:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{key} is no quota of this kind of entity")
    if key not in _WHOLE:
        return repr(float(value))
    whole = int(value + _EPSILON)
    if abs(whole - value) > _EPSILON or not 0 <= whole <= _WHOLE[key]:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{key}={value:g} is not a whole number of it")
    return str(whole)
