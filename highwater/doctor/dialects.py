"""The clients' settings under one name each: that of the Java client.

Defaults are those of the versions that `versions` names, and only of settings that a rule reads.
Source: ProducerConfig and ConsumerConfig of Apache Kafka 3.9 (KIP-679: idempotence by default since
3.0), librdkafka's CONFIGURATION.md, and the constructors of kafka-python and aiokafka.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

JAVA_PRODUCER = {
    "acks": "all",
    "enable.idempotence": "true",
    "max.in.flight.requests.per.connection": "5",
    "retries": "2147483647",
    "delivery.timeout.ms": "120000",
    "request.timeout.ms": "30000",
    "linger.ms": "0",
    "max.request.size": "1048576",
    "transaction.timeout.ms": "60000",
}
JAVA_CONSUMER = {
    "enable.auto.commit": "true",
    "auto.offset.reset": "latest",
    "isolation.level": "read_uncommitted",
    "session.timeout.ms": "45000",
    "heartbeat.interval.ms": "3000",
    "max.poll.interval.ms": "300000",
}
COMMON = {"security.protocol": "PLAINTEXT", "ssl.endpoint.identification.algorithm": "https"}
KNOWN = frozenset(
    {*JAVA_PRODUCER, *JAVA_CONSUMER, *COMMON}
    | {"transactional.id", "group.id", "group.instance.id", "bootstrap.servers", "client.id"}
    | {"sasl.mechanism", "sasl.jaas.config", "enable.auto.offset.store", "compression.type"}
    | {"batch.size", "buffer.memory", "max.poll.records", "auto.commit.interval.ms", "max.block.ms"}
    | {"allow.auto.create.topics", "fetch.min.bytes", "retry.backoff.ms"}
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one client library names its settings, and their defaults."""

    name: str
    versions: str
    producer: Mapping[str, str]
    consumer: Mapping[str, str]
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Other names that it accepts -> Java's."""
    own: Mapping[str, str] = field(default_factory=dict)
    """Java's name -> its only name, for settings that it does not know under Java's."""
    underscores: bool = False
    commits_behind: bool = False
    """Whether automatic commits come from a task of their own, not from the next poll."""
    falls_back: bool = True
    """Whether idempotence, if on by default, is silently off where another setting forbids it."""

    def java_name(self, name: str) -> str:
        dotted = name.replace("_", ".") if self.underscores else name
        theirs = {own: java for java, own in self.own.items()}
        return self.aliases.get(dotted, theirs.get(dotted, dotted))

    def own_name(self, java: str) -> str:
        own = self.own.get(java, java)
        return own.replace(".", "_") if self.underscores else own


JAVA = Dialect("java", "Apache Kafka 3.0 and later", JAVA_PRODUCER, JAVA_CONSUMER)
LIBRDKAFKA = Dialect(
    "librdkafka",
    "librdkafka 2 (confluent-kafka, node-rdkafka, rust-rdkafka, .NET, Go)",
    JAVA_PRODUCER
    | {
        "enable.idempotence": "false",
        "max.in.flight.requests.per.connection": "1000000",
        "delivery.timeout.ms": "300000",
        "linger.ms": "5",
        "max.request.size": "1000000",
    },
    JAVA_CONSUMER | {"isolation.level": "read_committed", "enable.auto.offset.store": "true"},
    {
        "max.in.flight": "max.in.flight.requests.per.connection",
        "message.timeout.ms": "delivery.timeout.ms",
        "message.send.max.retries": "retries",
        "request.required.acks": "acks",
        "queue.buffering.max.ms": "linger.ms",
        "message.max.bytes": "max.request.size",
        "metadata.broker.list": "bootstrap.servers",
        "sasl.mechanisms": "sasl.mechanism",
    },
    commits_behind=True,
    falls_back=False,
)
KAFKA_PYTHON = Dialect(
    "kafka-python", "kafka-python 3", JAVA_PRODUCER, JAVA_CONSUMER, underscores=True
)
AIOKAFKA = Dialect(
    "aiokafka",
    "aiokafka 0.14",
    JAVA_PRODUCER
    | {
        "acks": "1",
        "enable.idempotence": "false",
        # it sends a partition's next batch only after the answer to the one before
        "max.in.flight.requests.per.connection": "1",
        "delivery.timeout.ms": "40000",
    },
    JAVA_CONSUMER | {"session.timeout.ms": "10000"},
    own={"delivery.timeout.ms": "request.timeout.ms"},
    underscores=True,
    commits_behind=True,
    falls_back=False,
)
DIALECTS = {dialect.name: dialect for dialect in (JAVA, LIBRDKAFKA, KAFKA_PYTHON, AIOKAFKA)}
_ONLY_LIBRDKAFKA = frozenset(LIBRDKAFKA.aliases) | {
    "enable.auto.offset.store", "statistics.interval.ms", "log_level", "socket.keepalive.enable",
    "queued.min.messages", "enable.partition.eof", "sasl.username", "sasl.password",
    "queue.buffering.max.messages", "broker.address.family",
}  # fmt: skip


