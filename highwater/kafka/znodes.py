"""Kafka's znodes: paths and data, in the forms that Apache Kafka's brokers and tools read, too.

Each znode has a path and, where it holds data, `encode_*` and `decode_*`.  The JSON is compact
UTF-8, as in Kafka. Decoding accepts every version that a 2.x or 3.x broker wrote, and for anything
else raises `BadZnode`, which names the mistake.  Encoding writes the form of
inter.broker.protocol.version 2.6.  Those of access rules are in `acl_znodes`.

The replication protocol rests on a partition's state znode.  The controller (elections) and the
leader (ISR changes) write it, each conditionally on the version that it read, so that ZooKeeper
decides between them.  PartitionState carries that version as `zk_version`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from highwater.kafka import topic_ids
from highwater.kafka.replica_assignment import ReplicaAssignment
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
from highwater.kafka.znode_fields import (
    MOST,
    MOST_LONG,
    broker_ids,
    decode_json,
    field,
    inner,
    is_id,
    is_whole,
    objects,
    text,
    whole,
    whole_in_text,
)
from highwater.kafka.znode_fields import BadZnode as BadZnode

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
FEATURE_LIMITS = "/highwater/features"

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
    FEATURE_LIMITS,
    *(f"{CONFIG}/{kind}" for kind in CONFIG_TYPES),
)
"""The znodes that every broker creates empty at its start, with parents, where missing."""

T = TypeVar("T")
_LAST_PORT = 65535
_FEATURES = "highwater_features"
_NOT_IN_PATHS = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
_LEADER_DURING_DELETION = -2
"""A leader in a state znode is a broker, -1 for none, or this, which Kafka's controller writes."""


class PartitionState(NamedTuple):
    """/brokers/topics/T/partitions/P/state; `zk_version` is the znode's version, no part of it."""

    controller_epoch: ControllerEpoch
    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    zk_version: ZkVersion = ZkVersion(-1)


class TopicState(NamedTuple):
    """/brokers/topics/T.  The topic id is None before the controller has given one."""

    partitions: dict[int, ReplicaAssignment]
    topic_id: bytes | None = None


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


def is_inner_path(path: str) -> bool:
    """Whether ZooKeeper takes it below a znode: names with slashes between them."""
    parts = path.split("/")
    return _NOT_IN_PATHS.search(path) is None and not any(p in ("", ".", "..") for p in parts)


# ---- the form of all of them


_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
"""One encoder for all: `json.dumps` would make a new one at each call."""


def encode_json(value: object) -> bytes:
    return _json(value).encode()


# ---- cluster, controller


