"""The rows of groups, transactions and producers."""

from __future__ import annotations

from dataclasses import dataclass

from highwater.kafka.config.property_row import (
    INT_MAX,
    Int,
    Kind,
    Long,
    Short,
    Update,
    prop,
)

ASSIGNORS = (
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
    "uniform",
    "range",
)
"""By the names of Kafka's classes, and by their own, as in Apache Kafka 4."""

MIGRATION_POLICIES = ("disabled", "upgrade", "downgrade", "bidirectional")


def _policy(value: str) -> str | None:
    if value.lower() in MIGRATION_POLICIES:
        return None
    return f"not one of its values; use one of {', '.join(MIGRATION_POLICIES)}"


@dataclass(frozen=True, kw_only=True)
class CoordinatorProperties:
    """Properties of groups and their offsets, transactions, and producer ids."""

    group_initial_rebalance_delay_ms: Int = prop(
        3000,
        read_by="highwater.broker.coordinator.group.coordinator",
        test="test_rebalance::"
        "test_the_first_rebalance_waits_for_its_delay_and_the_leader_hears_all",
        doc="How many milliseconds an empty group waits for more members before it is balanced.",
    )
    group_min_session_timeout_ms: Int = prop(
        6000, read_by="highwater.broker.coordinator.group.coordinator",
        test="test_property_effects::test_a_members_session_has_bounds",
        doc="The shortest session time-out of a member, in milliseconds.",
    )  # fmt: skip
    group_max_session_timeout_ms: Int = prop(
        1800000, read_by="highwater.broker.coordinator.group.coordinator",
        test="test_property_effects::test_a_members_session_has_bounds",
        doc="The longest session time-out of a member, in milliseconds.",
    )  # fmt: skip
    group_max_size: Int = prop(
        INT_MAX, at_least=1, read_by="highwater.broker.coordinator.group.coordinator",
        test="test_rebalance::test_a_group_has_room_for_so_many",
        doc="How many members a group may have.",
    )  # fmt: skip
    group_consumer_session_timeout_ms: Int = prop(
        45000, at_least=1, read_by="highwater.broker.coordinator.group.consumer_groups",
        test="test_consumer_groups::test_a_silent_members_session_ends",
        doc="How many milliseconds a member of the consumer protocol may be silent.",
    )  # fmt: skip
    group_consumer_min_session_timeout_ms: Int = prop(
        45000, at_least=1, read_by="highwater.kafka.config.checks",
        test="test_config::test_times_of_consumer_groups_lie_within_their_bounds",
        doc="The shortest session time-out of the consumer protocol, in milliseconds.",
    )  # fmt: skip
    group_consumer_max_session_timeout_ms: Int = prop(
        60000, at_least=1, read_by="highwater.kafka.config.checks",
        test="test_config::test_times_of_consumer_groups_lie_within_their_bounds",
        doc="The longest session time-out of the consumer protocol, in milliseconds.",
    )  # fmt: skip
    group_consumer_heartbeat_interval_ms: Int = prop(
        5000, at_least=1, read_by="highwater.broker.coordinator.group.consumer_groups",
        test="test_consumer_groups::test_a_member_joins_and_is_assigned_all",
        doc="How often members of the consumer protocol send heartbeats, in milliseconds.",
    )  # fmt: skip
    group_consumer_min_heartbeat_interval_ms: Int = prop(
        5000, at_least=1, read_by="highwater.kafka.config.checks",
        test="test_config::test_times_of_consumer_groups_lie_within_their_bounds",
        doc="The shortest heartbeat interval of the consumer protocol, in milliseconds.",
    )  # fmt: skip
    group_consumer_max_heartbeat_interval_ms: Int = prop(
        15000, at_least=1, read_by="highwater.kafka.config.checks",
        test="test_config::test_times_of_consumer_groups_lie_within_their_bounds",
        doc="The longest heartbeat interval of the consumer protocol, in milliseconds.",
    )  # fmt: skip
    group_consumer_max_size: Int = prop(
        INT_MAX, at_least=1, read_by="highwater.broker.coordinator.group.consumer_groups",
        test="test_consumer_groups::test_a_group_has_room_for_so_many",
        doc="How many members a group of the consumer protocol may have.",
    )  # fmt: skip
    group_consumer_assignors: str = prop(
        "org.apache.kafka.coordinator.group.assignor.UniformAssignor,"
        "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
        kind=Kind.LIST, choices=ASSIGNORS,
        differs={"range": "classes of a user's own cannot be loaded"},
        read_by="highwater.broker.coordinator.group.consumer_groups",
        test="test_consumer_groups::test_the_first_assignor_is_the_default",
        doc="The assignors of the consumer protocol; the first one is the default.",
    )  # fmt: skip
    group_consumer_migration_policy: str = prop(
        "bidirectional", wrong=_policy,
        differs={"default": "as in Apache Kafka 4: members roll from one protocol to the other"},
        read_by="highwater.broker.coordinator.group.consumer_groups",
        test="test_classic_members::test_the_policy_decides",
        doc="Whether a group with members changes its protocol: disabled, upgrade (to the consumer "
        "protocol), downgrade (to the classic one) or bidirectional.",
    )  # fmt: skip
    offset_metadata_max_bytes: Int = prop(
        4096, read_by="highwater.broker.handlers.offset_commit",
        test="test_property_effects::test_metadata_of_offsets_has_a_bound",
        doc="The largest metadata of a committed offset, in bytes.",
    )  # fmt: skip
    offsets_commit_timeout_ms: Int = prop(
        5000, at_least=1, read_by="highwater.broker.coordinator.group.coordinator",
        test="test_groups::test_stable_offsets_are_not_waited_for_without_end",
        doc="How many milliseconds a commit waits for its replicas.",
    )  # fmt: skip
    offsets_retention_minutes: Int = prop(
        10080, at_least=1, read_by="highwater.broker.coordinator.group.coordinator",
        test="test_group_offsets::test_a_groups_offsets_expire_after_it_became_empty",
        doc="How many minutes the offsets of an empty group are kept.",
    )  # fmt: skip
    offsets_retention_check_interval_ms: Long = prop(
        600000, at_least=1, read_by="highwater.broker.coordinator.group.coordinator",
        test="test_property_effects::test_offsets_are_looked_at_in_their_interval",
        doc="How often old offsets are removed, in milliseconds.",
    )  # fmt: skip
    offsets_topic_num_partitions: Int = prop(
        50, at_least=1, read_by="highwater.broker.coordinator.group.coordinator",
        test="test_topics::test_metadata_creates_internal_topics_with_their_configuration",
        doc="How many partitions __consumer_offsets has.",
    )  # fmt: skip
    offsets_topic_replication_factor: Short = prop(
        3, at_least=1, read_by="highwater.broker.admin.topic_znodes",
        test="test_topics::test_metadata_creates_internal_topics_with_their_configuration",
        doc="How many replicas __consumer_offsets has.",
    )  # fmt: skip
    offsets_topic_segment_bytes: Int = prop(
        104857600, at_least=1, read_by="highwater.broker.admin.topic_znodes",
        test="test_topics::test_metadata_creates_internal_topics_with_their_configuration",
        doc="The segment size of __consumer_offsets, in bytes.",
    )  # fmt: skip
    offsets_topic_compression_codec: Int = prop(
        0, read_by="highwater.broker.coordinator.group.coordinator",
        test="test_property_effects::test_offsets_are_compressed",
        doc="The compression of __consumer_offsets, by its number.",
    )  # fmt: skip
    transaction_state_log_num_partitions: Int = prop(
        50, at_least=1, read_by="highwater.broker.coordinator.transaction.coordinator",
        test="test_topics::test_metadata_creates_internal_topics_with_their_configuration",
        doc="How many partitions __transaction_state has.",
    )  # fmt: skip
    transaction_state_log_replication_factor: Short = prop(
        3, at_least=1, read_by="highwater.broker.admin.topic_znodes",
        test="test_topics::test_metadata_creates_internal_topics_with_their_configuration",
        doc="How many replicas __transaction_state has.",
    )  # fmt: skip
    transaction_state_log_min_isr: Int = prop(
        2, at_least=1, read_by="highwater.broker.admin.topic_znodes",
        test="test_topics::test_metadata_creates_internal_topics_with_their_configuration",
        doc="How many replicas of __transaction_state must be in sync.",
    )  # fmt: skip
    transaction_state_log_segment_bytes: Int = prop(
        104857600, at_least=1, read_by="highwater.broker.admin.topic_znodes",
        test="test_topics::test_metadata_creates_internal_topics_with_their_configuration",
        doc="The segment size of __transaction_state, in bytes.",
    )  # fmt: skip
    transaction_max_timeout_ms: Int = prop(
        900000, at_least=1, read_by="highwater.broker.coordinator.transaction.coordinator",
        test="test_property_effects::test_transactions_have_a_longest_time",
        doc="The longest time-out of a transaction, in milliseconds.",
    )  # fmt: skip
    transaction_abort_timed_out_transaction_cleanup_interval_ms: Int = prop(
        10000, at_least=1, read_by="highwater.broker.coordinator.transaction.coordinator",
        test="test_property_effects::test_timed_out_transactions_are_looked_for_in_their_interval",
        doc="How often transactions that have timed out are looked for, in milliseconds.",
    )  # fmt: skip
    transaction_remove_expired_transaction_cleanup_interval_ms: Int = prop(
        3600000,
        at_least=1,
        read_by="highwater.broker.coordinator.transaction.coordinator",
        test="test_property_effects::"
        "test_expired_transactional_ids_are_looked_for_in_their_interval",
        doc="How often expired transactional ids are looked for, in milliseconds.",
    )
    transaction_partition_verification_enable: bool = prop(
        True, update=Update.CLUSTER_WIDE, read_by="highwater.broker.log.log",
        test="test_transactions::test_a_transaction_begins_with_its_verification_alone",
        doc="Whether a leader asks the coordinator before a transaction's first append (KIP-890).",
    )  # fmt: skip
    transactional_id_expiration_ms: Int = prop(
        604800000, at_least=1, read_by="highwater.broker.coordinator.transaction.coordinator",
        test="test_steps::test_expiry",
        doc="How many milliseconds an unused transactional id is kept.",
    )  # fmt: skip
    producer_id_expiration_ms: Int = prop(
        86400000, at_least=1, update=Update.CLUSTER_WIDE, read_by="highwater.broker.log.recovery",
        test="test_producers::test_expiry",
        doc="How many milliseconds a log remembers an idle producer.",
    )  # fmt: skip
    producer_id_expiration_check_interval_ms: Int = prop(
        600000, at_least=1, read_by="highwater.broker.log.log_manager",
        test="test_manager_times::test_producers_are_looked_at_in_their_interval",
        doc="How often expired producers are looked for, in milliseconds.",
    )  # fmt: skip