def recognised(name: str) -> bool:
    """Whether some client has a setting of this name that a rule reads, or that is well known."""
    named = {dialect.java_name(name) for dialect in DIALECTS.values()}
    return bool(named & KNOWN) or name.endswith("serializer") or name in _ONLY_LIBRDKAFKA


def guess(names: Mapping[str, str]) -> tuple[Dialect, bool]:
    """The likeliest dialect of a file with these names, and whether the names leave no doubt."""
    if any(name in _ONLY_LIBRDKAFKA for name in names):
        return LIBRDKAFKA, True
    if any("_" in name and "." not in name for name in names):
        return KAFKA_PYTHON, True
    java = any(name.endswith(("serializer", "deserializer")) for name in names)
    return JAVA, java or "sasl.jaas.config" in names


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """A file's settings under Java's names, with the defaults behind them."""

    dialect: Dialect
    role: str
    """producer or consumer."""
    given: Mapping[str, str]
    names: Mapping[str, str] = field(default_factory=dict)
    """Java's name -> the name in the file, for each setting that the file has."""

    def get(self, name: str) -> str:
        defaults = self.dialect.consumer if self.role == "consumer" else self.dialect.producer
        value = self.given.get(name, defaults.get(name, COMMON.get(name, "")))
        return "all" if name == "acks" and value == "-1" else value

    def number(self, name: str) -> float:
        try:
            return float(self.get(name))
        except ValueError:
            return float("nan")

    def on(self, name: str) -> bool:
        return self.get(name).lower() == "true"

    def written(self, name: str) -> str:
        """The setting as its user writes it; a default is marked."""
        default = "" if name in self.given else " (default)"
        return f"{self.names.get(name, self.dialect.own_name(name))}={self.get(name)}{default}"

    @property
    def idempotent(self) -> bool:
        """Whether the broker recognizes retries, as far as the settings show it."""
        if self.get("transactional.id"):
            return True
        if "enable.idempotence" in self.given or not self.dialect.falls_back:
            return self.on("enable.idempotence")
        return self.on("enable.idempotence") and not self.against_idempotence

    @property
    def against_idempotence(self) -> list[str]:
        """The settings in the file that idempotence does not allow."""
        wrong = []
        if self.get("acks") != "all":
            wrong.append("acks")
        if self.number("max.in.flight.requests.per.connection") > 5:
            wrong.append("max.in.flight.requests.per.connection")
        if self.number("retries") == 0:
            wrong.append("retries")
        return [name for name in wrong if name in self.given]


def settings_of(raw: Mapping[str, str], dialect: Dialect, role: str) -> ClientSettings:
    given = {dialect.java_name(name): value.strip() for name, value in raw.items()}
    names = {dialect.java_name(name): name for name in raw}
    return ClientSettings(dialect, role, given, names)


def roles(raw: Mapping[str, str], dialect: Dialect) -> list[str]:
    """Whether these are settings of a producer, a consumer, both, or neither (only an address and
    security)."""
    names = {dialect.java_name(name) for name in raw} - {"request.timeout.ms"}
    producer = JAVA_PRODUCER.keys() | {"transactional.id", "key.serializer", "batch.size"}
    consumer = JAVA_CONSUMER.keys() | {"group.id", "key.deserializer", "max.poll.records"}
    consumer |= {"enable.auto.offset.store"}
    by_role = {"producer": producer, "consumer": consumer}
    return [role for role, its in by_role.items() if names & its]


def misspelt(raw: Mapping[str, str], dialect: Dialect) -> dict[str, str]:
    """Names that no rule knows but that are very like one that a rule knows -> that one."""
    found = {}
    for name in raw:
        java = dialect.java_name(name)
        if java not in KNOWN and (near := difflib.get_close_matches(java, KNOWN, 1, 0.9)):
            found[name] = dialect.own_name(near[0])
    return found
