"""The rows of topics and their defaults, and of logs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from highwater.kafka.config.property_row import LONG_MAX, Int, Kind, Long, State, Update, prop

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIERED = "tiered storage is not built"
_RELEASE = re.compile(r"(0\.(8\.[0-2]|9\.0|10\.[0-2]|11\.0)|1\.[01]|2\.[0-8]|3\.[0-9])(?![0-9])")


def _no_release(text: str) -> str | None:
    return None if _RELEASE.match(text) else "no release of Kafka's; give one such as 2.6"


def _no_zero(text: str) -> str | None:
    return "0 is no level of gzip; use -1, or 1 to 9" if int(text) == 0 else None


@dataclass(frozen=True, kw_only=True)
class LogProperties:
    """Topics, their defaults, and their logs."""

    num_partitions: Int = prop(
        1, at_least=1, read_by="highwater.broker.admin.topic_znodes",
        test="test_topics::test_defaults_assignments_and_validation_only",
        doc="How many partitions a topic has by default.",
    )  # fmt: skip
    default_replication_factor: Int = prop(
        1, at_least=1, read_by="highwater.broker.admin.topic_znodes",
        test="test_topics::test_defaults_assignments_and_validation_only",
        differs={"range": "a partition without replicas cannot be made"},
        doc="How many replicas a partition has by default.",
    )  # fmt: skip
    auto_create_topics_enable: bool = prop(
        True, read_by="highwater.broker.handlers.metadata",
        test="test_property_effects::test_topics_are_not_created_by_their_names_alone",
        doc="Whether a topic is created when a client first names it.",
    )  # fmt: skip
    delete_topic_enable: bool = prop(
        True, read_by="highwater.broker.handlers.delete_topics",
        test="test_topics::test_deletion_switched_off", doc="Whether topics can be deleted.",
    )  # fmt: skip
    min_insync_replicas: Int = prop(
        1, at_least=1, topic="min.insync.replicas", update=Update.CLUSTER_WIDE,
        read_by="highwater.broker.replica.replica_manager",
        test="test_partition::test_min_isr_at_append_and_at_the_hw",
        doc="How many replicas must be in sync for a write with acks=all.",
    )  # fmt: skip
    unclean_leader_election_enable: bool = prop(
        False, topic="unclean.leader.election.enable", update=Update.CLUSTER_WIDE,
        read_by="highwater.controller.shell.term",
        test="test_brokers::test_unclean_election_by_the_clusters_default",
        doc="Whether a replica that is not in sync may become leader, at the price of lost "
        "records.",
    )  # fmt: skip
    compression_type: str = prop(
        "producer", choices=COMPRESSION_TYPES, topic="compression.type", update=Update.CLUSTER_WIDE,
        read_by="highwater.broker.log.validation",
        test="test_produce_validation::test_a_log_holds_its_topics_codec",
        doc="The compression of stored batches; `producer` keeps what was sent.",
    )  # fmt: skip
    message_max_bytes: Int = prop(
        1048588, at_least=0, topic="max.message.bytes", update=Update.CLUSTER_WIDE,
        read_by="highwater.broker.log.validation",
        test="test_produce_validation::test_a_batch_that_grows_too_large_is_refused",
        doc="The largest record batch that is accepted, in bytes.",
    )  # fmt: skip
    highwater_produce_validation: str = prop(
        "full", choices=("full", "headers"), update=Update.CLUSTER_WIDE,
        read_by="highwater.broker.log.validation",
        test="test_produce_validation::test_headers_alone_are_checked_where_that_is_asked",
        doc="What of a client's batch is checked: `full`, as Kafka does; `headers` leaves the "
        "records alone, so that junk can be acknowledged, and is for benchmarks.",
    )  # fmt: skip
    log_segment_bytes: Int = prop(
        1073741824, at_least=14, topic="segment.bytes", update=Update.CLUSTER_WIDE,
        read_by="highwater.broker.log.log", test="test_log::test_rolling_by_size_and_time",
        doc="The largest size of a segment, in bytes.",
    )  # fmt: skip
    log_roll_ms: Long | None = prop(
        None, at_least=1, update=Update.CLUSTER_WIDE, read_by="highwater.broker.log.log_config",
        test="test_log::test_rolling_by_size_and_time",
        differs={"range": "KafkaConfig refuses it as well, later"},
        doc="After how many milliseconds a new segment begins; log.roll.hours, if unset.",
    )  # fmt: skip
    log_roll_hours: Int = prop(
        168, at_least=1, read_by="highwater.broker.log.log_config",
        test="test_log_config::test_a_segment_is_rolled_when_the_broker_says",
        doc="After how many hours a new segment begins.",
    )  # fmt: skip
    log_roll_jitter_ms: Long | None = prop(
        None, at_least=0, update=Update.CLUSTER_WIDE, read_by="highwater.broker.log.log_config",
        test="test_segment_room::test_a_segment_is_rolled_sooner_by_its_jitter",
        differs={"range": "KafkaConfig refuses it as well, later"},
        doc="How many milliseconds at most are taken off log.roll.ms at random; "
        "log.roll.jitter.hours, if unset.",
    )  # fmt: skip
    log_roll_jitter_hours: Int = prop(
        0, at_least=0, read_by="highwater.broker.log.log_config",
        test="test_log_config::test_each_property_of_the_broker_is_what_the_log_has",
        doc="How many hours at most are taken off log.roll.ms at random.",
    )  # fmt: skip
    log_retention_ms: Long | None = prop(
        None, update=Update.CLUSTER_WIDE, read_by="highwater.broker.log.retention",
        test="test_log::test_retention_by_size_and_time",
        doc="How many milliseconds records are kept, -1 for ever; log.retention.minutes, if unset.",
    )  # fmt: skip
    log_retention_minutes: Int | None = prop(
        None, read_by="highwater.broker.log.retention",
        test="test_log_config::test_a_log_keeps_records_as_long_as_the_broker_says",
        doc="How many minutes records are kept; log.retention.hours, if unset.",
    )  # fmt: skip
    log_retention_hours: Int = prop(
        168, read_by="highwater.broker.log.retention",
        test="test_log_config::test_a_log_keeps_records_as_long_as_the_broker_says",
        doc="How many hours records are kept; -1 for ever.",
    )  # fmt: skip
    log_retention_bytes: Long = prop(
        -1, topic="retention.bytes", update=Update.CLUSTER_WIDE,
        read_by="highwater.broker.log.retention", test="test_log::test_retention_by_size_and_time",
        doc="How large a partition's log may grow, in bytes; -1 for no limit.",
    )  # fmt: skip
    log_retention_check_interval_ms: Long = prop(
        300000, at_least=1, read_by="highwater.broker.log.log_manager",
        test="test_log_manager::test_what_is_done_now_and_then",
        doc="How often old segments are looked for, in milliseconds.",
    )  # fmt: skip
    log_initial_task_delay_ms: Long = prop(
        30000, at_least=0, read_by="highwater.broker.log.log_manager",
        test="test_manager_times::test_retention_begins_after_the_initial_delay",
        doc="How many milliseconds after the start the logs' first checks begin.",
    )  # fmt: skip
    log_local_retention_ms: Long = prop(
        -2, at_least=-2, topic="local.retention.ms", state=State.WITHOUT_EFFECT, reason=TIERED,
        update=Update.CLUSTER_WIDE,
        doc="How long segments stay here with tiered storage, in milliseconds.",
    )  # fmt: skip
    log_local_retention_bytes: Long = prop(
        -2, at_least=-2, topic="local.retention.bytes", state=State.WITHOUT_EFFECT, reason=TIERED,
        update=Update.CLUSTER_WIDE,
        doc="How many bytes stay here with tiered storage.",
    )  # fmt: skip
    log_cleanup_policy: str = prop(
        "delete", kind=Kind.LIST, choices=("delete", "compact"), topic="cleanup.policy",
        update=Update.CLUSTER_WIDE, read_by="highwater.broker.log.log_config",
        test="test_cleaner_retention::test_compact_and_delete_does_both",
        doc="What becomes of old records: `delete`, `compact`, or both.",
    )  # fmt: skip
    log_index_interval_bytes: Int = prop(
        4096, at_least=0, topic="index.interval.bytes", update=Update.CLUSTER_WIDE,
        read_by="highwater.broker.log.log",
        test="test_log::test_every_read_is_what_the_batches_say",
        doc="How many bytes of a log lie between two entries of its index.",
    )  # fmt: skip
    log_index_size_max_bytes: Int = prop(
        10485760, at_least=4, topic="segment.index.bytes", update=Update.CLUSTER_WIDE,
        read_by="highwater.broker.log.log",
        test="test_manager_times::test_a_segment_is_rolled_when_its_index_is_full",
        doc="The largest size of an index, in bytes.",
    )  # fmt: skip
    log_preallocate: bool = prop(
        False, topic="preallocate", update=Update.CLUSTER_WIDE,
        read_by="highwater.broker.log.log_config",
        test="test_segment_room::test_a_preallocated_segment_holds_its_room_until_it_is_rolled",
        doc="Whether a new segment's file is made in its full size.",
    )  # fmt: skip
    log_flush_interval_messages: Long = prop(
        LONG_MAX, at_least=1, topic="flush.messages", update=Update.CLUSTER_WIDE,
        read_by="highwater.broker.log.log", test="test_log::test_flush_moves_the_recovery_point",
        doc="After how many records a log is flushed to disk.",
    )  # fmt: skip
    log_flush_interval_ms: Long | None = prop(
        None, update=Update.CLUSTER_WIDE, read_by="highwater.broker.log.log_manager",
        test="test_manager_times::test_a_log_is_flushed_in_time",
        doc="After how many milliseconds records are flushed to disk; "
        "log.flush.scheduler.interval.ms, if unset.",
    )  # fmt: skip
    log_flush_scheduler_interval_ms: Long = prop(
        LONG_MAX, read_by="highwater.broker.log.log_manager",
        test="test_manager_times::test_a_log_is_flushed_in_time",
        doc="How often logs to be flushed are looked for, in milliseconds.",
    )  # fmt: skip
    log_flush_offset_checkpoint_interval_ms: Int = prop(
        60000, at_least=0, read_by="highwater.broker.log.log_manager",
        test="test_manager_times::test_each_checkpoint_has_its_interval",
        doc="How often the recovery points are written, in milliseconds.",
    )  # fmt: skip
    log_flush_start_offset_checkpoint_interval_ms: Int = prop(
        60000, at_least=0, read_by="highwater.broker.log.log_manager",
        test="test_manager_times::test_each_checkpoint_has_its_interval",
        doc="How often the log start offsets are written, in milliseconds.",
    )  # fmt: skip
    log_segment_delete_delay_ms: Long = prop(
        60000, at_least=0, topic="file.delete.delay.ms", update=Update.CLUSTER_WIDE,
        read_by="highwater.broker.log.log_manager", test="test_log_manager::test_deletion",
        doc="How many milliseconds a deleted file stays on the disk.",
    )  # fmt: skip
    log_message_format_version: str = prop(
        "3.0-IV1", topic="message.format.version", state=State.WITHOUT_EFFECT,
        reason="all records are stored in version 2, as by Kafka since 3.0", wrong=_no_release,
        doc="The version of the record format; without effect since 3.0.",
    )  # fmt: skip
    log_message_timestamp_type: str = prop(
        "CreateTime", choices=("CreateTime", "LogAppendTime"), topic="message.timestamp.type",
        update=Update.CLUSTER_WIDE, read_by="highwater.broker.log.log",
        test="test_log::test_log_append_time",
        doc="Whose time a record has: CreateTime or LogAppendTime.",
    )  # fmt: skip
    log_message_timestamp_difference_max_ms: Long = prop(
        LONG_MAX, at_least=0, topic="message.timestamp.difference.max.ms",
        update=Update.CLUSTER_WIDE, read_by="highwater.broker.log.log_config",
        test="test_produce_validation::test_timestamps_have_limits",
        doc="How many milliseconds a record's time may differ from the broker's.",
    )  # fmt: skip
    log_message_timestamp_before_max_ms: Long = prop(
        LONG_MAX, at_least=0, topic="message.timestamp.before.max.ms", update=Update.CLUSTER_WIDE,
        read_by="highwater.broker.log.log_config",
        test="test_produce_validation::test_timestamps_have_limits",
        doc="How many milliseconds a record's time may lie before the broker's.",
    )  # fmt: skip
    log_message_timestamp_after_max_ms: Long = prop(
        LONG_MAX, at_least=0, topic="message.timestamp.after.max.ms", update=Update.CLUSTER_WIDE,
        read_by="highwater.broker.log.log_config",
        test="test_produce_validation::test_timestamps_have_limits",
        doc="How many milliseconds a record's time may lie after the broker's.",
    )  # fmt: skip
    log_message_downconversion_enable: bool = prop(
        True, topic="message.downconversion.enable", state=State.WITHOUT_EFFECT,
        update=Update.CLUSTER_WIDE,
        reason="no version of Fetch is offered for which records would have to be converted",
        doc="Whether records are converted for old consumers.",
    )  # fmt: skip
    compression_gzip_level: Int = prop(
        -1, at_least=-1, at_most=9, wrong=_no_zero, topic="compression.gzip.level",
        update=Update.CLUSTER_WIDE, read_by="highwater.broker.log.log_config",
        test="test_property_effects::test_a_log_is_compressed_at_its_level",
        doc="The level of gzip; -1 for its default.",
    )  # fmt: skip
    compression_lz4_level: Int = prop(
        9, at_least=1, at_most=17, topic="compression.lz4.level", update=Update.CLUSTER_WIDE,
        read_by="highwater.broker.log.log_config",
        test="test_property_effects::test_a_log_is_compressed_at_its_level",
        doc="The level of lz4.",
    )  # fmt: skip
    compression_zstd_level: Int = prop(
        3, at_least=-131072, at_most=22, topic="compression.zstd.level", update=Update.CLUSTER_WIDE,
        read_by="highwater.broker.log.log_config",
        test="test_property_effects::test_a_log_is_compressed_at_its_level",
        doc="The level of zstd.",
    )  # fmt: skip