def encode_cluster_id(cluster_id: str) -> bytes:
    return encode_json({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    return text(CLUSTER_ID, decode_json(CLUSTER_ID, data), "id")


def encode_controller(broker_id: BrokerId, wall_ms: int) -> bytes:
    return encode_json(
        {
            "version": 2,
            "brokerid": broker_id,
            "timestamp": str(wall_ms),
            "kraftControllerEpoch": -1,
        }
    )


def decode_controller(data: bytes) -> ControllerInfo:
    value = decode_json(CONTROLLER, data)
    kraft_epoch = value.get("kraftControllerEpoch", -1)
    return ControllerInfo(
        BrokerId(whole(CONTROLLER, value, "brokerid")),
        kraft_epoch if is_whole(kraft_epoch, -1) else -1,
    )


def encode_controller_epoch(epoch: ControllerEpoch) -> bytes:
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> ControllerEpoch:
    if not (data.isdigit() and len(data) <= 10 and int(data) < MOST):
        raise BadZnode(f"{CONTROLLER_EPOCH} is not an epoch: {data[:200]!r}")
    return ControllerEpoch(int(data))


# ---- brokers


def encode_broker(
    endpoints: Iterable[Endpoint],
    rack: str | None,
    wall_ms: int,
    jmx_port: int = -1,
    features: Mapping[str, int] | None = None,
) -> bytes:
    """A registration in version 4, as in 2.6; with host and port of the first PLAINTEXT
    endpoint.

    `features` is a field of our own, which other brokers and tools pass over.
    """
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
    if features:
        value[_FEATURES] = dict(features)
    return encode_json(value)


@lru_cache(maxsize=1024)  # all registrations are read again when one of them comes or goes
def decode_broker(broker_id: BrokerId, data: bytes, epoch: BrokerEpoch) -> BrokerInfo:
    """`epoch` is the znode's czxid."""
    what = broker_path(broker_id)
    value = decode_json(what, data)
    if whole(what, value, "version") < 2:
        host, port = text(what, value, "host"), whole(what, value, "port", most=_LAST_PORT)
        endpoints = [Endpoint("PLAINTEXT", "PLAINTEXT", host, port)]
    else:
        protocols = inner(what, value, "listener_security_protocol_map")
        listed = field(what, value, "endpoints")
        if not isinstance(listed, list):
            raise BadZnode(f"{what} has no list of endpoints: {data[:200]!r}")
        endpoints = [_parse_endpoint(what, e, protocols) for e in listed]
    rack = None if value.get("rack") is None else text(what, value, "rack")
    return BrokerInfo(broker_id, epoch, tuple(endpoints), rack, _features(value.get(_FEATURES)))


def _features(found: object) -> tuple[tuple[str, int], ...]:
    """Names and levels; what is no level is passed over: the broker does not announce it."""
    if not isinstance(found, dict):
        return ()
    return tuple(sorted((n, level) for n, level in found.items() if is_whole(level)))


def _endpoint_string(e: Endpoint) -> str:
    host = f"[{e.host}]" if ":" in e.host else e.host
    return f"{e.listener}://{host}:{e.port}"


def _parse_endpoint(what: str, whole_text: object, protocols: Mapping[str, Any]) -> Endpoint:
    listener, found, address = str(whole_text).partition("://")
    host, colon, port = address.rpartition(":")
    listener = listener.upper()
    protocol = protocols.get(listener, listener)
    well_formed = (
        found
        and colon
        and port.isdigit()
        and len(port) <= 5
        and int(port) <= _LAST_PORT
        and isinstance(protocol, str)
    )
    if not well_formed:
        raise BadZnode(f"{what} has an endpoint that is not LISTENER://HOST:PORT: {whole_text!r}")
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
        value["topic_id"] = topic_ids.to_text(topic.topic_id)
    return encode_json(value)


def decode_topic(topic: str, data: bytes) -> TopicState:
    what = topic_path(topic)
    value = decode_json(what, data)
    adding = inner(what, value, "adding_replicas")
    removing = inner(what, value, "removing_replicas")
    partitions = {}
    for p, replicas in inner(what, value, "partitions").items():
        if not (is_id(p) and replicas):
            raise BadZnode(f"{what} has an assignment that does not parse: {data[:200]!r}")
        partitions[int(p)] = ReplicaAssignment(
            *(_ids(what, found) for found in (replicas, adding.get(p, []), removing.get(p, [])))
        )
    return TopicState(dict(sorted(partitions.items())), _topic_id(value.get("topic_id")))


def _topic_id(found: object) -> bytes | None:
    """None for what is no id: the controller gives the topic one, rather than lose the topic."""
    try:
        return topic_ids.from_text(found) if isinstance(found, str) else None
    except ValueError:
        return None


def _ids(what: str, found: object) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, broker_ids(what, found)))


def encode_partition_state(state: PartitionState) -> bytes:
    # by hand: the controller writes thousands of these at once, and they hold only numbers
    isr = ",".join(map(str, state.isr))
    return (
        f'{{"controller_epoch":{state.controller_epoch},"leader":{state.leader},"version":1,'
        f'"leader_epoch":{state.leader_epoch},"isr":[{isr}]}}'
    ).encode()


def decode_partition_state(tp: TopicPartition, data: bytes, zk_version: int) -> PartitionState:
    what = state_path(tp)
    value = decode_json(what, data)
    return PartitionState(
        ControllerEpoch(whole(what, value, "controller_epoch")),
        BrokerId(whole(what, value, "leader", _LEADER_DURING_DELETION)),
        LeaderEpoch(whole(what, value, "leader_epoch")),
        _ids(what, field(what, value, "isr")),
        ZkVersion(zk_version),
    )


# ---- notifications and requests through ZooKeeper


def _encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    return encode_json(
        {
            "version": 1,
            "partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in partitions],
        }
    )


def _decode_partitions(what: str, data: bytes) -> list[TopicPartition]:
    value = decode_json(what, data)
    return [_partition_of(what, e) for e in objects(what, value, "partitions")]


def _partition_of(what: str, value: Mapping[str, Any]) -> TopicPartition:
    return TopicPartition(text(what, value, "topic"), whole(what, value, "partition"))


