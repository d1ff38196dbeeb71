"""The configuration of topics: what may be set, what it may hold, and which broker property is its
default.

A topic's overrides are in /config/topics/T as text.  What is not overridden follows the broker's
property, and there may be several of those (`log.retention.ms`, `.minutes`, `.hours`), the first
given one wins.

Source: org.apache.kafka.storage.internals.log.LogConfig, ServerTopicConfigSynonyms.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from highwater.kafka.config import INT_MAX, LONG_MAX, Config
from highwater.kafka.config.checks import COMPRESSION_TYPES
from highwater.kafka.config.sources import text_of
from highwater.kafka.errors import ApiError, ErrorCode

Value = bool | int | float | str


@dataclass(frozen=True, slots=True)
class TopicProperty:
    """One property.  `kind` is Kafka's type; `attribute` the Config attribute that holds its
    default.
    """

    name: str
    kind: str
    attribute: str | None
    synonyms: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    default: Value = ""


def _property(
    name: str, kind: str, attribute: str | None, *synonyms: str, **rules: Any
) -> TopicProperty:
    return TopicProperty(name, kind, attribute, synonyms, **rules)


_TABLE = (
    _property("cleanup.policy", "list", "log_cleanup_policy", "log.cleanup.policy",
              choices=("compact", "delete")),
    _property("compression.gzip.level", "int", "compression_gzip_level", "compression.gzip.level",
              minimum=-1, maximum=9),
    _property("compression.lz4.level", "int", "compression_lz4_level", "compression.lz4.level",
              minimum=1, maximum=17),
    _property("compression.type", "string", "compression_type", "compression.type",
              choices=COMPRESSION_TYPES),
    _property("compression.zstd.level", "int", "compression_zstd_level", "compression.zstd.level",
              minimum=-131072, maximum=22),
    _property("delete.retention.ms", "long", "log_cleaner_delete_retention_ms",
              "log.cleaner.delete.retention.ms", minimum=0),
    _property("file.delete.delay.ms", "long", "log_segment_delete_delay_ms",
              "log.segment.delete.delay.ms", minimum=0),
    _property("flush.messages", "long", "log_flush_interval_messages",
              "log.flush.interval.messages", minimum=1),
    _property("flush.ms", "long", "flush_ms",
              "log.flush.interval.ms", "log.flush.scheduler.interval.ms", minimum=0),
    _property("follower.replication.throttled.replicas", "list", None),
    _property("index.interval.bytes", "int", "log_index_interval_bytes",
              "log.index.interval.bytes", minimum=0),
    _property("leader.replication.throttled.replicas", "list", None),
    _property("local.retention.bytes", "long", "log_local_retention_bytes",
              "log.local.retention.bytes", minimum=-2),
    _property("local.retention.ms", "long", "log_local_retention_ms", "log.local.retention.ms",
              minimum=-2),
    _property("max.compaction.lag.ms", "long", "log_cleaner_max_compaction_lag_ms",
              "log.cleaner.max.compaction.lag.ms", minimum=1),
    _property("max.message.bytes", "int", "message_max_bytes", "message.max.bytes", minimum=0),
    _property("message.downconversion.enable", "boolean", "log_message_downconversion_enable",
              "log.message.downconversion.enable"),
    _property("message.format.version", "string", "log_message_format_version",
              "log.message.format.version"),
    _property("message.timestamp.after.max.ms", "long", "log_message_timestamp_after_max_ms",
              "log.message.timestamp.after.max.ms", minimum=0),
    _property("message.timestamp.before.max.ms", "long", "log_message_timestamp_before_max_ms",
              "log.message.timestamp.before.max.ms", minimum=0),
    _property("message.timestamp.difference.max.ms", "long",
              "log_message_timestamp_difference_max_ms",
              "log.message.timestamp.difference.max.ms", minimum=0),
    _property("message.timestamp.type", "string", "log_message_timestamp_type",
              "log.message.timestamp.type", choices=("CreateTime", "LogAppendTime")),
    _property("min.cleanable.dirty.ratio", "double", "log_cleaner_min_cleanable_ratio",
              "log.cleaner.min.cleanable.ratio", minimum=0, maximum=1),
    _property("min.compaction.lag.ms", "long", "log_cleaner_min_compaction_lag_ms",
              "log.cleaner.min.compaction.lag.ms", minimum=0),
    _property("min.insync.replicas", "int", "min_insync_replicas", "min.insync.replicas",
              minimum=1),
    _property("preallocate", "boolean", "log_preallocate", "log.preallocate"),
    _property("remote.log.copy.disable", "boolean", None, default=False),
    _property("remote.log.delete.on.disable", "boolean", None, default=False),
    _property("remote.storage.enable", "boolean", None, default=False),
    _property("retention.bytes", "long", "log_retention_bytes", "log.retention.bytes"),
    _property("retention.ms", "long", "retention_ms",
              "log.retention.ms", "log.retention.minutes", "log.retention.hours", minimum=-1),
    _property("segment.bytes", "int", "log_segment_bytes", "log.segment.bytes", minimum=14),
    _property("segment.index.bytes", "int", "log_index_size_max_bytes",
              "log.index.size.max.bytes", minimum=4),
    _property("segment.jitter.ms", "long", "segment_jitter_ms",
              "log.roll.jitter.ms", "log.roll.jitter.hours", minimum=0),
    _property("segment.ms", "long", "segment_ms", "log.roll.ms", "log.roll.hours", minimum=1),
    _property("unclean.leader.election.enable", "boolean", "unclean_leader_election_enable",
              "unclean.leader.election.enable"),
)  # fmt: skip
PROPERTIES: Mapping[str, TopicProperty] = {p.name: p for p in _TABLE}
_RELEASE = re.compile(r"(0\.(8\.[0-2]|9\.0|10\.[0-2]|11\.0)|1\.[01]|2\.[0-8]|3\.[0-9])(?![0-9])")
_REPLICA = re.compile(r"([0-9]+:[0-9]+)?")
_LIMITS = {"int": INT_MAX, "long": LONG_MAX}


def invalid(name: str, value: str, problem: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_CONFIG, f"{name}={value}: {problem}")


def parse(name: str, text: str) -> Value:
    """The value of an override; raises ApiError(INVALID_CONFIG)."""
    rule = PROPERTIES.get(name)
    if rule is None:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{name} is not a property of topics")
    text = text.strip()
    if rule.kind == "boolean":
        if text.lower() not in ("true", "false"):
            raise invalid(name, text, "must be true or false")
        return text.lower() == "true"
    if rule.kind in ("string", "list"):
        return _parse_text(rule, text)
    try:
        number = float(text) if rule.kind == "double" else int(text)
    except ValueError:
        raise invalid(name, text, "must be a number") from None
    limit = _LIMITS.get(rule.kind)
    if limit is not None and not -limit - 1 <= number <= limit:
        raise invalid(name, text, f"must be at most {limit}")
    if rule.minimum is not None and number < rule.minimum:
        raise invalid(name, text, f"must be at least {rule.minimum:g}")
    if rule.maximum is not None and number > rule.maximum:
        raise invalid(name, text, f"must be at most {rule.maximum:g}")
    return number


def _parse_text(rule: TopicProperty, text: str) -> str:
    items = [text]
    if rule.kind == "list":
        items = [item.strip() for item in text.split(",")] if text else []
    pairs = rule.name.endswith(".replication.throttled.replicas") and items != ["*"]
    if pairs and not all(map(_REPLICA.fullmatch, items)):
        raise invalid(rule.name, text, "must be * or partition:broker, such as 0:1,1:2")
    for item in items:
        if rule.choices and item not in rule.choices:
            raise invalid(rule.name, text, f"must be one of {', '.join(rule.choices)}")
        if rule.name == "message.format.version" and _RELEASE.match(item) is None:
            raise invalid(rule.name, text, "is no release of Kafka's; give one such as 2.6")
    return text


def check_overrides(config: Config, overrides: Mapping[str, str]) -> None:
    """Raises ApiError(INVALID_CONFIG) for an override that cannot be, alone or with the others."""
    for name, text in overrides.items():
        parse(name, text)
    values = effective(config, overrides)
    if values["min.compaction.lag.ms"] > values["max.compaction.lag.ms"]:
        lag = text_of(values["min.compaction.lag.ms"])
        raise invalid("min.compaction.lag.ms", lag, "must not be above max.compaction.lag.ms")
    if values["remote.storage.enable"]:
        raise invalid("remote.storage.enable", "true", "tiered storage is not supported")


def default_of(config: Config, rule: TopicProperty) -> Any:
    """What holds where the topic has no override."""
    return rule.default if rule.attribute is None else getattr(config, rule.attribute)


def effective(config: Config, overrides: Mapping[str, str]) -> dict[str, Any]:
    """Every property's value for one topic, typed, by its name.

    Overrides that this version does not know, or that do not parse (another broker wrote them), are
    passed over.
    """
    values: dict[str, Any] = {}
    for name, rule in PROPERTIES.items():
        values[name] = default_of(config, rule)
        if name in overrides:
            try:
                values[name] = parse(name, overrides[name])
            except ApiError:
                continue
    return values
