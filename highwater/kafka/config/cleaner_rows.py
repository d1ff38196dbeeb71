"""The rows of the log cleaner."""

from __future__ import annotations

from dataclasses import dataclass

from highwater.kafka.config.property_row import (
    DOUBLE_MAX,
    LONG_MAX,
    Double,
    Int,
    Long,
    Update,
    prop,
)


@dataclass(frozen=True, kw_only=True)
class CleanerProperties:
    """The properties of the log cleaner."""

    log_cleaner_enable: bool = prop(
        True, read_by="highwater.broker.server",
        test="test_properties::test_the_cleaner_can_be_switched_off",
        doc="Whether compacted logs are cleaned.",
    )  # fmt: skip
    log_cleaner_threads: Int = prop(
        1, at_least=0, update=Update.CLUSTER_WIDE, doubles=True,
        read_by="highwater.broker.log.cleaner.cleaner",
        test="test_cleaner_threads::test_cleaners_are_started_and_ended",
        doc="How many logs are cleaned at a time.",
    )  # fmt: skip
    log_cleaner_backoff_ms: Long = prop(
        15000, at_least=0, update=Update.CLUSTER_WIDE,
        read_by="highwater.broker.log.cleaner.cleaner",
        test="test_cleaner_threads::test_cleaners_are_started_and_ended",
        doc="How many milliseconds a cleaner rests if there is nothing to clean.",
    )  # fmt: skip
    log_cleaner_delete_retention_ms: Long = prop(
        86400000, at_least=0, topic="delete.retention.ms", update=Update.CLUSTER_WIDE,
        read_by="highwater.broker.log.cleaner.cleaner",
        test="test_work::test_a_tombstone_stays_until_its_horizon",
        doc="How many milliseconds a tombstone or a transaction's marker stays once it is cleaned; "
        "longer while a replica is out of the ISR.",
    )  # fmt: skip
    log_cleaner_min_compaction_lag_ms: Long = prop(
        0, at_least=0, topic="min.compaction.lag.ms", update=Update.CLUSTER_WIDE,
        read_by="highwater.broker.log.cleaner.plan", test="test_work::test_min_compaction_lag",
        doc="How many milliseconds a record is not compacted.",
    )  # fmt: skip
    log_cleaner_max_compaction_lag_ms: Long = prop(
        LONG_MAX, at_least=1, topic="max.compaction.lag.ms", update=Update.CLUSTER_WIDE,
        read_by="highwater.broker.log.cleaner.plan",
        test="test_work::test_max_compaction_lag_beats_the_dirty_ratio",
        doc="After how many milliseconds a record must be compacted.",
    )  # fmt: skip
    log_cleaner_min_cleanable_ratio: Double = prop(
        0.5, at_least=0, at_most=1, topic="min.cleanable.dirty.ratio", update=Update.CLUSTER_WIDE,
        read_by="highwater.broker.log.cleaner.plan", test="test_work::test_the_dirty_ratio_decides",
        doc="The part of a log that must be dirty for a cleaning.",
    )  # fmt: skip
    log_cleaner_dedupe_buffer_size: Long = prop(
        134217728, update=Update.CLUSTER_WIDE, read_by="highwater.broker.log.cleaner.cleaner",
        test="test_work::test_a_small_buffer_takes_several_rounds",
        doc="The memory of all cleaners' maps of keys, in bytes.",
    )  # fmt: skip
    log_cleaner_io_buffer_size: Int = prop(
        524288, at_least=0, update=Update.CLUSTER_WIDE,
        read_by="highwater.broker.log.cleaner.cleaner",
        test="test_cleaner_threads::test_the_memory_of_a_cleaner",
        doc="The memory of all cleaners' buffers, in bytes.",
    )  # fmt: skip
    log_cleaner_io_buffer_load_factor: Double = prop(
        0.9, update=Update.CLUSTER_WIDE, read_by="highwater.broker.log.cleaner.cleaner",
        test="test_cleaner_threads::test_the_memory_of_a_cleaner",
        doc="How full a cleaner's map of keys may become, from 0 to 1.",
    )  # fmt: skip
    log_cleaner_io_max_bytes_per_second: Double = prop(
        DOUBLE_MAX, update=Update.CLUSTER_WIDE, read_by="highwater.broker.log.cleaner.cleaner",
        test="test_work::test_a_process_that_is_killed_is_no_fault_of_the_log",
        doc="How many bytes a second all cleaners read and write.",
    )  # fmt: skip
