"""What a log needs to know of its topic's configuration.

A topic's property (`retention.ms`) overrides the broker's (`log.retention.ms`).  Where Kafka has a
broker's default in several units, `Config` says which of them holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from highwater.kafka.config import LONG_MAX, Config
from highwater.kafka.wire.compression import Compression

HOUR_MS = 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """One topic's log settings; immutable, so a change is the assignment of another one."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 168 * HOUR_MS
    segment_index_bytes: int = 10 << 20
    retention_ms: int = 168 * HOUR_MS
    """-1: for ever."""
    retention_bytes: int = -1
    """-1: any size."""
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1048588
    cleanup_policy: str = "delete"
    delete_retention_ms: int = 24 * HOUR_MS
    """How long a tombstone stays after it was first cleaned."""
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    min_cleanable_dirty_ratio: float = 0.5
    message_timestamp_type: str = "CreateTime"
    timestamp_before_max_ms: int = LONG_MAX
    timestamp_after_max_ms: int = LONG_MAX
    timestamp_difference_max_ms: int = LONG_MAX
    """Older than the two above: it stands in for either that is not set."""
    compression_type: str = "producer"
    gzip_level: int = -1
    lz4_level: int = 9
    zstd_level: int = 3
    segment_jitter_ms: int = 0
    """A segment is rolled up to so much sooner, by chance, so that not all are at once."""
    preallocate: bool = False
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    file_delete_delay_ms: int = 60000
    producer_id_expiration_ms: int = 86400000
    verify_transactions: bool = False
    """transaction.partition.verification.enable"""

    @property
    def deletes(self) -> bool:
        """Whether old segments go by time and size (a log that is only compacted keeps them)."""
        return "delete" in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def oldest_ms(self) -> int:
        """How far behind the broker's clock a record's timestamp may be."""
        given = self.timestamp_before_max_ms
        return self.timestamp_difference_max_ms if given == LONG_MAX else given

    @property
    def latest_ms(self) -> int:
        """How far ahead of the broker's clock a record's timestamp may be."""
        given = self.timestamp_after_max_ms
        return self.timestamp_difference_max_ms if given == LONG_MAX else given

    @property
    def looks_inside(self) -> bool:
        """Whether some clients' batches are opened before they are appended (`validation`)."""
        limits = (self.oldest_ms, self.latest_ms)
        return self.compression_type != "producer" or limits != (LONG_MAX, LONG_MAX)

    @property
    def room_bytes(self) -> int:
        """What the disk keeps for a new segment."""
        return self.segment_bytes if self.preallocate else 0

    @property
    def jitter_limit_ms(self) -> int:
        return min(self.segment_jitter_ms, self.roll_ms)

    def compression_level(self, codec: Compression) -> int | None:
        """None for a codec that has no levels."""
        levels = {
            Compression.GZIP: self.gzip_level,
            Compression.LZ4: self.lz4_level,
            Compression.ZSTD: self.zstd_level,
        }
        return levels.get(codec)

    @property
    def roll_ms(self) -> int:
        """When an active segment is too old: sooner where its records must be compacted by then."""
        if self.compacts:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms

    @classmethod
    def of(cls, config: Config, overrides: Mapping[str, str] | None = None) -> LogConfig:
        """The broker's defaults, and over them a topic's properties.  Unknown ones are left out."""
        base = cls(
            segment_bytes=config.log_segment_bytes,
            segment_ms=config.segment_ms,
            segment_index_bytes=config.log_index_size_max_bytes,
            retention_ms=config.retention_ms,
            retention_bytes=config.log_retention_bytes,
            index_interval_bytes=config.log_index_interval_bytes,
            max_message_bytes=config.message_max_bytes,
            cleanup_policy=config.log_cleanup_policy,
            delete_retention_ms=config.log_cleaner_delete_retention_ms,
            min_compaction_lag_ms=config.log_cleaner_min_compaction_lag_ms,
            max_compaction_lag_ms=config.log_cleaner_max_compaction_lag_ms,
            min_cleanable_dirty_ratio=config.log_cleaner_min_cleanable_ratio,
            message_timestamp_type=config.log_message_timestamp_type,
            timestamp_before_max_ms=config.log_message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.log_message_timestamp_after_max_ms,
            timestamp_difference_max_ms=config.log_message_timestamp_difference_max_ms,
            compression_type=config.compression_type,
            gzip_level=config.compression_gzip_level,
            lz4_level=config.compression_lz4_level,
            zstd_level=config.compression_zstd_level,
            segment_jitter_ms=config.segment_jitter_ms,
            preallocate=config.log_preallocate,
            flush_messages=config.log_flush_interval_messages,
            flush_ms=config.flush_ms,
            file_delete_delay_ms=config.log_segment_delete_delay_ms,
            producer_id_expiration_ms=config.producer_id_expiration_ms,
            verify_transactions=config.transaction_partition_verification_enable,
        )
        return base.with_overrides(overrides) if overrides else base

    def with_overrides(self, overrides: Mapping[str, str]) -> LogConfig:
        """A topic's properties, by their names in Kafka, over these settings."""
        changes: dict[str, int | float | str] = {}
        for name, attribute in _TOPIC_INTS.items():
            if name in overrides:
                changes[attribute] = int(overrides[name])
        for name, attribute in _TOPIC_STRINGS.items():
            if name in overrides:
                changes[attribute] = overrides[name]
        if "preallocate" in overrides:
            changes["preallocate"] = overrides["preallocate"].strip().lower() == "true"
        if "min.cleanable.dirty.ratio" in overrides:
            changes["min_cleanable_dirty_ratio"] = float(overrides["min.cleanable.dirty.ratio"])
        return replace(self, **changes)  # type: ignore[arg-type]


_TOPIC_INTS = {
    "segment.bytes": "segment_bytes",
    "segment.ms": "segment_ms",
    "segment.index.bytes": "segment_index_bytes",
    "retention.ms": "retention_ms",
    "retention.bytes": "retention_bytes",
    "index.interval.bytes": "index_interval_bytes",
    "max.message.bytes": "max_message_bytes",
    "flush.messages": "flush_messages",
    "flush.ms": "flush_ms",
    "file.delete.delay.ms": "file_delete_delay_ms",
    "delete.retention.ms": "delete_retention_ms",
    "min.compaction.lag.ms": "min_compaction_lag_ms",
    "max.compaction.lag.ms": "max_compaction_lag_ms",
    "message.timestamp.before.max.ms": "timestamp_before_max_ms",
    "message.timestamp.after.max.ms": "timestamp_after_max_ms",
    "message.timestamp.difference.max.ms": "timestamp_difference_max_ms",
    "compression.gzip.level": "gzip_level",
    "compression.lz4.level": "lz4_level",
    "compression.zstd.level": "zstd_level",
    "segment.jitter.ms": "segment_jitter_ms",
}
_TOPIC_STRINGS = {
    "cleanup.policy": "cleanup_policy",
    "message.timestamp.type": "message_timestamp_type",
    "compression.type": "compression_type",
}
