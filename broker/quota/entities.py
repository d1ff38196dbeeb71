"""Chooses the quota for a request: that of the most specific entity that has one.  Pure.

Quotas are set for users, for client ids, and for pairs of both, by name or by default.  For a
request the first of these that has the quota decides (KIP-55):

    user + client, user + any client, user,
    any user + client, any user + any client, any user,
    client, any client

All clients of a user share a quota that is set for the user alone; a default quota counts each name
separately.

Entities are stored under names that are safe in paths and in names of metrics, in Java's URL
encoding (`Sanitizer`); `<default>` is never the name of an entity.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from highwater.kafka.sanitizer import desanitize, sanitize

DEFAULT = "<default>"


class Quota(NamedTuple):
    """A bound and its owner; "" if all users, or all clients of a user, share it."""

    bound: float
    user: str
    client: str


class Entity(NamedTuple):
    """Has None for what the entity does not name, and DEFAULT for the default one."""

    user: str | None
    client: str | None


def entity_of_path(path: str) -> Entity | None:
    """The entity in a path after /config/: users/U, clients/C or users/U/clients/C; else None."""
    match path.split("/"):
        case ["users", user]:
            return Entity(_name(user), None)
        case ["clients", client]:
            return Entity(None, _name(client))
        case ["users", user, "clients", client]:
            return Entity(_name(user), _name(client))
    return None


def path_of_entity(entity: Entity) -> str:
    parts = []
    if entity.user is not None:
        parts += ["users", _stored(entity.user)]
    if entity.client is not None:
        parts += ["clients", _stored(entity.client)]
    return "/".join(parts)


def _name(stored: str) -> str:
    return stored if stored == DEFAULT else desanitize(stored)


def _stored(name: str) -> str:
    return name if name == DEFAULT else sanitize(name)


class QuotaTable:
    """One kind of quota, by entity."""

    def __init__(self) -> None:
        self._bounds: dict[Entity, float] = {}
        self._found: dict[tuple[str, str], Quota | None] = {}

    def __len__(self) -> int:
        return len(self._bounds)

    def set(self, entity: Entity, bound: float | None) -> None:
        self._found.clear()
        if bound is None:
            self._bounds.pop(entity, None)
        else:
            self._bounds[entity] = bound

    def find(self, user: str, client: str) -> Quota | None:
        """The quota in force for this user and client, if any."""
        key = (user, client)
        if key not in self._found:
            if len(self._found) >= 10_000:
                self._found.clear()  # client ids are chosen by clients
            self._found[key] = self._look_up(user, client)
        return self._found[key]

    def _look_up(self, user: str, client: str) -> Quota | None:
        for entity, owner in (
            (Entity(user, client), (user, client)),
            (Entity(user, DEFAULT), (user, client)),
            (Entity(user, None), (user, "")),
            (Entity(DEFAULT, client), (user, client)),
            (Entity(DEFAULT, DEFAULT), (user, client)),
            (Entity(DEFAULT, None), (user, "")),
            (Entity(None, client), ("", client)),
            (Entity(None, DEFAULT), ("", client)),
        ):
            bound = self._bounds.get(entity)
            if bound is not None:
                return Quota(bound, *owner)
        return None


def bound_of(name: str, config: Mapping[str, str]) -> float | None:
    """A quota's value in an entity's configuration; raises ValueError."""
    text = config.get(name)
    return None if text is None else float(text)
