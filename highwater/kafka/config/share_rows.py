"""The rows of share groups and of their coordinator: of Apache Kafka 4.2, as 3.9 knew few of
them."""

from __future__ import annotations

from dataclasses import dataclass

from highwater.kafka.config.property_row import Int, Short, prop

_GROUPS = "highwater.broker.coordinator.group.share_groups"
_CHECKS = "highwater.kafka.config.checks"
_BOUNDS = "test_config::test_times_of_share_groups_lie_within_their_bounds"
_COORDINATOR = "highwater.broker.coordinator.share.coordinator"
_LEADERS = "highwater.broker.share.share_partitions"


@dataclass(frozen=True, kw_only=True)
class ShareProperties:
    """Properties of share groups, and of the coordinator that keeps their state."""

    group_share_session_timeout_ms: Int = prop(
        45000, at_least=1, read_by=_GROUPS,
        test="test_share_groups::test_a_silent_members_session_ends",
        doc="How many milliseconds a member of a share group may be silent.",
    )  # fmt: skip
    group_share_min_session_timeout_ms: Int = prop(
        45000, at_least=1, read_by=_CHECKS, test=_BOUNDS,
        doc="The shortest session time-out of share groups, in milliseconds.",
    )  # fmt: skip
    group_share_max_session_timeout_ms: Int = prop(
        60000, at_least=1, read_by=_CHECKS, test=_BOUNDS,
        doc="The longest session time-out of share groups, in milliseconds.",
    )  # fmt: skip
    group_share_heartbeat_interval_ms: Int = prop(
        5000, at_least=1, read_by=_GROUPS,
        test="test_share_groups::test_a_member_joins_and_is_assigned_all",
        doc="How often members of share groups send heartbeats, in milliseconds.",
    )  # fmt: skip
    group_share_min_heartbeat_interval_ms: Int = prop(
        5000, at_least=1, read_by=_CHECKS, test=_BOUNDS,
        doc="The shortest heartbeat interval of share groups, in milliseconds.",
    )  # fmt: skip
    group_share_max_heartbeat_interval_ms: Int = prop(
        15000, at_least=1, read_by=_CHECKS, test=_BOUNDS,
        doc="The longest heartbeat interval of share groups, in milliseconds.",
    )  # fmt: skip
    group_share_max_size: Int = prop(
        200, at_least=1, at_most=1000, read_by=_GROUPS,
        test="test_share_groups::test_a_group_has_room_for_so_many",
        doc="How many members a share group may have.",
    )  # fmt: skip
    group_share_record_lock_duration_ms: Int = prop(
        30000, at_least=1000, at_most=3600000, read_by=_LEADERS,
        test="test_share_fetch::test_a_lock_ends_after_its_time",
        doc="How many milliseconds a member of a share group has a record to itself.",
    )  # fmt: skip
    group_share_min_record_lock_duration_ms: Int = prop(
        15000, at_least=1000, at_most=30000, read_by=_CHECKS, test=_BOUNDS,
        doc="The shortest lock of a record, in milliseconds.",
    )  # fmt: skip
    group_share_max_record_lock_duration_ms: Int = prop(
        60000, at_least=30000, at_most=3600000, read_by=_CHECKS, test=_BOUNDS,
        doc="The longest lock of a record, in milliseconds.",
    )  # fmt: skip
    share_coordinator_state_topic_num_partitions: Int = prop(
        50, at_least=1, read_by=_COORDINATOR,
        test="test_topics::test_the_topic_of_share_groups_has_its_configuration",
        doc="How many partitions __share_group_state has.",
    )  # fmt: skip
    share_coordinator_state_topic_replication_factor: Short = prop(
        3, at_least=1, read_by="highwater.broker.admin.topic_znodes",
        test="test_topics::test_the_topic_of_share_groups_has_its_configuration",
        doc="How many replicas __share_group_state has.",
    )  # fmt: skip
    share_coordinator_state_topic_min_isr: Short = prop(
        2, at_least=1, read_by="highwater.broker.admin.topic_znodes",
        test="test_topics::test_the_topic_of_share_groups_has_its_configuration",
        doc="How many replicas of __share_group_state must be in sync.",
    )  # fmt: skip
    share_coordinator_state_topic_segment_bytes: Int = prop(
        104857600, at_least=1, read_by="highwater.broker.admin.topic_znodes",
        test="test_topics::test_the_topic_of_share_groups_has_its_configuration",
        doc="The segment size of __share_group_state, in bytes.",
    )  # fmt: skip
    share_coordinator_state_topic_compression_codec: Int = prop(
        0, read_by=_COORDINATOR,
        test="test_share_coordinator::test_records_are_compressed",
        doc="The compression of __share_group_state, by its number.",
    )  # fmt: skip
    share_coordinator_snapshot_update_records_per_snapshot: Int = prop(
        500, at_least=0, read_by=_COORDINATOR,
        test="test_share_coordinator::test_a_snapshot_comes_after_so_many_updates",
        doc="How many updates of a share-partition's state are written between two snapshots; at "
        "most 500.",
    )  # fmt: skip
    share_coordinator_write_timeout_ms: Int = prop(
        5000, at_least=1, read_by=_COORDINATOR,
        test="test_share_coordinator::test_a_write_waits_for_its_replicas_so_long",
        doc="How many milliseconds a write of the share coordinator waits for its replicas.",
    )  # fmt: skip
    share_coordinator_cold_partition_snapshot_interval_ms: Int = prop(
        300000, at_least=1, read_by=_COORDINATOR,
        test="test_share_coordinator::test_old_records_are_deleted",
        doc="How often snapshots that have become as old are written again, in milliseconds.",
    )  # fmt: skip
    share_coordinator_state_topic_prune_interval_ms: Int = prop(
        300000, at_least=1, read_by=_COORDINATOR,
        test="test_share_coordinator::test_old_records_are_deleted",
        doc="How often records that no snapshot needs are deleted, in milliseconds.",
    )  # fmt: skip
    group_share_partition_max_record_locks: Int = prop(
        2000, at_least=100, at_most=10000, read_by=_LEADERS,
        test="test_share_fetch::test_so_many_records_are_in_flight",
        doc="How many records of a partition a share group may have in flight.",
    )  # fmt: skip
    group_share_delivery_count_limit: Int = prop(
        5, at_least=2, at_most=10, read_by=_LEADERS,
        test="test_share_fetch::test_a_record_is_delivered_so_often",
        doc="How often a record is delivered to a share group before it is given up.",
    )  # fmt: skip
    group_share_max_share_sessions: Int = prop(
        2000, at_least=1, read_by=_LEADERS,
        test="test_share_fetch::test_so_many_sessions_are_open",
        doc="How many members of share groups may have a session with this broker.",
    )  # fmt: skip
