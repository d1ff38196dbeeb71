"""The znodes of Kafka's AclAuthorizer: a znode a resource, with its rules, and announcements.

Brokers of a mixed cluster share them.  Source: kafka.zk.ZkAclStore and ExtendedAclStore (KIP-290).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TypeVar

from highwater.kafka.security.acls import (
    Entry,
    Operation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
)
from highwater.kafka.znode_fields import BadZnode, decode_json, objects, text
from highwater.kafka.znodes import encode_json, is_inner_path

ACLS, PREFIXED_ACLS = "/kafka-acl", "/kafka-acl-extended/prefixed"
ACL_CHANGES = ("/kafka-acl-changes", "/kafka-acl-extended-changes")
"""The folders of announcements for literal patterns, and for prefixed ones."""

E = TypeVar("E", bound=Enum)


def _spoken(member: Enum) -> str:
    """The spelling in paths: TransactionalId for TRANSACTIONAL_ID."""
    return member.name.title().replace("_", "")


def acl_folder(kind: ResourceType, pattern: PatternType) -> str:
    return f"{ACLS if pattern is PatternType.LITERAL else PREFIXED_ACLS}/{_spoken(kind)}"


ACL_PATHS = (
    *ACL_CHANGES,
    *(acl_folder(k, p) for p in (PatternType.LITERAL, PatternType.PREFIXED) for k in ResourceType),
)
"""Made like PERSISTENT_PATHS where there is an authorizer."""


def acl_path(resource: Resource) -> str:
    return f"{acl_folder(resource.type, resource.pattern)}/{resource.name}"


def encode_acls(entries: Iterable[Entry]) -> bytes:
    acls = [
        {
            "principal": e.principal,
            "permissionType": _spoken(e.permission),
            "operation": _spoken(e.operation),
            "host": e.host,
        }
        for e in entries
    ]
    return encode_json({"version": 1, "acls": acls})


def decode_acls(path: str, data: bytes) -> list[Entry]:
    try:
        return [
            Entry(
                text(path, acl, "principal"),
                text(path, acl, "host"),
                _named(Operation, text(path, acl, "operation")),
                _named(Permission, text(path, acl, "permissionType")),
            )
            for acl in objects(path, decode_json(path, data), "acls")
        ]
    except KeyError as e:
        raise BadZnode(f"{path} has a rule that is not understood ({e}): {data[:200]!r}") from None


def _named(kind: type[E], name: str) -> E:
    """The member with a name such as TransactionalId or TRANSACTIONAL_ID; raises KeyError."""
    wanted = name.replace("_", "").upper()
    return next((m for m in kind if m.name.replace("_", "") == wanted), None) or kind[name]


def encode_acl_change(resource: Resource) -> tuple[str, bytes]:
    """The folder of the announcement, and its data: text for a literal pattern, else JSON.

    The type is as in the enum, not as in paths: Kafka reads no TransactionalId here.
    """
    if resource.pattern is PatternType.LITERAL:
        return ACL_CHANGES[0], f"{resource.type.name}:{resource.name}".encode()
    change = {
        "version": 1,
        "resourceType": resource.type.name,
        "name": resource.name,
        "patternType": resource.pattern.name,
    }
    return ACL_CHANGES[1], encode_json(change)


def decode_acl_change(data: bytes) -> Resource:
    what = "an announced change of access rules"
    try:
        if data.startswith(b"{"):
            value = decode_json(what, data)
            kind, name, pattern = (
                text(what, value, f) for f in ("resourceType", "name", "patternType")
            )
        else:
            kind, _, name = str(data, "utf-8").partition(":")
            pattern = PatternType.LITERAL.name
        if not is_inner_path(name) or "/" in name:
            raise KeyError(name)
        return Resource(_named(ResourceType, kind), name, _named(PatternType, pattern))
    except (KeyError, UnicodeDecodeError) as e:
        raise BadZnode(f"{what} is not understood ({e}): {data[:200]!r}") from None
