"""The rows of share groups and of their coordinator: of Apache Kafka 4.2, as 3.9 knew few of
them."""

from __future__ import annotations

from dataclasses import dataclass

from highwater.kafka.config.property_row import Int, Short, prop

_COORDINATOR = "highwater.broker.coordinator.share.coordinator"


@dataclass(frozen=True, kw_only=True)
class ShareProperties:
    """Properties of share groups, and of the coordinator that keeps their state."""

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
