"""The sources of properties: a profile, server.properties files, the environment, flags; the
later wins.

The environment follows the apache/kafka image: KAFKA_ is cut off, the rest lower-cased, `_` becomes
`.`, `__` becomes `_` and `___` becomes `-`; some KAFKA_ variables belong to the start scripts and
are no properties.  KAFKA_CFG_ is the spelling of another widely used image, and is accepted with a
warning.  Nothing here reads files: the caller passes the text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from highwater.kafka.config import Config
from highwater.kafka.config.checks import ConfigError, check, parse_value
from highwater.kafka.config.property_table import ALIASES, BROKER, without_effect
from highwater.kafka.config.unknown import unknown_properties
from highwater.kafka.config.unserved import of_listener, refused

NOT_PROPERTIES = frozenset(
    f"KAFKA_{name}"
    for name in (
        "VERSION",
        "HEAP_OPTS",
        "LOG4J_OPTS",
        "OPTS",
        "JMX_OPTS",
        "JVM_PERFORMANCE_OPTS",
        "GC_LOG_OPTS",
        "LOG4J_ROOT_LOGLEVEL",
        "LOG4J_LOGGERS",
        "TOOLS_LOG4J_LOGLEVEL",
        "JMX_HOSTNAME",
        "JMX_PORT",
        "HOME",
    )
)
PROFILES = ("kafka", "test")


@dataclasses.dataclass(frozen=True, slots=True)
class Loaded:
    """A valid configuration, and the warnings about it."""

    config: Config
    warnings: tuple[str, ...]


def profile_properties(name: str, brokers: int = 3) -> dict[str, str]:
    """`kafka`: Apache Kafka's own values; `test`: quick failover and small internal topics, for
    `brokers` brokers.
    """
    if name == "kafka":
        return {"replica.lag.time.max.ms": "30000"}
    if name == "test":
        factor = str(min(3, brokers))
        return {
            "zookeeper.session.timeout.ms": "3000",
            # a short session, but Kafka's own time for ZooKeeper itself to come up
            "zookeeper.connection.timeout.ms": "18000",
            # where the whole cluster stops, the last broker's leaders have nowhere to go
            "controlled.shutdown.retry.backoff.ms": "500",
            "replica.lag.time.max.ms": "2000",
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            # members of consumer groups and of share groups name no times of their own
            "group.consumer.session.timeout.ms": "6000",
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.heartbeat.interval.ms": "500",
            "group.consumer.min.heartbeat.interval.ms": "100",
            "group.share.session.timeout.ms": "6000",
            "group.share.min.session.timeout.ms": "1000",
            "group.share.heartbeat.interval.ms": "500",
            "group.share.min.heartbeat.interval.ms": "100",
            "group.share.min.record.lock.duration.ms": "1000",
            "offsets.topic.replication.factor": factor,
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": factor,
            "transaction.state.log.num.partitions": "4",
            "transaction.state.log.min.isr": str(min(2, brokers)),
            "share.coordinator.state.topic.replication.factor": factor,
            "share.coordinator.state.topic.num.partitions": "4",
            "share.coordinator.state.topic.min.isr": str(min(2, brokers)),
        }
    raise ConfigError([f"profile {name}: there is no such profile; use {' or '.join(PROFILES)}"])


def parse_properties(text: str, source: str = "server.properties") -> dict[str, str]:
    """The entries of a Java properties file; of two with one name the later holds."""
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        name, value = _split(line)
        if not name:
            raise ConfigError([f"{source}:{number}: {line!r} names no property; write name=value"])
        properties[name] = value
    return properties


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    """Lines without comments, where a backslash at the end joins the next one."""
    pending, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.lstrip()
        if not pending:
            if not line or line[0] in "#!":
                continue
            start = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
        else:
            yield start, pending + line
            pending = ""
    if pending:
        yield start, pending


def _split(line: str) -> tuple[str, str]:
    """Name and value, split at the first `=`, `:` or white space that is not escaped."""
    end = 0
    while end < len(line) and line[end] not in "=: \t\f":
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return _unescape(line[:end]), _unescape(rest).rstrip()


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    i = 0
    while i < len(text):
        if text[i] != "\\" or i + 1 == len(text):
            out.append(text[i])
            i += 1
        elif text[i + 1] == "u" and len(text) >= i + 6:
            out.append(chr(int(text[i + 2 : i + 6], 16)))
            i += 6
        else:
            out.append(_ESCAPES.get(text[i + 1], text[i + 1]))
            i += 2
    return "".join(out)


def property_of_variable(name: str) -> str | None:
    """The property that an environment variable stands for, or None."""
    if not name.startswith("KAFKA_") or name in NOT_PROPERTIES:
        return None
    rest = name.removeprefix("KAFKA_CFG_") if name.startswith("KAFKA_CFG_") else name[6:]
    return rest.lower().replace("_", ".").replace("...", "-").replace("..", "_") or None


def environment_properties(environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The properties in the environment, and warnings.  KAFKA_X wins over KAFKA_CFG_X."""
    properties: dict[str, str] = {}
    aliased: list[str] = []
    for name in sorted(environment, key=lambda n: (not n.startswith("KAFKA_CFG_"), n)):
        prop = property_of_variable(name)
        if prop is None:
            continue
        properties[prop] = environment[name]
        if name.startswith("KAFKA_CFG_"):
            aliased.append(name)
    warnings = []
    if aliased:
        names = ", ".join(aliased)
        warnings.append(f"{names}: read as KAFKA_…; write KAFKA_ instead of KAFKA_CFG_")
    return properties, warnings


