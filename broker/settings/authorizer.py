"""The access rules in ZooKeeper: read at the start, followed by watch, changed by CreateAcls.

Rules with literal patterns are in /kafka-acl/TYPE/NAME, those with prefixed ones in
/kafka-acl-extended/prefixed.  A change is also announced by a sequential znode, which every broker
sees.  Each write depends on the version that was read, so that two brokers, one of them perhaps
Apache Kafka's, do not undo each other's changes.

Source: kafka.security.authorizer.AclAuthorizer, kafka.zk.ZkAclStore.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from highwater.broker.settings.config_changes import Changes
from highwater.broker.settings.zookeeper_errors import zookeeper_errors
from highwater.kafka import acl_znodes
from highwater.kafka.security.acls import Acls, Entry, Filter, PatternType, Resource, ResourceType
from highwater.world.api import BadVersion, NodeExists, NoNode, ZooKeeper

if TYPE_CHECKING:
    from highwater.kafka.config import Config

SUPER_USERS, OPEN_WITHOUT_RULES = "super.users", "allow.everyone.if.no.acl.found"
log = logging.getLogger(__name__)


def authorizer_of(config: Config) -> Acls | None:
    """The access rules; None without authorizer.class.name: then everything is allowed."""
    if not config.authorizer_class_name:
        return None
    names = config.originals.get(SUPER_USERS, "").split(";")
    return Acls(
        [name.strip() for name in names if name.strip()],
        open_without_rules=config.originals.get(OPEN_WITHOUT_RULES, "").strip().lower() == "true",
    )


class AclChanges:
    """Keeps `acls` equal to the rules in ZooKeeper, for one session."""

    def __init__(self, zk: ZooKeeper, acls: Acls) -> None:
        self._zk = zk
        self._acls = acls
        self.feeds = [
            Changes(zk, folder, "acl_changes_", self._changed) for folder in acl_znodes.ACL_CHANGES
        ]

    async def load(self) -> None:
        """Reads all rules.  Call it once a session, before serving."""
        for feed in self.feeds:
            await feed.skip_old()
        found = set()
        for pattern in PatternType.LITERAL, PatternType.PREFIXED:
            for kind in ResourceType:
                for name in await self._zk.children(acl_znodes.acl_folder(kind, pattern)):
                    found.add(Resource(kind, name, pattern))
        for resource in sorted(found | set(self._acls.resources())):
            await self._look(resource)

    async def _changed(self, data: bytes) -> None:
        await self._look(acl_znodes.decode_acl_change(data))

    async def _look(self, resource: Resource) -> None:
        try:
            entries, _ = await _read(self._zk, resource)
        except ValueError as e:
            log.warning("the access rules of %s are not understood, and stay: %s", resource, e)
            return
        self._acls.put(resource, entries)


async def _read(zk: ZooKeeper, resource: Resource) -> tuple[list[Entry], int | None]:
    """The entries, and the znode's version; None if there is no znode."""
    path = acl_znodes.acl_path(resource)
    try:
        data, stat = await zk.get(path)
    except NoNode:
        return [], None
    return acl_znodes.decode_acls(path, data), stat.version


async def add(zk: ZooKeeper, acls: Acls, resource: Resource, entries: Iterable[Entry]) -> None:
    """Adds rules to a resource; raises ApiError."""
    added = list(entries)
    await _change(zk, acls, resource, lambda known: [*known, *added])


async def remove(
    zk: ZooKeeper, acls: Acls, filters: Sequence[Filter]
) -> list[list[tuple[Resource, Entry]]]:
    """Removes rules; returns them by the first filter that matches each.  Raises ApiError."""
    removed: list[list[tuple[Resource, Entry]]] = [[] for _ in filters]
    named = [resource for asked in filters for resource in asked.named()]
    for resource in dict.fromkeys([*acls.resources(), *named]):
        meant = [(n, asked) for n, asked in enumerate(filters) if asked.takes(resource)]
        if not meant:
            continue
        gone: dict[Entry, int] = {}

        def rest(known: list[Entry], meant: list[tuple[int, Filter]] = meant) -> list[Entry]:
            gone.clear()  # noqa: B023
            for entry in known:
                first = next((n for n, asked in meant if asked.matches(entry)), None)
                if first is not None:
                    gone[entry] = first  # noqa: B023
            return [entry for entry in known if entry not in gone]  # noqa: B023

        await _change(zk, acls, resource, rest)
        for entry, n in gone.items():
            removed[n].append((resource, entry))
    return removed


async def _change(
    zk: ZooKeeper, acls: Acls, resource: Resource, change: Callable[[list[Entry]], list[Entry]]
) -> None:
    path = acl_znodes.acl_path(resource)
    with zookeeper_errors():
        while True:
            known, version = await _read(zk, resource)
            entries = list(dict.fromkeys(change(known)))
            if entries == known:
                break
            try:
                if not entries:
                    await zk.delete(path, -1 if version is None else version)
                elif version is None:
                    await zk.create(path, acl_znodes.encode_acls(entries))
                else:
                    await zk.set(path, acl_znodes.encode_acls(entries), version)
            except (BadVersion, NodeExists, NoNode):
                continue  # another writer changed it meanwhile
            folder, data = acl_znodes.encode_acl_change(resource)
            await zk.create(f"{folder}/acl_changes_", data, sequential=True)
            break
    acls.put(resource, entries)