def encode_isr_change(partitions: Iterable[TopicPartition]) -> bytes:
    return _encode_partitions(partitions)


def decode_isr_change(data: bytes) -> list[TopicPartition]:
    return _decode_partitions(ISR_CHANGES, data)


def encode_preferred_replica_election(partitions: Iterable[TopicPartition]) -> bytes:
    return _encode_partitions(partitions)


def decode_preferred_replica_election(data: bytes) -> list[TopicPartition]:
    return _decode_partitions(PREFERRED_REPLICA_ELECTION, data)


def encode_log_dir_event(broker_id: BrokerId) -> bytes:
    return encode_json({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_event(data: bytes) -> BrokerId:
    return BrokerId(whole(LOG_DIR_EVENTS, decode_json(LOG_DIR_EVENTS, data), "broker"))


def encode_reassign_partitions(targets: Mapping[TopicPartition, Iterable[BrokerId]]) -> bytes:
    return encode_json(
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
    value = decode_json(what, data)
    return {
        _partition_of(what, e): _ids(what, field(what, e, "replicas"))
        for e in objects(what, value, "partitions")
    }


# ---- configuration, producer ids, features


def encode_config(config: Mapping[str, str]) -> bytes:
    return encode_json({"version": 1, "config": dict(config)})


def decode_config(data: bytes) -> dict[str, str]:
    """An empty znode is an empty configuration (the parents that a start creates)."""
    if not data:
        return {}
    config = inner(CONFIG, decode_json(CONFIG, data), "config")
    return {k: str(v) for k, v in config.items()}


def encode_config_change(entity_path: str) -> bytes:
    """`entity_path` is the part after /config/, such as topics/t or users/u/clients/c."""
    return encode_json({"version": 2, "entity_path": entity_path})


def decode_config_change(data: bytes) -> str:
    value = decode_json(CONFIG_CHANGES, data)
    if value.get("version") == 1:
        kind = text(CONFIG_CHANGES, value, "entity_type")
        path = f"{kind}/{text(CONFIG_CHANGES, value, 'entity_name')}"
    else:
        path = text(CONFIG_CHANGES, value, "entity_path")
    if not is_inner_path(path):
        raise BadZnode(f"{CONFIG_CHANGES} names no entity: {path[:200]!r}")
    return path


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    return encode_json(
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
    value = decode_json(what, data)
    block = ProducerIdBlock(
        BrokerId(whole(what, value, "broker")),
        whole_in_text(what, value, "block_start"),
        whole_in_text(what, value, "block_end"),
    )
    if not 0 <= block.start <= block.end:
        raise BadZnode(f"{what} is not a block of producer ids: {data[:200]!r}")
    return block


def encode_handled_epochs(epochs: Mapping[BrokerId, BrokerEpoch]) -> bytes:
    """Highwater's own znode, which no other program reads: see controller/rules/bounces.py."""
    return encode_json({"version": 1, "epochs": {str(b): epochs[b] for b in sorted(epochs)}})


def decode_handled_epochs(data: bytes) -> dict[BrokerId, BrokerEpoch] | None:
    """None where no controller has written it yet (the znode is created empty)."""
    if not data:
        return None
    value = decode_json(HANDLED_BROKER_EPOCHS, data)
    epochs = inner(HANDLED_BROKER_EPOCHS, value, "epochs")
    if not all(is_id(b) and is_whole(e, most=MOST_LONG) for b, e in epochs.items()):
        raise BadZnode(f"{HANDLED_BROKER_EPOCHS} has no epochs by broker: {data[:200]!r}")
    return {BrokerId(int(b)): BrokerEpoch(e) for b, e in epochs.items()}


def encode_feature_limits(limits: Mapping[str, int]) -> bytes:
    """Highwater's own znode, which no other program reads: the highest level of each feature."""
    return encode_json({"version": 1, "limits": {name: limits[name] for name in sorted(limits)}})


def decode_feature_limits(data: bytes) -> dict[str, int]:
    """Empty where nobody has limited a feature (the znode is created empty)."""
    if not data:
        return {}
    limits = inner(FEATURE_LIMITS, decode_json(FEATURE_LIMITS, data), "limits")
    if not all(is_whole(level) for level in limits.values()):
        raise BadZnode(f"{FEATURE_LIMITS} has no levels by feature: {data[:200]!r}")
    return {str(name): level for name, level in limits.items()}
