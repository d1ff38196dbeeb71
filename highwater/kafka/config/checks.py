"""What each property may hold: Kafka's types, ranges and choices, and the rules between properties.

`parse_value` reads one property's text; `check` looks at the whole configuration.  Every complaint
is one line: `property=value: what is wrong; what to do`.  Values that look like secrets are never
shown.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from highwater.kafka.config import INT_MAX, LONG_MAX, Config
from highwater.kafka.config.listeners import ListenerError, parse_listeners

_INTEGERS = {"Short": 32767, "Int": INT_MAX, "Long": LONG_MAX}
_SECRET = re.compile(
    r"password|secret|jaas\.config|(?:keystore|private|master)\.key"
    r"|keystore\.certificate\.chain|truststore\.certificates",
    re.IGNORECASE,
)
HIDDEN = "[hidden]"

MINIMA: Mapping[str, float] = {
    "reserved.broker.max.id": 0,
    "num.network.threads": 1,
    "num.io.threads": 1,
    "background.threads": 1,
    "num.recovery.threads.per.data.dir": 1,
    "queued.max.requests": 1,
    "socket.request.max.bytes": 1,
    "socket.listen.backlog.size": 1,
    "max.connections": 0,
    "max.connections.per.ip": 0,
    "max.connection.creation.rate": 0,
    "connection.failed.authentication.delay.ms": 0,
    "zookeeper.session.timeout.ms": 1,
    "zookeeper.connection.timeout.ms": 1,
    "zookeeper.max.in.flight.requests": 1,
    "num.partitions": 1,
    "default.replication.factor": 1,
    "min.insync.replicas": 1,
    "message.max.bytes": 0,
    "log.segment.bytes": 14,
    "log.roll.ms": 1,
    "log.roll.hours": 1,
    "log.roll.jitter.ms": 0,
    "log.roll.jitter.hours": 0,
    "log.retention.check.interval.ms": 1,
    "log.initial.task.delay.ms": 0,
    "log.local.retention.ms": -2,
    "log.local.retention.bytes": -2,
    "log.cleaner.threads": 0,
    "log.cleaner.backoff.ms": 0,
    "log.cleaner.io.buffer.size": 0,
    "log.cleaner.delete.retention.ms": 0,
    "log.cleaner.min.compaction.lag.ms": 0,
    "log.cleaner.max.compaction.lag.ms": 1,
    "log.cleaner.min.cleanable.ratio": 0,
    "log.index.interval.bytes": 0,
    "log.index.size.max.bytes": 4,
    "log.flush.interval.messages": 1,
    "log.flush.offset.checkpoint.interval.ms": 0,
    "log.flush.start.offset.checkpoint.interval.ms": 0,
    "log.segment.delete.delay.ms": 0,
    "log.dir.failure.timeout.ms": 1,
    "log.message.timestamp.difference.max.ms": 0,
    "log.message.timestamp.before.max.ms": 0,
    "log.message.timestamp.after.max.ms": 0,
    "replica.fetch.max.bytes": 0,
    "replica.fetch.backoff.ms": 0,
    "replica.fetch.response.max.bytes": 0,
    "num.replica.fetchers": 1,
    "leader.imbalance.check.interval.seconds": 1,
    "unclean.leader.election.interval.ms": 1,
    "max.incremental.fetch.session.cache.slots": 0,
    "fetch.max.bytes": 1024,
    "group.max.size": 1,
    "offsets.commit.timeout.ms": 1,
    "offsets.load.buffer.size": 1,
    "offsets.retention.minutes": 1,
    "offsets.retention.check.interval.ms": 1,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.segment.bytes": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.segment.bytes": 1,
    "transaction.state.log.load.buffer.size": 1,
    "transaction.max.timeout.ms": 1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1,
    "transactional.id.expiration.ms": 1,
    "producer.id.expiration.ms": 1,
    "producer.id.expiration.check.interval.ms": 1,
    "quota.window.num": 1,
    "quota.window.size.seconds": 1,
    "controller.quota.window.num": 1,
    "controller.quota.window.size.seconds": 1,
    "replication.quota.window.num": 1,
    "replication.quota.window.size.seconds": 1,
    "alter.log.dirs.replication.quota.window.num": 1,
    "alter.log.dirs.replication.quota.window.size.seconds": 1,
    "highwater.broker.probe.ms": 1,
    "highwater.metrics.port": -1,
}
MAXIMA: Mapping[str, float] = {
    "log.cleaner.min.cleanable.ratio": 1,
    "highwater.metrics.port": 65535,
}
COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
CHOICES: Mapping[str, tuple[str, ...]] = {
    "compression.type": COMPRESSION_TYPES,
    "log.message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "highwater.metrics.dialect": ("confluent", "jmx-exporter"),
}
LISTS: Mapping[str, tuple[str, ...]] = {"log.cleanup.policy": ("delete", "compact")}
KRAFT_ONLY = (
    "process.roles",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
    "controller.listener.names",
)
SUPPORTED_PROTOCOL_VERSIONS = ("2.6", "2.6-IV0")


class ConfigError(Exception):
    """A configuration that cannot be used; one line for each thing wrong with it."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


