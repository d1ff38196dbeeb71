"""Checks of values: Kafka's types, ranges and choices, and the rules between properties.

`parse_value` reads one property's text; `check` looks at the whole configuration.  Every complaint
is one line: `property=value: what is wrong; what to do`.  Values that look like secrets are never
shown.
"""

from __future__ import annotations

import re
from typing import Any

from highwater.kafka.config import Config
from highwater.kafka.config.connection_overrides import parse_overrides
from highwater.kafka.config.listeners import ListenerError, parse_listeners
from highwater.kafka.config.property_row import INT_MAX, LONG_MAX, Kind, Property, Value
from highwater.kafka.config.property_table import BROKER

_INTEGERS = {Kind.SHORT: 32767, Kind.INT: INT_MAX, Kind.LONG: LONG_MAX}
_SECRET = re.compile(
    r"password|secret|jaas\.config|(?:keystore|private|master)\.key"
    r"|keystore\.certificate\.chain|truststore\.certificates",
    re.IGNORECASE,
)
HIDDEN = "[hidden]"


class ConfigError(Exception):
    """A configuration that cannot be used; one line for each mistake."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


def is_secret(name: str) -> bool:
    """Whether a property's value must never be shown: Kafka's type PASSWORD; of a name that the
    table does not have, whatever it seems to be."""
    row = BROKER.get(name)
    return _SECRET.search(name) is not None if row is None else row.kind is Kind.PASSWORD


def shown(name: str, value: str) -> str:
    return HIDDEN if is_secret(name) else value


def complaint(name: str, value: str, problem: str, remedy: str) -> str:
    return f"{name}={shown(name, value)}: {problem}; {remedy}"


def parse_value(row: Property, text: str) -> Value:
    """A property's text as a value; raises ConfigError."""
    name, value = row.name, text.strip()
    parsed: Value
    if row.kind is Kind.BOOLEAN:
        if value.lower() not in ("true", "false"):
            raise _wrong(name, value, "neither true nor false", "write true or false")
        return value.lower() == "true"
    if row.kind in _INTEGERS:
        parsed = _integer(row, value)
    elif row.kind is Kind.DOUBLE:
        try:
            parsed = float(value)
        except ValueError:
            raise _wrong(name, value, "not a number", f"give one, such as {row.default}") from None
        _in_range(row, value, parsed)
    elif isinstance(row.default, tuple):
        parsed = tuple(_items(value))
    else:
        _in_choices(row, value)
        parsed = value
    if row.wrong is not None and (problem := row.wrong(value)) is not None:
        raise _wrong(name, value, *problem.split("; "))
    return parsed


def _wrong(name: str, value: str, problem: str, remedy: str) -> ConfigError:
    return ConfigError([complaint(name, value, problem, remedy)])


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _integer(row: Property, value: str) -> int:
    try:
        number = int(value)
    except ValueError:
        problem = "not a whole number"
        raise _wrong(row.name, value, problem, "give one without unit or separators") from None
    limit = _INTEGERS[row.kind]
    if not -limit - 1 <= number <= limit:
        raise _wrong(row.name, value, "too large", f"use at most {limit}")
    _in_range(row, value, number)
    return number


def _in_range(row: Property, value: str, number: float) -> None:
    low, high = row.at_least, row.at_most
    if low is not None and number < low:
        raise _wrong(row.name, value, f"must be at least {low:g}", f"use {low:g} or more")
    if high is not None and number > high:
        raise _wrong(row.name, value, f"must be at most {high:g}", "use a lower value")


def _in_choices(row: Property, value: str) -> None:
    if not row.choices:
        return
    if row.kind is not Kind.LIST:
        if value not in row.choices:
            remedy = f"use one of {', '.join(row.choices)}"
            raise _wrong(row.name, value, "not one of its values", remedy)
        return
    for item in _items(value):
        if item not in row.choices:
            remedy = f"use one or more of {', '.join(row.choices)}"
            raise _wrong(row.name, value, f"{item!r} is not a value of it", remedy)


def check(config: Config) -> list[str]:
    """Complaints about properties that contradict each other (`KafkaConfig.validateValues`)."""
    lines: list[str] = []

    def require(holds: bool, name: str, value: object, problem: str, remedy: str) -> None:
        if not holds:
            lines.append(complaint(name, str(value), problem, remedy))

    _check_identity(config, require)
    _check_sizes(config, require)
    _check_groups(config, require)
    try:
        parse_listeners(config)
    except ListenerError as error:
        lines.append(str(error))
    return lines


