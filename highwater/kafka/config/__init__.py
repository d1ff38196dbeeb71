"""server.properties: Kafka's names and defaults, as typed values.

A property `a.b.c` is the attribute `a_b_c`.  The annotation is Kafka's type of the property (`Int`
and `Long` differ in range only).  A default of None means "not given: see the property that stands
in for it", as `log.roll.hours` stands in for `log.roll.ms`.  The Python properties below give the
effective value.

Each property's row holds all that is known of it; the rows are in one module for each area
(`server_rows`, `log_rows`, …), and those of `unbuilt_rows` are not built.  `property_table` has
them all by name.  `sources` merges files, environment and flags, `checks` says which values are
allowed, and `listeners` reads the listener properties.  Unknown properties are kept in `originals`
with a warning, as in Kafka (`KafkaConfig`, `AbstractConfig`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from highwater.kafka.config.cleaner_rows import CleanerProperties
from highwater.kafka.config.coordinator_rows import CoordinatorProperties
from highwater.kafka.config.listeners import Listeners, parse_listeners
from highwater.kafka.config.log_rows import LogProperties
from highwater.kafka.config.property_row import DOUBLE_MAX, HOUR_MS, INT_MAX, LONG_MAX
from highwater.kafka.config.replication_rows import ReplicationProperties
from highwater.kafka.config.server_rows import BrokerProperties, NetworkProperties, QuotaProperties
from highwater.kafka.config.share_rows import ShareProperties
from highwater.kafka.config.topic_rows import (
    FLUSH_MS,
    RETENTION_MS,
    SEGMENT_JITTER_MS,
    SEGMENT_MS,
    first_given,
)

__all__ = ["DOUBLE_MAX", "HOUR_MS", "INT_MAX", "LONG_MAX", "Config"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(
    ShareProperties,
    CoordinatorProperties,
    ReplicationProperties,
    CleanerProperties,
    LogProperties,
    QuotaProperties,
    NetworkProperties,
    BrokerProperties,  # the last one's come first: a dataclass takes fields from its last base on
):
    """One broker's static configuration.  Times are milliseconds, sizes are bytes."""

    originals: Mapping[str, str] = field(
        default_factory=dict, compare=False, hash=False, repr=False
    )
    """The given values by property name, unknown properties included; tells defaults from given
    values.
    """

    def change(self, values: Mapping[str, object]) -> None:
        """Applies dynamic broker configuration; nothing else changes a configuration in use."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def parsed_listeners(self) -> Listeners:
        """The endpoints and their roles; parsed again at each call, so keep the result."""
        return parse_listeners(self)

    @property
    def metrics_host(self) -> str:
        """The host that the metrics port binds; "" is every interface."""
        given = self.highwater_metrics_host
        return self.parsed_listeners.bound[0].host if given is None else given

    @property
    def segment_ms(self) -> int:
        return first_given(self, SEGMENT_MS)

    @property
    def segment_jitter_ms(self) -> int:
        return first_given(self, SEGMENT_JITTER_MS)

    @property
    def retention_ms(self) -> int:
        """Any negative value means "for ever", -1."""
        return max(first_given(self, RETENTION_MS), -1)

    @property
    def flush_ms(self) -> int:
        return first_given(self, FLUSH_MS)
