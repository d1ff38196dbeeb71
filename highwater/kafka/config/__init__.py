"""server.properties: Kafka's names and defaults, as typed values.

A property `a.b.c` is the attribute `a_b_c`.  The annotation is Kafka's type of the property (`Int`
and `Long` differ in range only), and a default of None means "not given: see the property that
stands in for it", as `log.roll.ms` is stood in for by `log.roll.hours`.  The properties below
answer with the value that holds.

What is known of each property stands in its row, by area (`server_rows`, `log_rows`, …); the rows
of `unbuilt_rows` are not built.  `property_table` has all of them by name.  `sources` merges files,
environment and flags, `checks` says what a value may be, and `listeners` reads the listener
properties.  Unknown properties are kept in `originals` and warned
of, as Kafka does (`KafkaConfig`, `AbstractConfig`).
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
    CoordinatorProperties,
    ReplicationProperties,
    CleanerProperties,
    LogProperties,
    QuotaProperties,
    NetworkProperties,
    BrokerProperties,  # the last one's come first: a dataclass lists its bases from the last on
):
    """One broker's static configuration.  Times are milliseconds, sizes are bytes."""

    originals: Mapping[str, str] = field(
        default_factory=dict, compare=False, hash=False, repr=False
    )
    """What was given, by property name, unknown properties included; says what is a default and
    what is not.
    """

    def change(self, values: Mapping[str, object]) -> None:
        """Dynamic broker configuration: the one thing that changes a configuration in use."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def parsed_listeners(self) -> Listeners:
        """Endpoints, and the parts they play; parsed anew at each call, so keep it."""
        return parse_listeners(self)

    @property
    def metrics_host(self) -> str:
        """What the metrics port binds; "" is every interface."""
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
        """Anything negative is "for ever", -1."""
        return max(first_given(self, RETENTION_MS), -1)

    @property
    def flush_ms(self) -> int:
        return first_given(self, FLUSH_MS)
