"""The configuration of one topic: its overrides over the broker's values.

A topic's overrides are in /config/topics/T as text.  A property without an override follows the
broker's property.  There may be several of those (`log.retention.ms`, `.minutes`, `.hours`); the
first given one wins.

Source: org.apache.kafka.storage.internals.log.LogConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from highwater.kafka.config import Config
from highwater.kafka.config.checks import ConfigError, parse_value
from highwater.kafka.config.property_row import Property, State, Value, text_of
from highwater.kafka.config.property_table import TOPIC
from highwater.kafka.errors import ApiError, ErrorCode


def parse(name: str, text: str) -> Value:
    """The value of an override; raises ApiError(INVALID_CONFIG)."""
    row = TOPIC.get(name)
    if row is None:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{name} is not a property of topics")
    try:
        return parse_value(row, text)
    except ConfigError as e:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(e)) from e


def check_overrides(config: Config, overrides: Mapping[str, str]) -> None:
    """Raises ApiError(INVALID_CONFIG) for an override that is invalid, alone or with the others."""
    for name, text in overrides.items():
        value, row = parse(name, text), TOPIC[name]
        if row.state is State.REFUSED and value != row.default:
            raise _invalid(name, value, row.reason)
    values = effective(config, overrides)
    if values["min.compaction.lag.ms"] > values["max.compaction.lag.ms"]:
        lag = values["min.compaction.lag.ms"]
        raise _invalid("min.compaction.lag.ms", lag, "must not be above max.compaction.lag.ms")


def _invalid(name: str, value: Value, problem: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_CONFIG, f"{name}={text_of(value)}: {problem}")


def default_of(config: Config, row: Property) -> Any:
    """The effective value where the topic has no override."""
    return getattr(config, row.attribute) if row.attribute else row.default


def typed(overrides: Mapping[str, str]) -> dict[str, Any]:
    """Overrides as values.

    Overrides that this version does not know, or cannot parse (another broker wrote them), are left
    out.
    """
    values = {}
    for name, text in overrides.items():
        if name in TOPIC:
            try:
                values[name] = parse(name, text)
            except ApiError:
                continue
    return values


def effective(config: Config, overrides: Mapping[str, str]) -> dict[str, Any]:
    """All properties' values for one topic, typed, by name."""
    defaults = {name: default_of(config, row) for name, row in TOPIC.items()}
    return defaults | typed(overrides)
