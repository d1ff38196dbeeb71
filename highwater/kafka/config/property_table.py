"""The table of configuration: every property that Apache Kafka 3.9 knows of brokers and topics.

Parsing, checks, DescribeConfigs, dynamic changes, topics' overrides and docs/configuration.md all
derive from it.

Source: kafka.server.KafkaConfig.configDef, org.apache.kafka.storage.internals.log.LogConfig,
ServerTopicConfigSynonyms, kafka.server.DynamicBrokerConfig.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from highwater.kafka.config import Config
from highwater.kafka.config.property_row import Property, State, Update, Value, row_of, text_of
from highwater.kafka.config.security_rows import SECURITY
from highwater.kafka.config.topic_rows import TOPICS_OWN
from highwater.kafka.config.unbuilt_rows import REFUSED, WITHOUT_EFFECT
from highwater.kafka.config.zookeeper_rows import ZOOKEEPER_ROWS

KEPT: Mapping[str, Property] = {
    row.name: row
    for row in map(row_of, (f for f in dataclasses.fields(Config) if f.name != "originals"))
}
"""The properties that a broker keeps and shows: the fields of `Config` except `originals`."""


def _aliases() -> Iterator[Property]:
    for row in KEPT.values():
        for name in row.synonyms:
            default: Value | None = row.default
            if isinstance(default, tuple):
                default = text_of(default)
            doc = f"Another name of {row.name}, which goes before it."
            yield dataclasses.replace(
                row, name=name, default=default, doc=doc, attribute="", synonyms=(), differs={}
            )


ALIASES: Mapping[str, str] = {name: row.name for row in KEPT.values() for name in row.synonyms}
"""Another name of a property -> the name that takes precedence."""

BROKER: Mapping[str, Property] = {
    row.name: row
    for row in (*KEPT.values(), *_aliases(), *SECURITY, *ZOOKEEPER_ROWS, *REFUSED, *WITHOUT_EFFECT)
}

DYNAMIC: Mapping[str, Property] = {
    name: row for name, row in KEPT.items() if row.update is not Update.READ_ONLY
}
"""The properties that can change while a broker runs."""


INERT: Mapping[str, Property] = {
    name: row
    for name, row in BROKER.items()
    if row.state is State.WITHOUT_EFFECT and row.update is not Update.READ_ONLY
}
"""Properties without effect that are kept all the same when they are set while a broker runs."""


def _of_brokers() -> Iterator[Property]:
    for row in KEPT.values():
        if row.topic:
            yield dataclasses.replace(row, name=row.topic, synonyms=(row.name,), topic="")


TOPIC: Mapping[str, Property] = {
    row.name: row for row in sorted((*_of_brokers(), *TOPICS_OWN), key=lambda row: row.name)
}


def without_effect(
    names: Mapping[str, object], table: Mapping[str, Property] = BROKER
) -> list[str]:
    """The given properties of brokers (or of topics) that are accepted and change nothing."""
    return [n for n in names if n in table and table[n].state is State.WITHOUT_EFFECT]
