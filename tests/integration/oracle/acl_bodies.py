"""One request of each API, about topics that are seen, hidden and nowhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.integration.oracle import script_admin
from tests.integration.oracle.script_records import batch

TOPIC, GROUP, CLUSTER, ID = 2, 3, 4, 5
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
ALL = 2
THREE = ("seen", "hidden", "nowhere")


def offsets(**more: int) -> list[Any]:
    offset = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "", **more}
    return [{"name": name, "partitions": [offset]} for name in THREE]


def versioned(since: int, later: Any, before: Any) -> Callable[[int, Any], Any]:
    return lambda version, _: later if version >= since else before


def record_bodies() -> dict[int, Any]:
    """Of records, metadata, and of the controller's requests."""
    stale = {"controller_id": 1, "controller_epoch": 0, "broker_epoch": -1}
    return {
        0: {
            "transactional_id": None, "acks": -1, "timeout_ms": 3000,
            "topic_data": [
                {"name": t, "partition_data": [{"index": 0, "records": batch()}]} for t in THREE
            ],
        },
        1: {
            "replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1000,
            "topics": [
                {"topic": t, "partitions": [
                    {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 0,
                     "current_leader_epoch": -1, "log_start_offset": -1}]}
                for t in THREE
            ],
        },
        2: {"replica_id": -1, "topics": [
            {"name": t, "partitions": [
                {"partition_index": 0, "timestamp": -2, "current_leader_epoch": -1}]}
            for t in THREE
        ]},
        3: {"topics": [{"name": name} for name in THREE], "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
            "include_cluster_authorized_operations": True},
        4: {**stale, "ungrouped_partition_states": [], "topic_states": [], "live_leaders": []},
        5: {**stale, "topic_states": [], "topics": [], "ungrouped_partitions": []},
        6: {**stale, "ungrouped_partition_states": [], "topic_states": [], "live_brokers": []},
        7: {"broker_id": 99, "broker_epoch": -1},
        21: {"topics": [
            {"name": t, "partitions": [{"partition_index": 0, "offset": 0}]} for t in THREE],
            "timeout_ms": 3000},
        23: {"replica_id": -1, "topics": [
            {"topic": t, "partitions": [
                {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}
            for t in THREE
        ]},
    }  # fmt: skip


def group_bodies() -> dict[int, Any]:
    """Of groups, their coordinators and their offsets."""
    member = {"group_id": "seen", "generation_id": 1, "member_id": "m"}
    asked = [{"name": name, "partition_indexes": [0]} for name in THREE]
    return {
        8: {"group_id": "seen", "generation_id_or_member_epoch": -1, "member_id": "",
            "topics": offsets()},
        9: versioned(
            8,
            {"groups": [{"group_id": g, "topics": asked} for g in THREE]},
            {"group_id": "seen", "topics": asked},
        ),
        10: versioned(
            4, {"key_type": 0, "coordinator_keys": list(THREE)}, {"key_type": 0, "key": "seen"}
        ),
        11: {"group_id": "seen", "session_timeout_ms": 1, "rebalance_timeout_ms": 1,
             "member_id": "", "protocol_type": "consumer",
             "protocols": [{"name": "range", "metadata": b""}]},
        12: member,
        13: versioned(
            3, {"group_id": "seen", "members": [{"member_id": "m"}]},
            {"group_id": "seen", "member_id": "m"},
        ),
        14: {**member, "assignments": [], "protocol_type": "consumer", "protocol_name": "range"},
        15: {"groups": list(THREE), "include_authorized_operations": True},
        42: {"groups_names": ["hidden", "nowhere"]},
        47: {"group_id": "seen", "topics": [
            {"name": t, "partitions": [{"partition_index": 0}]} for t in THREE]},
    }  # fmt: skip


def transaction_bodies() -> dict[int, Any]:
    """Of producer ids and transactions."""
    producer = {"transactional_id": "seen", "producer_id": 77, "producer_epoch": 0}
    topics = [{"name": name, "partitions": [0]} for name in THREE]
    return {
        22: {"transactional_id": "seen", "transaction_timeout_ms": 5000},
        24: versioned(
            4,
            {"transactions": [{**producer, "verify_only": True, "topics": topics}]},
            {"v3_and_below_transactional_id": "seen", "v3_and_below_producer_id": 77,
             "v3_and_below_producer_epoch": 0, "v3_and_below_topics": topics},
        ),
        25: {**producer, "group_id": "seen"},
        26: {**producer, "committed": True},
        27: {"markers": [{"producer_id": 77, "producer_epoch": 0, "transaction_result": False,
                          "coordinator_epoch": 0,
                          "topics": [{"name": "nowhere", "partition_indexes": [0]}]}]},
        28: {**producer, "group_id": "seen", "generation_id": -1, "member_id": "",
             "group_instance_id": None, "topics": offsets()},
        65: {"transactional_ids": list(THREE)},
        66: {"state_filters": [], "producer_id_filters": [], "duration_filter": -1},
    }  # fmt: skip


def admin_bodies() -> dict[int, Any]:
    """Of topics, configurations, quotas, rules and users."""
    config = {"resource_type": TOPIC, "configs": []}
    rule = {
        "resource_type": TOPIC, "resource_name": "made", "principal": "User:x", "host": "h",
        "operation": 3, "permission_type": ALLOW,
    }  # fmt: skip
    rules = {
        "resource_type_filter": TOPIC, "resource_name_filter": "made", "principal_filter": "User:x",
        "host_filter": None, "operation": 1, "permission_type": 1,
    }  # fmt: skip

    asked = [{"name": name, "partition_indexes": [0]} for name in THREE]
    return {
        16: {},
        19: {"topics": [script_admin.new_topic(name) for name in ("seen", "seethrough", "nowhere")],
             "timeout_ms": 3000, "validate_only": True},
        20: versioned(
            6, {"topics": [{"name": "nowhere"}, {"name": "seethrough"}], "timeout_ms": 100},
            {"topic_names": ["nowhere", "seethrough"], "timeout_ms": 100},
        ),
        29: {**rules, "resource_name_filter": "seen", "principal_filter": "User:read"},
        30: {"creations": [rule]},
        31: {"filters": [rules]},
        32: {"resources": [
            *({"resource_type": TOPIC, "resource_name": t, "configuration_keys": ["retention.ms"]}
              for t in THREE),
            {"resource_type": 4, "resource_name": "1", "configuration_keys": ["num.io.threads"]},
        ]},
        33: {"resources": [{**config, "resource_name": t} for t in THREE], "validate_only": True},
        34: {"dirs": [{"path": "/nowhere", "topics": [{"name": "nowhere", "partitions": [0]}]}]},
        35: {"topics": [{"topic": "nowhere", "partitions": [0]}]},
        37: {"topics": [{"name": t, "count": 1, "assignments": None} for t in THREE],
             "timeout_ms": 3000, "validate_only": True},
        38: {"owner_principal_type": "User", "owner_principal_name": "x", "renewers": [],
             "max_lifetime_ms": -1},
        39: {"hmac": b"none", "renew_period_ms": -1},
        40: {"hmac": b"none", "expiry_time_period_ms": -1},
        41: {"owners": None},
        43: {"election_type": 0, "timeout_ms": 3000,
             "topic_partitions": [{"topic": "seen", "partitions": [0]}]},
        44: {"resources": [{**config, "resource_name": t} for t in THREE], "validate_only": True},
        45: {"timeout_ms": 3000, "topics": [
            {"name": "nowhere", "partitions": [{"partition_index": 0, "replicas": [1]}]}]},
        46: {"timeout_ms": 3000, "topics": None},
        48: {"components": [], "strict": False},
        49: {
            "entries": [{"entity": [{"entity_type": "user", "entity_name": "x"}],
                         "ops": [{"key": "producer_byte_rate", "value": 5.0, "remove": False}]}],
            "validate_only": True},
        50: {"users": [{"name": "x"}]},
        51: {"deletions": [{"name": "x", "mechanism": 1}], "upsertions": []},
        60: {"include_cluster_authorized_operations": True, "endpoint_type": 1},
        61: {"topics": asked},
    }  # fmt: skip


def bodies() -> dict[int, Any]:
    """One request for each API; those that would change something are for nothing, or a trial."""
    every = record_bodies() | group_bodies() | transaction_bodies() | admin_bodies()
    return dict(sorted(every.items()))
