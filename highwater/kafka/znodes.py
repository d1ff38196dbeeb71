"""Kafka's znodes: paths and data, so that Apache's brokers and tools and ours read each other's.

Each znode has a path and, where it holds data, `encode_*` and `decode_*`.  The JSON is compact
UTF-8, as in Kafka. Decoding accepts every version that a 2.x or 3.x broker wrote, and for anything
else raises `BadZnode`, which names the mistake.  Encoding writes the form of
inter.broker.protocol.version 2.6.

The replication protocol rests on a partition's state znode.  The controller (elections) and the
leader (ISR changes) write it, each conditionally on the version that it read, so that ZooKeeper
decides between them.  PartitionState carries that version as `zk_version`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from highwater.kafka.replica_assignment import ReplicaAssignment
from highwater.kafka.security.acls import (
    Entry,
    Operation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
)
from highwater.kafka.types import (
    BrokerEpoch,
    BrokerId,
    BrokerInfo,
    ControllerEpoch,
    Endpoint,
    LeaderEpoch,
    TopicPartition,
    ZkVersion,
)

CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
BROKER_SEQID = "/brokers/seqid"
TOPICS = "/brokers/topics"
ISR_CHANGES = "/isr_change_notification"
ISR_CHANGE_PREFIX = "/isr_change_notification/isr_change_"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = "/log_dir_event_notification/log_dir_event_"
CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "/config/changes/config_change_"
CONFIG_TYPES = ("topics", "clients", "users", "brokers", "ips")
DEFAULT_ENTITY = "<default>"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
HANDLED_BROKER_EPOCHS = "/highwater/broker_epochs"
ACLS, PREFIXED_ACLS = "/kafka-acl", "/kafka-acl-extended/prefixed"
ACL_CHANGES = ("/kafka-acl-changes", "/kafka-acl-extended-changes")
"""Of literal patterns, and of prefixed ones."""

PERSISTENT_PATHS: tuple[str, ...] = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQID,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    HANDLED_BROKER_EPOCHS,
    *(f"{CONFIG}/{kind}" for kind in CONFIG_TYPES),
)
"""The znodes that every broker creates empty at its start, with parents, where missing."""

T = TypeVar("T")
E = TypeVar("E", bound=Enum)


class BadZnode(ValueError):
    """A znode's data does not match any known version."""


class PartitionState(NamedTuple):
    """/brokers/topics/T/partitions/P/state; `zk_version` is the znode's version, no part of it."""

    controller_epoch: ControllerEpoch
    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    zk_version: ZkVersion = ZkVersion(-1)


class TopicState(NamedTuple):
    """/brokers/topics/T.  A topic id that a later Kafka wrote is kept; none is invented."""

    partitions: dict[int, ReplicaAssignment]
    topic_id: str | None = None


class ControllerInfo(NamedTuple):
    broker_id: BrokerId
    kraft_epoch: int = -1


class ProducerIdBlock(NamedTuple):
    """A block of producer ids, both ends included."""

    broker: BrokerId
    start: int
    end: int


# ---- paths


def broker_path(broker_id: int) -> str:
    return f"/brokers/ids/{broker_id}"


def topic_path(topic: str) -> str:
    return f"/brokers/topics/{topic}"


def partitions_path(topic: str) -> str:
    return f"/brokers/topics/{topic}/partitions"


def partition_path(tp: TopicPartition) -> str:
    return f"/brokers/topics/{tp.topic}/partitions/{tp.partition}"


def state_path(tp: TopicPartition) -> str:
    return f"/brokers/topics/{tp.topic}/partitions/{tp.partition}/state"


def delete_topic_path(topic: str) -> str:
    return f"/admin/delete_topics/{topic}"


def config_path(entity_type: str, name: str) -> str:
    """One entity's configuration; `name` is already percent-encoded where Kafka does so."""
    return f"/config/{entity_type}/{name}"


# ---- the form of all of them


_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
"""One encoder for all: `json.dumps` would make a new one at each call."""


def _encode(value: object) -> bytes:
    return _json(value).encode()


