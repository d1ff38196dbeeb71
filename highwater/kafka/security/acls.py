"""Access rules, and the decision whether they allow an operation: pure, without I/O.

A resource pattern is a type and a name (literal, where * stands for all, or the prefix of names).
Its entries allow or deny a principal, from a host, an operation.  A deny goes before every allow;
READ, WRITE, DELETE and ALTER include DESCRIBE, and ALTER_CONFIGS includes DESCRIBE_CONFIGS, where
they are allowed, but not where they are denied.

Numbers are those of the protocol.
Source: kafka.security.authorizer.AclAuthorizer, org.apache.kafka.common.acl.AclOperation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from highwater.kafka.errors import ErrorCode

ANY_CODE, ALL_NAMES, CLUSTER_NAME = 1, "*", "kafka-cluster"
EVERYONE = "User:*"
_MOST_DECISIONS = 50_000


class Operation(IntEnum):
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class ResourceType(IntEnum):
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """MATCH is for filters alone: every pattern that applies to the name."""

    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    DENY = 2
    ALLOW = 3


DENIED = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
SUPPORTED = {
    ResourceType.TOPIC: (3, 4, 5, 6, 7, 8, 10, 11),
    ResourceType.GROUP: (3, 6, 8, 10, 11),
    ResourceType.CLUSTER: (5, 7, 8, 9, 10, 11, 12),
}
"""The operations that exist for a resource, as answers name them."""
_INCLUDED_IN = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}


class Resource(NamedTuple):
    type: ResourceType
    name: str
    pattern: PatternType = PatternType.LITERAL


class Entry(NamedTuple):
    principal: str
    host: str
    operation: Operation
    permission: Permission


class Filter(NamedTuple):
    """Which rules are meant; codes as on the wire (1: any), None: any name."""

    type: int
    name: str | None
    pattern: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    @property
    def unknown(self) -> str | None:
        """The first field whose code does not exist."""
        fields: tuple[tuple[str, int, type[IntEnum]], ...] = (
            ("resource type", self.type, ResourceType),
            ("pattern type", self.pattern, PatternType),
            ("operation", self.operation, Operation),
            ("permission type", self.permission, Permission),
        )
        for name, code, known in fields:
            if code != ANY_CODE and code not in list(known):
                return f"{name}, {code}"
        return None

    def takes(self, resource: Resource) -> bool:
        if self.type not in (ANY_CODE, resource.type):
            return False
        if self.pattern not in (ANY_CODE, PatternType.MATCH, resource.pattern):
            return False
        if self.name is None or self.name == resource.name:
            return True
        if self.pattern != PatternType.MATCH:
            return False
        if resource.pattern is PatternType.PREFIXED:
            return self.name.startswith(resource.name)
        return resource.name == ALL_NAMES

    def matches(self, entry: Entry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (ANY_CODE, entry.operation)
            and self.permission in (ANY_CODE, entry.permission)
        )

    def named(self) -> list[Resource]:
        """The patterns meant, where the filter names at most a literal and a prefixed one."""
        if self.type == ANY_CODE or not self.name or self.pattern == PatternType.MATCH:
            return []  # and no resource has an empty name
        both = (PatternType.LITERAL, PatternType.PREFIXED)
        patterns = both if self.pattern == ANY_CODE else (PatternType(self.pattern),)
        return [Resource(ResourceType(self.type), self.name, p) for p in patterns]


class Acls:
    """All rules of a cluster, and the users that are exempt from them."""

    def __init__(self, super_users: Iterable[str] = (), *, open_without_rules: bool) -> None:
        self._super_users = frozenset(super_users)
        self._open_without_rules = open_without_rules
        """allow.everyone.if.no.acl.found: resources without any rule are open to all."""
        self._rules: dict[Resource, tuple[Entry, ...]] = {}
        self._lengths: dict[ResourceType, tuple[int, ...]] = {}
        """Resource type -> the lengths of its prefixes."""
        self._decisions: dict[tuple[str, str, Operation, ResourceType, str], bool] = {}

    def put(self, resource: Resource, entries: Sequence[Entry]) -> None:
        """Replaces the resource's entries."""
        if entries:
            self._rules[resource] = tuple(entries)
        else:
            self._rules.pop(resource, None)
        self._decisions.clear()
        prefixes = (r for r in self._rules if r.pattern is PatternType.PREFIXED)
        lengths: dict[ResourceType, set[int]] = {}
        for prefixed in prefixes:
            lengths.setdefault(prefixed.type, set()).add(len(prefixed.name))
        self._lengths = {kind: tuple(sorted(found)) for kind, found in lengths.items()}

    def resources(self) -> list[Resource]:
        return list(self._rules)

    def found(self, asked: Filter) -> Iterator[tuple[Resource, list[Entry]]]:
        for resource, entries in self._rules.items():
            matching = [entry for entry in entries if asked.matches(entry)]
            if matching and asked.takes(resource):
                yield resource, matching

    def allows(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        key = (principal, host, operation, kind, name)
        decision = self._decisions.get(key)
        if decision is None:
            if len(self._decisions) >= _MOST_DECISIONS:
                self._decisions.clear()
            decision = self._decisions[key] = self._decide(*key)
        return decision

    def _decide(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        if principal in self._super_users:
            return True
        rules = [entry for r in self._patterns(kind, name) for entry in self._rules.get(r, ())]
        if not rules:
            return self._open_without_rules
        mine = [r for r in rules if r.principal in (principal, EVERYONE) and r.host in (host, "*")]
        denied = (Operation.ALL, operation)
        if any(r.operation in denied for r in mine if r.permission is Permission.DENY):
            return False
        allowing = (*denied, *_INCLUDED_IN.get(operation, ()))
        return any(r.operation in allowing for r in mine if r.permission is Permission.ALLOW)

    def _patterns(self, kind: ResourceType, name: str) -> Iterator[Resource]:
        yield Resource(kind, ALL_NAMES)
        if name != ALL_NAMES:
            yield Resource(kind, name)
        for length in self._lengths.get(kind, ()):
            if length <= len(name):
                yield Resource(kind, name[:length], PatternType.PREFIXED)

    def allows_some(
        self, principal: str, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        """Whether there is any resource of the type on which it is allowed (KIP-679).

        Only entries for the operation itself and for ALL count, as in Kafka.
        """
        if principal in self._super_users:
            return True
        allowed, denied = [], set()
        for resource, entries in self._rules.items():
            for e in entries if resource.type is kind else ():
                if e.operation not in (operation, Operation.ALL) or e.host not in (host, "*"):
                    continue
                if e.principal not in (principal, EVERYONE):
                    continue
                if e.permission is Permission.ALLOW:
                    allowed.append(resource)
                else:
                    denied.add(resource)
        everything = Resource(kind, ALL_NAMES)
        if everything in denied:
            return False
        if self._open_without_rules:
            return True
        prefixes = [r.name for r in denied if r.pattern is PatternType.PREFIXED]
        return any(
            resource == everything
            or not (
                (resource.pattern is PatternType.LITERAL and resource in denied)
                or any(resource.name.startswith(prefix) for prefix in prefixes)
            )
            for resource in allowed
        )
