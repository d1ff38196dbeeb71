"""The records of a contract's topics, by librdkafka: all that were there when the reading began."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from highwater.client_calls import SOON_S, ClientHangs, within
from highwater.kafka.security.jaas import JaasError, parse_jaas
from highwater.verdict.contracts.contract_model import Contract
from highwater.verdict.contracts.duck_engine import AT_A_TIME, RecordsUnreadable
from highwater.verdict.contracts.fields import Record

PHASE: Final = "reading the topics"
ANSWER_S: Final = 20.0
SILENT_S: Final = 30.0
PEM: Final = {
    "ssl.truststore.location": ("ssl.ca.location",),
    "ssl.keystore.location": ("ssl.certificate.location", "ssl.key.location"),
}
RENAMED: Final = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
OURS: Final = frozenset(("bootstrap.servers", "isolation.level", "group.id", "enable.auto.commit"))

Place = tuple[str, int]
"""(topic, partition)"""


def librdkafka_settings(properties: Mapping[str, str]) -> dict[str, str]:
    """The settings of Kafka's own tools (--command-config) in librdkafka's names.

    Raises RecordsUnreadable for key stores that librdkafka cannot read, and for an invalid JAAS
    entry.
    """
    settings: dict[str, str] = {}
    for name, value in properties.items():
        if name == "sasl.jaas.config":
            try:
                options = parse_jaas(value).options
            except JaasError as error:
                raise RecordsUnreadable(f"{name}: {error}") from None
            for option in {"username", "password"} & options.keys():
                settings[f"sasl.{option}"] = options[option]
        elif name in PEM:
            kind = properties.get(name.replace(".location", ".type"), "JKS")
            if kind.upper() != "PEM":
                raise RecordsUnreadable(
                    f"{name}={value} is of type {kind}: here only PEM is read; convert it, or use "
                    "spark-submit spark/contract.py"
                )
            settings |= dict.fromkeys(PEM[name], value)
        elif name == "ssl.endpoint.identification.algorithm":
            settings[name] = value.lower() or "none"
        elif name not in OURS and name not in ("ssl.truststore.type", "ssl.keystore.type"):
            settings[RENAMED.get(name, name)] = value
    return settings


@dataclass(slots=True)
class Reader:
    """One reading of a contract's topics."""

    contract: Contract
    bootstrap: str
    settings: Mapping[str, str]
    progress: Callable[[str], None]
    unreachable: Callable[[], str | None] = lambda: None
    """Returns the reason why no broker can be reached.  It is called first, because librdkafka
    gives the same error for all reasons, and only after 20 s."""
    notes: list[str] = field(default_factory=list)
    _told: str = ""
    """The last complaint of librdkafka."""
    _hangs: bool = False
    """Whether a call did not return: the consumer is in use, and no other call may be made."""

    def records(self) -> Iterator[Record]:
        """Yields the records; raises RecordsUnreadable."""
        try:
            consumer = Consumer(
                {
                    **self.settings,
                    "bootstrap.servers": self.bootstrap,
                    "isolation.level": self.contract.isolation,
                    "group.id": "highwater-contract",  # the client insists on one; never joined
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "error",
                    "error_cb": self._complaint,
                    "log_level": 0,
                }
            )
        except KafkaException as error:
            raise RecordsUnreadable(f"the settings are refused: {_words(error)}") from None
        try:
            if why := self.unreachable():
                raise RecordsUnreadable(why)
            begins, ends = self._bounds(consumer)
            yield from self._read(consumer, begins, ends)
        except ClientHangs as error:
            self._hangs = True
            raise RecordsUnreadable(f"{self.bootstrap}: {error}") from None
        except KeyboardInterrupt:
            self._hangs = True  # a call may still be in progress
            raise
        except KafkaException as error:
            told = f" ({self._told})" if self._told else ""
            raise RecordsUnreadable(f"{self.bootstrap}: {_words(error)}{told}") from None
        finally:
            if not self._hangs:
                self._close(consumer)

    def _close(self, consumer: Any) -> None:
        try:
            within(PHASE, SOON_S, consumer.close)
        except ClientHangs as error:  # everything has been read by now
            self.notes.append(str(error))

    def _complaint(self, error: KafkaError) -> None:
        self._told = error.str()

    def _bounds(self, consumer: Any) -> tuple[dict[Place, int], dict[Place, int]]:
        """The first and the last offsets of the partitions that are not empty.

        A pipeline's sources come first: so a record that is written meanwhile cannot look as if it
        were missing in the target.
        """
        sources = {p.source for p in self.contract.pipelines}
        begins, ends = {}, {}
        limit_s = ANSWER_S + SOON_S
        # list all topics, because a request for a single one may create it
        there = within(PHASE, limit_s, consumer.list_topics, None, ANSWER_S).topics
        for name in sorted(self.contract.topics, key=lambda name: (name not in sources, name)):
            if name not in there:
                raise RecordsUnreadable(
                    f"{self.bootstrap} has no topic {name}, or this user may not see it"
                )
            for number in there[name].partitions:
                place = TopicPartition(name, number)
                bounds = within(PHASE, limit_s, consumer.get_watermark_offsets, place, ANSWER_S)
                if bounds[0] < bounds[1]:
                    begins[name, number], ends[name, number] = bounds
        return begins, ends

    def _read(
        self, consumer: Any, begins: Mapping[Place, int], ends: Mapping[Place, int]
    ) -> Iterator[Record]:
        left = set(begins)
        if left:
            consumer.assign([TopicPartition(*place, begins[place]) for place in sorted(left)])
        heard = time.monotonic()
        count = 0
        while left:
            messages = within(PHASE, SOON_S, consumer.consume, AT_A_TIME, 0.5)
            now = time.monotonic()
            heard = now if messages else heard
            if now - heard > SILENT_S:
                raise RecordsUnreadable(
                    f"{self.bootstrap} gave nothing for {SILENT_S:.0f} s, and {_names(left)} "
                    f"is not read to its end {self._told}".rstrip()
                )
            done = set()
            for message in messages:
                place = (message.topic(), message.partition())
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise RecordsUnreadable(f"{_names([place])}: {error.str()}")
                if place not in left:
                    continue
                if error is None and message.offset() < ends[place]:
                    count += 1
                    yield record_of(message)
                if error is not None or message.offset() >= ends[place] - 1:
                    done.add(place)
                    left.discard(place)
                if error is not None and message.offset() < ends[place]:
                    self.notes.append(
                        f"{_names([place])} is read up to offset {message.offset()} of "
                        f"{ends[place]}: a transaction is open there"
                    )
            if done:
                consumer.pause([TopicPartition(*place) for place in done])
        self.progress(f"read {count:,} records of {', '.join(self.contract.topics)}")


def record_of(message: Any) -> Record:
    kind, stamp = message.timestamp()
    return Record(
        message.topic(),
        message.partition(),
        message.offset(),
        None if kind == TIMESTAMP_NOT_AVAILABLE else stamp,
        message.key(),
        message.value(),
        message.headers() or (),
    )


def _names(places: Iterable[Place]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(places))


def _words(error: KafkaException) -> str:
    return str(error.args[0].str())