def parse_overrides(overrides: Sequence[str]) -> dict[str, str]:
    """`name=value` flags."""
    properties: dict[str, str] = {}
    for item in overrides:
        name, separator, value = item.partition("=")
        if not separator or not name.strip():
            raise ConfigError([f"--override {item}: not a property; write --override name=value"])
        properties[name.strip()] = value.strip()
    return properties


def load(
    files: Sequence[tuple[str, str]] = (),
    environment: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
    profile: str | None = None,
    *,
    need_zookeeper: bool = True,
) -> Loaded:
    """The configuration of files (name, text), environment and flags; raises ConfigError with every
    complaint.
    """
    given: dict[str, str] = {}
    for source, text in files:
        given.update(parse_properties(text, source))
    from_environment, warnings = environment_properties(environment or {})
    given.update(from_environment)
    given.update(parse_overrides(overrides))
    if "listeners" not in given and "advertised.listeners" in from_environment:
        given["listeners"] = _listeners_from_advertised(given["advertised.listeners"])
    if need_zookeeper and "zookeeper.connect" not in given:
        line = (
            "zookeeper.connect is not set and has no default; name a server, such as localhost:2181"
        )
        raise ConfigError([line])
    base = profile_properties(profile) if profile is not None else {}
    return _build({**base, **given}, given, warnings)


def _listeners_from_advertised(advertised: str) -> str:
    """Binds every interface at the advertised ports, as the apache/kafka image does."""
    items = []
    for item in advertised.split(","):
        name, separator, address = item.strip().partition("://")
        items.append(f"{name}{separator}0.0.0.0:{address.rpartition(':')[2]}")
    return ",".join(items)


def _build(merged: Mapping[str, str], given: Mapping[str, str], warnings: list[str]) -> Loaded:
    warnings = [*warnings, *unknown_properties(merged)]
    unserved_lines = refused(merged)
    lines = list(unserved_lines.values())
    values: dict[str, Any] = {}
    for name, text in merged.items():
        row = BROKER.get(name) or of_listener(name)
        if row is None:
            continue
        if name in unserved_lines or (not text.strip() and row.default is None):
            continue
        kept = BROKER[ALIASES[name]] if name in ALIASES else row
        if kept.name != name and kept.name in merged:
            continue
        try:
            value = parse_value(row if kept is row else dataclasses.replace(kept, name=name), text)
        except ConfigError as error:
            lines.extend(error.lines)
        else:
            if kept.attribute:
                values[kept.attribute] = value
    if passed_over := without_effect(given):
        warnings.append(f"without effect here: {', '.join(passed_over)}")
    if lines:
        raise ConfigError(lines)
    config = Config(**values, originals={**given})
    lines = check(config)
    if lines:
        raise ConfigError(lines)
    return Loaded(config, tuple(warnings))
