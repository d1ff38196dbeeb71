"""The decision: patterns, hosts, deny before allow, what an operation includes."""

from __future__ import annotations

import pytest

from highwater.kafka import acl_znodes, znodes
from highwater.kafka.security.acls import (
    Acls,
    Entry,
    Filter,
    Operation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
)

TOPIC = ResourceType.TOPIC
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
PREFIXED = PatternType.PREFIXED


def allow(who: str, operation: Operation, host: str = "*") -> Entry:
    return Entry(who, host, operation, Permission.ALLOW)


def deny(who: str, operation: Operation, host: str = "*") -> Entry:
    return Entry(who, host, operation, Permission.DENY)


@pytest.fixture
def acls() -> Acls:
    found = Acls(["User:root"], open_without_rules=False)
    found.put(Resource(TOPIC, "t"), [allow("User:a", WRITE), allow("User:b", READ, "10.0.0.1")])
    found.put(Resource(TOPIC, "pre", PREFIXED), [allow("User:a", READ), deny("User:c", DESCRIBE)])
    found.put(Resource(TOPIC, "*"), [allow("User:c", Operation.ALL), allow("User:*", DESCRIBE)])
    return found


@pytest.mark.parametrize(
    ("who", "host", "operation", "topic", "allowed"),
    [
        ("a", "h", WRITE, "t", True),
        ("a", "h", READ, "t", False),
        ("a", "h", WRITE, "tt", False),
        ("a", "h", READ, "prefix", True),
        ("a", "h", READ, "pr", False),
        ("b", "10.0.0.1", READ, "t", True),
        ("b", "10.0.0.2", READ, "t", False),
        ("c", "h", READ, "pre", True),
        ("c", "h", DESCRIBE, "pre", False),
        ("nobody", "h", DESCRIBE, "anything", True),
        ("nobody", "h", READ, "anything", False),
        ("root", "h", READ, "anything", True),
    ],
)
def test_who_may_do_what(
    acls: Acls, who: str, host: str, operation: Operation, topic: str, allowed: bool
) -> None:
    for _ in "twice":
        assert acls.allows(f"User:{who}", host, operation, TOPIC, topic) == allowed


def test_some_operations_include_others_where_they_are_allowed() -> None:
    acls = Acls(open_without_rules=False)
    includes = (READ, WRITE, Operation.DELETE, Operation.ALTER)
    for operation in Operation:
        acls.put(Resource(TOPIC, "t"), [allow("User:a", operation)])
        expected = operation in (Operation.ALL, DESCRIBE, *includes)
        assert acls.allows("User:a", "h", DESCRIBE, TOPIC, "t") == expected
        acls.put(Resource(TOPIC, "t"), [allow("User:a", DESCRIBE), deny("User:a", operation)])
        denied = operation in (Operation.ALL, DESCRIBE)
        assert acls.allows("User:a", "h", DESCRIBE, TOPIC, "t") != denied


def test_a_resource_without_rules() -> None:
    acls = Acls(open_without_rules=True)
    assert acls.allows("User:a", "h", READ, TOPIC, "t")
    acls.put(Resource(TOPIC, "t"), [allow("User:b", READ)])
    assert not acls.allows("User:a", "h", READ, TOPIC, "t")
    assert acls.allows("User:a", "h", READ, TOPIC, "other")
    acls.put(Resource(TOPIC, "t"), [])
    assert acls.allows("User:a", "h", READ, TOPIC, "t")


def test_whether_there_is_any_resource_that_may_be_written(acls: Acls) -> None:
    def some(who: str) -> bool:
        return acls.allows_some(f"User:{who}", "h", WRITE, TOPIC)

    assert [some(who) for who in ("a", "b", "c", "root")] == [True, False, True, True]
    acls.put(Resource(TOPIC, "", PREFIXED), [deny("User:a", WRITE)])
    assert not some("a")
    acls.put(Resource(TOPIC, "*"), [deny("User:c", WRITE), allow("User:c", WRITE)])
    assert not some("c")


def test_filters(acls: Acls) -> None:
    def found(name: str | None, pattern: int) -> list[str]:
        asked = Filter(1, name, pattern, None, None, 1, 1)
        return sorted(resource.name for resource, _ in acls.found(asked))

    assert found(None, 1) == ["*", "pre", "t"]
    assert found("pre", PatternType.LITERAL) == []
    assert found("pre", PREFIXED) == found("pre", 1) == ["pre"]
    assert found("prefix", PatternType.MATCH) == ["*", "pre"]
    of_b = Filter(TOPIC, "t", 3, "User:b", None, 1, Permission.ALLOW)
    assert list(acls.found(of_b)) == [(Resource(TOPIC, "t"), [allow("User:b", READ, "10.0.0.1")])]


def test_a_filter_of_what_does_not_exist_is_known_as_such() -> None:
    """Found by fuzzing: DeleteAcls met them in its search of ZooKeeper."""
    right = Filter(TOPIC, "t", 3, None, None, 1, 1)
    assert right.unknown is None
    assert right._replace(type=0).unknown == "resource type, 0"
    assert right._replace(pattern=-1).unknown == "pattern type, -1"
    assert right._replace(operation=99).unknown == "operation, 99"
    assert right._replace(permission=4).unknown == "permission type, 4"
    assert right._replace(name="").named() == [], "the folder of all topics' rules is no topic's"
    assert right.named() == [Resource(TOPIC, "t")]


def test_the_znodes_are_kafkas() -> None:
    entries = [deny("User:a", Operation.IDEMPOTENT_WRITE, "h")]
    data = acl_znodes.encode_acls(entries)
    assert data == (
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Deny",'
        b'"operation":"IdempotentWrite","host":"h"}]}'
    )
    assert acl_znodes.decode_acls("/p", data) == entries
    literal = Resource(ResourceType.TRANSACTIONAL_ID, "a:b")
    assert acl_znodes.acl_path(literal) == "/kafka-acl/TransactionalId/a:b"
    assert acl_znodes.encode_acl_change(literal) == ("/kafka-acl-changes", b"TRANSACTIONAL_ID:a:b")
    prefixed = Resource(TOPIC, "pre", PREFIXED)
    assert acl_znodes.acl_path(prefixed) == "/kafka-acl-extended/prefixed/Topic/pre"
    for resource in (literal, prefixed):
        assert acl_znodes.decode_acl_change(acl_znodes.encode_acl_change(resource)[1]) == resource
    unknown = b'{"resourceType":"X","name":"","patternType":"LITERAL"}'
    for wrong in (b"Nothing:a", b'{"version":1}', unknown):
        with pytest.raises(znodes.BadZnode):
            acl_znodes.decode_acl_change(wrong)
    for wrong in (b"[]", b"{}", b'{"acls":[{}]}', b'{"acls":[{"operation":"Fly"}]}'):
        with pytest.raises(znodes.BadZnode):
            acl_znodes.decode_acls("/p", wrong)