def _check_identity(config: Config, require: Any) -> None:
    broker_id, highest = config.broker_id, config.reserved_broker_max_id
    if config.broker_id_generation_enable:
        problem = "must lie between -1 (generated) and reserved.broker.max.id"
        require(-1 <= broker_id <= highest, "broker.id", broker_id, problem, f"use 0 to {highest}")
    else:
        problem = "must be 0 or more, as broker.id.generation.enable=false"
        require(
            broker_id >= 0, "broker.id", broker_id, problem, "give each broker an id of its own"
        )
    given = config.zookeeper_connect
    wrong = _wrong_in_zookeeper_connect(given)
    remedy = "write host:port, several with commas, and perhaps /path at the end"
    require(wrong is None, "zookeeper.connect", given, wrong, remedy)
    given = config.max_connections_per_ip_overrides
    wrong = _wrong_in_overrides(given)
    remedy = "write an address and a number, as 127.0.0.1:200, several with commas"
    require(wrong is None, "max.connections.per.ip.overrides", given, wrong, remedy)
    require(
        bool(config.log_dirs), "log.dirs", "", "names no directory", "name one, or leave it out"
    )
    repeated = len(dict.fromkeys(config.log_dirs)) != len(config.log_dirs)
    require(
        not repeated,
        "log.dirs",
        ",".join(config.log_dirs),
        "names a directory twice",
        "name each once",
    )


def _wrong_in_overrides(text: str) -> str | None:
    try:
        parse_overrides(text)
    except ValueError as error:
        return str(error)
    return None


def _wrong_in_zookeeper_connect(text: str) -> str | None:
    """The mistake in `host:port,host:port/path`; None if there is none."""
    servers, _, path = text.strip().partition("/")
    if not servers:
        return "names no server"
    if path and "" in path.split("/"):
        return f"/{path} is not a path of a znode"
    for server in servers.split(","):
        host, colon, port = server.strip().rpartition(":")
        if not (host or port) or (colon and not host):
            return f"{server.strip()!r} names no host"
        if host and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            return f"{port!r} is not a port"
    return None


def _check_sizes(config: Config, require: Any) -> None:
    retention = config.retention_ms
    problem = "must be -1 (for ever) or 1 and more"
    require(
        retention == -1 or retention >= 1, "log.retention.ms", retention, problem, "use -1 or 1"
    )
    wait, lag = config.replica_fetch_wait_max_ms, config.replica_lag_time_max_ms
    require(
        wait <= config.replica_socket_timeout_ms,
        "replica.fetch.wait.max.ms",
        wait,
        f"longer than replica.socket.timeout.ms={config.replica_socket_timeout_ms}",
        "lower it, or replica fetches time out",
    )
    require(
        wait <= lag,
        "replica.fetch.wait.max.ms",
        wait,
        f"longer than replica.lag.time.max.ms={lag}",
        "lower it, or the ISR shrinks and expands for ever",
    )
    queued, largest = config.queued_max_request_bytes, config.socket_request_max_bytes
    require(
        queued <= 0 or queued >= largest,
        "queued.max.request.bytes",
        queued,
        f"less than socket.request.max.bytes={largest}",
        "raise it, or one request could never be read",
    )
    require(
        config.max_connections_per_ip > 0 or bool(config.max_connections_per_ip_overrides),
        "max.connections.per.ip",
        config.max_connections_per_ip,
        "lets nobody in, as max.connections.per.ip.overrides is empty",
        "raise it, or name addresses there",
    )


def _check_groups(config: Config, require: Any) -> None:
    """The times of the consumer protocol and of share groups (GroupCoordinatorConfig)."""
    session, beat, lock = "session.timeout.ms", "heartbeat.interval.ms", "record.lock.duration.ms"
    bounds = (
        ("consumer", session, config.group_consumer_session_timeout_ms,
         config.group_consumer_min_session_timeout_ms,
         config.group_consumer_max_session_timeout_ms),
        ("consumer", beat, config.group_consumer_heartbeat_interval_ms,
         config.group_consumer_min_heartbeat_interval_ms,
         config.group_consumer_max_heartbeat_interval_ms),
        ("share", session, config.group_share_session_timeout_ms,
         config.group_share_min_session_timeout_ms, config.group_share_max_session_timeout_ms),
        ("share", beat, config.group_share_heartbeat_interval_ms,
         config.group_share_min_heartbeat_interval_ms,
         config.group_share_max_heartbeat_interval_ms),
        ("share", lock, config.group_share_record_lock_duration_ms,
         config.group_share_min_record_lock_duration_ms,
         config.group_share_max_record_lock_duration_ms),
    )  # fmt: skip
    times = {}
    for kind, name, value, low, high in bounds:
        times[kind, name] = value
        require(
            low <= value <= high,
            f"group.{kind}.{name}",
            value,
            f"not between group.{kind}.min.{name}={low} and group.{kind}.max.{name}={high}",
            "change it, or the bounds",
        )
    for kind in ("consumer", "share"):
        require(
            times[kind, beat] < times[kind, session],
            f"group.{kind}.{beat}",
            times[kind, beat],
            f"not less than group.{kind}.{session}={times[kind, session]}",
            "lower it, or members are out before their next heartbeat",
        )
    require(
        bool(config.group_consumer_assignors.strip(", ")),
        "group.consumer.assignors",
        config.group_consumer_assignors,
        "names no assignor",
        "name uniform or range, or leave it out",
    )
    updates = config.share_coordinator_snapshot_update_records_per_snapshot
    require(
        updates <= 500,
        "share.coordinator.snapshot.update.records.per.snapshot",
        updates,
        "more than 500",
        "lower it, or a coordinator that takes over reads for too long",
    )