def _decode(what: str, data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(str(data, "utf-8"))  # for bytes it would first guess the encoding
    except ValueError as e:
        raise BadZnode(f"{what} is not JSON ({e}): {data[:200]!r}") from None
    if not isinstance(value, dict):
        raise BadZnode(f"{what} is not a JSON object: {data[:200]!r}")
    return value


def _field(what: str, value: Mapping[str, Any], name: str) -> Any:
    try:
        return value[name]
    except KeyError:
        raise BadZnode(f"{what} has no field {name!r}: {value}") from None


# ---- cluster, controller


def encode_cluster_id(cluster_id: str) -> bytes:
    return _encode({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    return str(_field(CLUSTER_ID, _decode(CLUSTER_ID, data), "id"))


def encode_controller(broker_id: BrokerId, wall_ms: int) -> bytes:
    return _encode(
        {
            "version": 2,
            "brokerid": broker_id,
            "timestamp": str(wall_ms),
            "kraftControllerEpoch": -1,
        }
    )


def decode_controller(data: bytes) -> ControllerInfo:
    value = _decode(CONTROLLER, data)
    return ControllerInfo(
        _field(CONTROLLER, value, "brokerid"), value.get("kraftControllerEpoch", -1)
    )


def encode_controller_epoch(epoch: ControllerEpoch) -> bytes:
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> ControllerEpoch:
    try:
        return ControllerEpoch(int(data))
    except ValueError:
        raise BadZnode(f"{CONTROLLER_EPOCH} is not a number: {data[:200]!r}") from None


# ---- brokers


def encode_broker(
    endpoints: Iterable[Endpoint], rack: str | None, wall_ms: int, jmx_port: int = -1
) -> bytes:
    """A registration in version 4, as in 2.6; with host and port of the first PLAINTEXT
    endpoint."""
    listed = list(endpoints)
    plain = next((e for e in listed if e.security_protocol == "PLAINTEXT"), None)
    value: dict[str, Any] = {
        "listener_security_protocol_map": {e.listener: e.security_protocol for e in listed},
        "endpoints": [_endpoint_string(e) for e in listed],
        "jmx_port": jmx_port,
        "host": plain.host if plain else None,
        "port": plain.port if plain else -1,
        "timestamp": str(wall_ms),
        "version": 4,
    }
    if rack is not None:
        value["rack"] = rack
    return _encode(value)


@lru_cache(maxsize=1024)  # all registrations are read again when one of them comes or goes
def decode_broker(broker_id: BrokerId, data: bytes, epoch: BrokerEpoch) -> BrokerInfo:
    """`epoch` is the znode's czxid."""
    what = broker_path(broker_id)
    value = _decode(what, data)
    if _field(what, value, "version") < 2:
        endpoints = [
            Endpoint(
                "PLAINTEXT", "PLAINTEXT", _field(what, value, "host"), _field(what, value, "port")
            )
        ]
    else:
        protocols = value.get("listener_security_protocol_map")
        endpoints = [_parse_endpoint(what, e, protocols) for e in _field(what, value, "endpoints")]
    return BrokerInfo(broker_id, epoch, tuple(endpoints), value.get("rack"))


def _endpoint_string(e: Endpoint) -> str:
    host = f"[{e.host}]" if ":" in e.host else e.host
    return f"{e.listener}://{host}:{e.port}"


def _parse_endpoint(what: str, text: str, protocols: Mapping[str, str] | None) -> Endpoint:
    listener, found, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    if not (found and colon and port.isdigit()):
        raise BadZnode(f"{what} has an endpoint that is not LISTENER://HOST:PORT: {text!r}")
    listener = listener.upper()
    protocol = listener if protocols is None else protocols.get(listener, listener)
    return Endpoint(listener, protocol, host.removeprefix("[").removesuffix("]"), int(port))


# ---- topics and partitions


def encode_topic(topic: TopicState) -> bytes:
    partitions = topic.partitions
    value: dict[str, Any] = {
        "version": 3,
        "partitions": {str(p): a.replicas for p, a in partitions.items()},
        "adding_replicas": {str(p): a.adding for p, a in partitions.items() if a.adding},
        "removing_replicas": {str(p): a.removing for p, a in partitions.items() if a.removing},
    }
    if topic.topic_id is not None:
        value["topic_id"] = topic.topic_id
    return _encode(value)


def decode_topic(topic: str, data: bytes) -> TopicState:
    what = topic_path(topic)
    value = _decode(what, data)
    adding = value.get("adding_replicas") or {}
    removing = value.get("removing_replicas") or {}
    try:
        partitions = {
            int(p): ReplicaAssignment(
                tuple(replicas), tuple(adding.get(p, ())), tuple(removing.get(p, ()))
            )
            for p, replicas in (value.get("partitions") or {}).items()
        }
    except (TypeError, ValueError):
        raise BadZnode(f"{what} has an assignment that does not parse: {data[:200]!r}") from None
    return TopicState(dict(sorted(partitions.items())), value.get("topic_id"))


def encode_partition_state(state: PartitionState) -> bytes:
    # by hand: the controller writes thousands of these at once, and they hold only numbers
    isr = ",".join(map(str, state.isr))
    return (
        f'{{"controller_epoch":{state.controller_epoch},"leader":{state.leader},"version":1,'
        f'"leader_epoch":{state.leader_epoch},"isr":[{isr}]}}'
    ).encode()


def decode_partition_state(tp: TopicPartition, data: bytes, zk_version: int) -> PartitionState:
    try:
        value = json.loads(str(data, "utf-8"))
        return PartitionState(
            value["controller_epoch"],
            value["leader"],
            value["leader_epoch"],
            tuple(value["isr"]),
            ZkVersion(zk_version),
        )
    except (ValueError, KeyError, TypeError) as e:
        raise BadZnode(f"{state_path(tp)} does not parse ({e!r}): {data[:200]!r}") from None


# ---- notifications and requests through ZooKeeper


def _encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    return _encode(
        {
            "version": 1,
            "partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in partitions],
        }
    )


def _decode_partitions(what: str, data: bytes) -> list[TopicPartition]:
    value = _decode(what, data)
    return [
        TopicPartition(_field(what, e, "topic"), _field(what, e, "partition"))
        for e in _field(what, value, "partitions")
    ]


def encode_isr_change(partitions: Iterable[TopicPartition]) -> bytes:
    return _encode_partitions(partitions)


def decode_isr_change(data: bytes) -> list[TopicPartition]:
    return _decode_partitions(ISR_CHANGES, data)


def encode_preferred_replica_election(partitions: Iterable[TopicPartition]) -> bytes:
    return _encode_partitions(partitions)


def decode_preferred_replica_election(data: bytes) -> list[TopicPartition]:
    return _decode_partitions(PREFERRED_REPLICA_ELECTION, data)


def encode_log_dir_event(broker_id: BrokerId) -> bytes:
    return _encode({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_event(data: bytes) -> BrokerId:
    return BrokerId(_field(LOG_DIR_EVENTS, _decode(LOG_DIR_EVENTS, data), "broker"))


def encode_reassign_partitions(targets: Mapping[TopicPartition, Iterable[BrokerId]]) -> bytes:
    return _encode(
        {
            "version": 1,
            "partitions": [
                {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)}
                for tp, replicas in targets.items()
            ],
        }
    )


def decode_reassign_partitions(data: bytes) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    what = REASSIGN_PARTITIONS
    value = _decode(what, data)
    return {
        TopicPartition(_field(what, e, "topic"), _field(what, e, "partition")): tuple(
            _field(what, e, "replicas")
        )
        for e in _field(what, value, "partitions")
    }


# ---- configuration, producer ids, features, ACLs


def encode_config(config: Mapping[str, str]) -> bytes:
    return _encode({"version": 1, "config": dict(config)})


def decode_config(data: bytes) -> dict[str, str]:
    """An empty znode is an empty configuration (the parents that a start creates)."""
    if not data:
        return {}
    config = _decode(CONFIG, data).get("config") or {}
    return {k: str(v) for k, v in config.items()}


def encode_config_change(entity_path: str) -> bytes:
    """`entity_path` is the part after /config/, such as topics/t or users/u/clients/c."""
    return _encode({"version": 2, "entity_path": entity_path})


def decode_config_change(data: bytes) -> str:
    value = _decode(CONFIG_CHANGES, data)
    if value.get("version") == 1:
        return f"{value['entity_type']}/{value['entity_name']}"
    return str(_field(CONFIG_CHANGES, value, "entity_path"))


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    return _encode(
        {
            "version": 1,
            "broker": block.broker,
            "block_start": str(block.start),
            "block_end": str(block.end),
        }
    )


def decode_producer_id_block(data: bytes) -> ProducerIdBlock | None:
    """None where no block has been handed out yet (the znode is created empty)."""
    if not data:
        return None
    what = PRODUCER_ID_BLOCK
    value = _decode(what, data)
    return ProducerIdBlock(
        _field(what, value, "broker"),
        int(_field(what, value, "block_start")),
        int(_field(what, value, "block_end")),
    )


def encode_handled_epochs(epochs: Mapping[BrokerId, BrokerEpoch]) -> bytes:
    """Our own znode, which no other program reads: see controller/rules/bounces.py."""
    return _encode({"version": 1, "epochs": {str(b): epochs[b] for b in sorted(epochs)}})


def decode_handled_epochs(data: bytes) -> dict[BrokerId, BrokerEpoch] | None:
    """None where no controller has written it yet (the znode is created empty)."""
    if not data:
        return None
    value = _decode(HANDLED_BROKER_EPOCHS, data)
    epochs = _field(HANDLED_BROKER_EPOCHS, value, "epochs")
    try:
        return {BrokerId(int(b)): BrokerEpoch(int(e)) for b, e in epochs.items()}
    except (AttributeError, ValueError) as e:
        raise BadZnode(f"{HANDLED_BROKER_EPOCHS}: {e}") from e


# ---- access rules


def _spoken(member: Enum) -> str:
    """TRANSACTIONAL_ID as TransactionalId."""
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
    return _encode({"version": 1, "acls": acls})


def decode_acls(path: str, data: bytes) -> list[Entry]:
    try:
        return [
            Entry(
                str(acl["principal"]),
                str(acl["host"]),
                _named(Operation, acl["operation"]),
                _named(Permission, acl["permissionType"]),
            )
            for acl in _field(path, _decode(path, data), "acls")
        ]
    except (KeyError, TypeError) as e:
        raise BadZnode(f"{path} has a rule that is not understood ({e}): {data[:200]!r}") from None


def _named(kind: type[E], name: str) -> E:
    """By TransactionalId or TRANSACTIONAL_ID; raises KeyError."""
    wanted = name.replace("_", "").upper()
    return next((m for m in kind if m.name.replace("_", "") == wanted), None) or kind[name]


def encode_acl_change(resource: Resource) -> tuple[str, bytes]:
    """The folder of the announcement, and its data: text for a literal pattern, else JSON."""
    if resource.pattern is PatternType.LITERAL:
        return ACL_CHANGES[0], f"{_spoken(resource.type)}:{resource.name}".encode()
    change = {
        "version": 1,
        "resourceType": resource.type.name,
        "name": resource.name,
        "patternType": resource.pattern.name,
    }
    return ACL_CHANGES[1], _encode(change)


def decode_acl_change(data: bytes) -> Resource:
    what = "an announced change of access rules"
    try:
        if not data.startswith(b"{"):
            kind, _, name = data.decode().partition(":")
            return Resource(_named(ResourceType, kind), name)
        value = _decode(what, data)
        kind, name, pattern = (
            _field(what, value, f) for f in ("resourceType", "name", "patternType")
        )
        return Resource(_named(ResourceType, kind), str(name), _named(PatternType, pattern))
    except (KeyError, AttributeError) as e:
        raise BadZnode(f"{what} is not understood ({e}): {data[:200]!r}") from None
