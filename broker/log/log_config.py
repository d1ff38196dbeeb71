"""The configuration of one topic's log.

A topic's property (`retention.ms`) overrides the broker's (`log.retention.ms`).  Each field names
the property that it holds; types, defaults and synonyms are in the table of configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from highwater.kafka.config import HOUR_MS, LONG_MAX, Config
from highwater.kafka.config.property_table import KEPT, TOPIC
from highwater.kafka.config.topic_values import default_of, typed
from highwater.kafka.wire.compression import Compression


def of_topic(name: str) -> Any:
    """A field with the value of a topic's property."""
    return field(default=TOPIC[name].default, metadata={"row": TOPIC[name]})


def of_broker(name: str, default: Any) -> Any:
    """A field with the value of a broker's property that topics cannot override."""
    return field(default=default, metadata={"row": KEPT[name]})


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """One topic's log settings; immutable, so a change assigns another instance."""

    segment_bytes: int = of_topic("segment.bytes")
    segment_ms: int = of_topic("segment.ms")
    segment_jitter_ms: int = of_topic("segment.jitter.ms")
    """A segment is rolled earlier by a random time up to this, so that not all roll at once."""
    segment_index_bytes: int = of_topic("segment.index.bytes")
    retention_ms: int = of_topic("retention.ms")
    """-1: for ever."""
    retention_bytes: int = of_topic("retention.bytes")
    """-1: any size."""
    index_interval_bytes: int = of_topic("index.interval.bytes")
    max_message_bytes: int = of_topic("max.message.bytes")
    cleanup_policy: str = of_topic("cleanup.policy")
    delete_retention_ms: int = of_topic("delete.retention.ms")
    """How long a tombstone stays after it was first cleaned."""
    min_compaction_lag_ms: int = of_topic("min.compaction.lag.ms")
    max_compaction_lag_ms: int = of_topic("max.compaction.lag.ms")
    min_cleanable_dirty_ratio: float = of_topic("min.cleanable.dirty.ratio")
    message_timestamp_type: str = of_topic("message.timestamp.type")
    timestamp_before_max_ms: int = of_topic("message.timestamp.before.max.ms")
    timestamp_after_max_ms: int = of_topic("message.timestamp.after.max.ms")
    timestamp_difference_max_ms: int = of_topic("message.timestamp.difference.max.ms")
    """An older property than the two above; it stands in for either one that is not set."""
    compression_type: str = of_topic("compression.type")
    gzip_level: int = of_topic("compression.gzip.level")
    lz4_level: int = of_topic("compression.lz4.level")
    zstd_level: int = of_topic("compression.zstd.level")
    preallocate: bool = of_topic("preallocate")
    flush_messages: int = of_topic("flush.messages")
    flush_ms: int = of_topic("flush.ms")
    file_delete_delay_ms: int = of_topic("file.delete.delay.ms")
    producer_id_expiration_ms: int = of_broker("producer.id.expiration.ms", 24 * HOUR_MS)
    produce_validation: str = of_broker("highwater.produce.validation", "full")
    verify_transactions: bool = of_broker("transaction.partition.verification.enable", False)
    """Off for a log without a broker, which has no coordinator to ask."""

    @property
    def deletes(self) -> bool:
        """Whether old segments are deleted by time and size (a log only compacted keeps them)."""
        return "delete" in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def oldest_ms(self) -> int:
        """The limit of a record's age by the broker's clock."""
        given = self.timestamp_before_max_ms
        return self.timestamp_difference_max_ms if given == LONG_MAX else given

    @property
    def latest_ms(self) -> int:
        """The limit of a record's time ahead of the broker's clock."""
        given = self.timestamp_after_max_ms
        return self.timestamp_difference_max_ms if given == LONG_MAX else given

    @property
    def looks_inside(self) -> bool:
        """Whether the topic has rules for its records; clients' batches are then examined inside
        whatever highwater.produce.validation says.
        """
        limits = (self.oldest_ms, self.latest_ms)
        if self.compacts:
            return True
        return self.compression_type != "producer" or limits != (LONG_MAX, LONG_MAX)

    @property
    def room_bytes(self) -> int:
        """The disk space preallocated for a new segment."""
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
        """The age at which a segment rolls: less if its records must be compacted by then."""
        if self.compacts:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms

    @classmethod
    def of(cls, config: Config, overrides: Mapping[str, str] | None = None) -> LogConfig:
        """The broker's defaults, then a topic's properties.  Unknown ones are left out."""
        base = cls(**{f.name: default_of(config, f.metadata["row"]) for f in fields(cls)})
        return base.with_overrides(overrides) if overrides else base

    def with_overrides(self, overrides: Mapping[str, str]) -> LogConfig:
        """A topic's properties, by their names in Kafka, over these settings.

        Values that cannot be parsed are left out, as DescribeConfigs leaves them out.
        """
        values = typed(overrides)
        names = {f.name: f.metadata["row"].name for f in fields(self)}
        return replace(self, **{a: values[n] for a, n in names.items() if n in values})


DEFAULTS = frozenset(
    (
        *(name for row in TOPIC.values() for name in row.synonyms),
        *(f.metadata["row"].name for f in fields(LogConfig) if f.metadata["row"].name in KEPT),
    )
)
"""The broker's properties behind logs' settings: when one changes, the settings are rebuilt."""