def is_secret(name: str) -> bool:
    """Whether a property's value is never to be shown (Kafka's PASSWORD type)."""
    return _SECRET.search(name) is not None


def shown(name: str, value: str) -> str:
    return HIDDEN if is_secret(name) else value


def complaint(name: str, value: str, problem: str, remedy: str) -> str:
    return f"{name}={shown(name, value)}: {problem}; {remedy}"


def known_properties() -> dict[str, dataclasses.Field[Any]]:
    """Kafka's names of the properties that are understood, in the order of `Config`."""
    return {
        f.name.replace("_", "."): f for f in dataclasses.fields(Config) if f.name != "originals"
    }


def kind_of(field: dataclasses.Field[Any]) -> str:
    """The property's type: bool, Short, Int, Long, Double, str or list."""
    name = str(field.type).removesuffix(" | None")
    if name == "tuple[str, ...]" or field.name.replace("_", ".") in LISTS:
        return "list"
    return name


def parse_value(name: str, field: dataclasses.Field[Any], text: str) -> Any:
    """The value of a property's text; raises ConfigError."""
    kind, value = kind_of(field), text.strip()
    if kind == "bool":
        return _boolean(name, value)
    if kind in _INTEGERS:
        return _integer(name, value, _INTEGERS[kind])
    if kind == "Double":
        try:
            number = float(value)
        except ValueError:
            line = complaint(name, value, "not a number", f"give one, such as {field.default}")
            raise ConfigError([line]) from None
        _in_range(name, value, number)
        return number
    if field.name == "log_dirs":
        return tuple(item.strip() for item in value.split(",") if item.strip())
    _in_choices(name, value)
    return value


def _boolean(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ConfigError([complaint(name, value, "neither true nor false", "write true or false")])
    return value.lower() == "true"


def _integer(name: str, value: str, limit: int) -> int:
    try:
        number = int(value)
    except ValueError:
        line = complaint(name, value, "not a whole number", "give one without unit or separators")
        raise ConfigError([line]) from None
    if not -limit - 1 <= number <= limit:
        raise ConfigError([complaint(name, value, "too large", f"use at most {limit}")])
    _in_range(name, value, number)
    return number


def _in_range(name: str, value: str, number: float) -> None:
    low, high = MINIMA.get(name), MAXIMA.get(name)
    if low is not None and number < low:
        raise ConfigError(
            [complaint(name, value, f"must be at least {low:g}", f"use {low:g} or more")]
        )
    if high is not None and number > high:
        raise ConfigError(
            [complaint(name, value, f"must be at most {high:g}", "use a lower value")]
        )


def _in_choices(name: str, value: str) -> None:
    if name in CHOICES and value not in CHOICES[name]:
        remedy = f"use one of {', '.join(CHOICES[name])}"
        raise ConfigError([complaint(name, value, "not one of its values", remedy)])
    for item in value.split(",") if name in LISTS else ():
        if item.strip() not in LISTS[name]:
            remedy = f"use one or more of {', '.join(LISTS[name])}"
            raise ConfigError([complaint(name, value, f"{item!r} is not a value of it", remedy)])


def check(config: Config) -> list[str]:
    """The complaints about properties that do not go together (`KafkaConfig.validateValues`)."""
    lines: list[str] = []

    def require(holds: bool, name: str, value: object, problem: str, remedy: str) -> None:
        if not holds:
            lines.append(complaint(name, str(value), problem, remedy))

    _check_identity(config, require)
    _check_sizes(config, require)
    for name in KRAFT_ONLY:
        value = config.originals.get(name, "")
        require(
            value == "", name, value, "a KRaft property, and this is ZooKeeper mode", "remove it"
        )
    version = config.inter_broker_protocol_version
    remedy = "set it to 2.6, or leave it out"
    problem = "only 2.6 is implemented"
    require(
        version in SUPPORTED_PROTOCOL_VERSIONS,
        "inter.broker.protocol.version",
        version,
        problem,
        remedy,
    )
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


def _wrong_in_zookeeper_connect(text: str) -> str | None:
    """What is wrong with `host:port,host:port/path`; None if nothing is."""
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
    idle, delay = config.connections_max_idle_ms, config.connection_failed_authentication_delay_ms
    require(
        idle < 0 or delay < idle,
        "connection.failed.authentication.delay.ms",
        delay,
        f"not less than connections.max.idle.ms={idle}",
        "lower it, or the answer is never sent",
    )
    require(
        config.max_connections_per_ip > 0 or bool(config.max_connections_per_ip_overrides),
        "max.connections.per.ip",
        config.max_connections_per_ip,
        "lets nobody in, as max.connections.per.ip.overrides is empty",
        "raise it, or name addresses there",
    )
