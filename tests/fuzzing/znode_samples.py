"""One znode of each kind, as Kafka writes it, and its damage.

`damaged_data` knows the JSON of a znode: it changes one value, leaves out or adds a field, or harms
the bytes.
"""

from __future__ import annotations

import json
from copy import deepcopy
from random import Random
from typing import Any

from highwater.kafka import acl_znodes, token_znodes, znodes
from highwater.kafka.security.acls import (
    Entry,
    Operation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
)
from highwater.kafka.security.delegation_tokens import Token
from highwater.kafka.types import BrokerEpoch, BrokerId, TopicPartition
from tests.fuzzing.requests import damaged

HALF_PAIR = "\ud800"
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, -2, 1, 99, 1 << 31, 1 << 40, 1 << 80, 0.5, 1e300, "", "1", "-1", "x", "a/b",
    "..", HALF_PAIR, "ü" * 40_000, [], {}, [1, 1], [[1]], ["1"], [None], {"0": [1]}, {"x": "y"},
)  # fmt: skip
TEXTS = (
    b"", b"null", b"[]", b"{}", b"1", b'"x"', b"[" * 100_000, b'{"a":' * 5000, b"NaN", b"\xff\xfe",
    b'{"version":1}', b'{"version":NaN}', b'{"version":1e999}', b'{"version":' + b"9" * 5000 + b"}",
    b'{"\\ud800":1}', b"-1", b"2147483647", b"99999999999", b" 1", b"\xc2\xb2",
)  # fmt: skip
ACLS = acl_znodes.encode_acls(
    [Entry("User:a", "*", Operation.READ, Permission.ALLOW)],
)
TOKEN = Token("t", "User:a", "User:b", ("User:c",), 1, 1 << 50, 1 << 49)
LITERAL, PREFIXED = (
    Resource(ResourceType.TOPIC, "t", kind) for kind in (PatternType.LITERAL, PatternType.PREFIXED)
)
TOKEN_CHANGE = f"{token_znodes.TOKEN_CHANGES}/token_change_"
NAMES = ("t", "missing", "x" * 300, "a b", "ü", "..x", "1", "-1", "99999999999", "<default>", "%")
EXAMPLES: dict[str, bytes] = {
    "broker": (
        b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":'
        b'["PLAINTEXT://h:9092"],"jmx_port":-1,"host":"h","port":9092,"timestamp":"1","version":5,'
        b'"rack":"r1"}'
    ),
    "old-broker": b'{"version":1,"host":"h","port":9092,"timestamp":"1","jmx_port":-1}',
    "topic": (
        b'{"version":3,"topic_id":"abc","partitions":{"0":[1,2],"1":[2,1]},'
        b'"adding_replicas":{"0":[2]},"removing_replicas":{}}'
    ),
    "state": b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]}',
    "controller": b'{"version":2,"brokerid":1,"timestamp":"1","kraftControllerEpoch":-1}',
    "controller-epoch": b"7",
    "cluster-id": b'{"version":"1","id":"abcdefghijklmnopqrstuv"}',
    "config": b'{"version":1,"config":{"retention.ms":"1000","max.message.bytes":"x"}}',
    "config-change": b'{"version":2,"entity_path":"topics/t"}',
    "old-config-change": b'{"version":1,"entity_type":"topics","entity_name":"t"}',
    "partitions": b'{"version":1,"partitions":[{"topic":"t","partition":0}]}',
    "reassignment": b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2,1]}]}',
    "log-dir-event": b'{"version":1,"broker":1,"event":1}',
    "producer-ids": b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}',
    "handled-epochs": b'{"version":1,"epochs":{"1":25,"2":27}}',
    "acls": ACLS,
    "acl-change": acl_znodes.encode_acl_change(LITERAL)[1],
    "prefixed-acl-change": acl_znodes.encode_acl_change(PREFIXED)[1],
    "token": token_znodes.encode_token(TOKEN),
    "token-change": b"t",
    "user": (
        b'{"version":1,"config":{"SCRAM-SHA-256":"salt=YQ==,stored_key=YQ==,server_key=YQ==,'
        b'iterations=4096","producer_byte_rate":"1000"}}'
    ),
}
"""One of each kind of znode, as Kafka writes it."""


def decode(kind: str, data: bytes) -> object:
    """Whatever the bytes: a value, or BadZnode."""
    match kind:
        case "broker" | "old-broker":
            return znodes.decode_broker(BrokerId(1), data, BrokerEpoch(5))
        case "topic":
            return znodes.decode_topic("t", data)
        case "state":
            return znodes.decode_partition_state(TopicPartition("t", 0), data, 0)
        case "controller":
            return znodes.decode_controller(data)
        case "controller-epoch":
            return znodes.decode_controller_epoch(data)
        case "cluster-id":
            return znodes.decode_cluster_id(data)
        case "config" | "user":
            return znodes.decode_config(data)
        case "config-change" | "old-config-change":
            return znodes.decode_config_change(data)
        case "partitions":
            return znodes.decode_isr_change(data)
        case "reassignment":
            return znodes.decode_reassign_partitions(data)
        case "log-dir-event":
            return znodes.decode_log_dir_event(data)
        case "producer-ids":
            return znodes.decode_producer_id_block(data)
        case "handled-epochs":
            return znodes.decode_handled_epochs(data)
        case "acls":
            return acl_znodes.decode_acls("/kafka-acl/Topic/t", data)
        case "acl-change" | "prefixed-acl-change":
            return acl_znodes.decode_acl_change(data)
        case "token":
            return token_znodes.decode_token(token_znodes.token_path("t"), data)
        case "token-change":
            return token_znodes.decode_token_change(data)
    raise AssertionError(kind)


def damaged_data(chance: Random, data: bytes) -> bytes:
    """Other data in a znode's place: of its form, nearly of it, or of none."""
    what = chance.random()
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict) and what < 0.7:
        for _ in range(chance.choice((1, 1, 1, 2))):
            _harm(chance, value)
        return json.dumps(value, separators=(",", ":")).encode()
    return damaged(chance, data) if what < 0.85 else chance.choice(TEXTS)


def _harm(chance: Random, value: dict[str, Any]) -> None:
    """Changes something in it, at any depth."""
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        items = node.items() if isinstance(node, dict) else enumerate(node)
        for key, child in items:
            places.append((node, key))
            if isinstance(child, dict | list):
                walk(child)

    walk(value)
    if not places:
        value["version"] = deepcopy(chance.choice(VALUES))
        return
    node, key = chance.choice(places)
    what = chance.random()
    if what < 0.2:
        del node[key]
    elif what < 0.3 and isinstance(node, dict):
        node[chance.choice(("", "-1", "x", "9" * 12, "²"))] = deepcopy(node[key])
    elif what < 0.4 and isinstance(node, list):
        node.append(deepcopy(node[key]))
    else:
        node[key] = deepcopy(chance.choice(VALUES))
