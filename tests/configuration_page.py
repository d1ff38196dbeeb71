"""docs/configuration.md: every property, made of the table of configuration.

python -m tests.configuration_page > docs/configuration.md
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from highwater.kafka.config.cleaner_rows import CleanerProperties
from highwater.kafka.config.coordinator_rows import CoordinatorProperties
from highwater.kafka.config.log_rows import LogProperties
from highwater.kafka.config.property_row import (
    DOUBLE_MAX,
    INT_MAX,
    LONG_MAX,
    Property,
    State,
    Update,
    text_of,
)
from highwater.kafka.config.property_table import BROKER, KEPT, TOPIC
from highwater.kafka.config.replication_rows import ReplicationProperties
from highwater.kafka.config.security_rows import SECURITY
from highwater.kafka.config.server_rows import BrokerProperties, NetworkProperties, QuotaProperties
from highwater.kafka.config.share_rows import ShareProperties
from highwater.kafka.config.zookeeper_rows import ZOOKEEPER_ROWS

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"
HEAD = """\
# Configuration

Made by `python -m tests.configuration_page > docs/configuration.md` from the table of configuration
(`highwater/kafka/config/property_table.py` and the modules that it names).

A broker takes Apache Kafka's properties, by Apache Kafka 3.9's names (share groups: 4.2's): from
`server.properties` (`--config FILE`, several of them if need be), from `KAFKA_*` variables
(`KAFKA_NUM_PARTITIONS` is `num.partitions`; `_` stands for a dot, `__` for `_`, `___` for `-`;
`KAFKA_CFG_*` is understood, too), and from `--override name=value`. The later of these goes before
the earlier.

Each property of Kafka's brokers and topics is one of three:

- **built**: it does what it does in Kafka, and a test shows it;
- **refused**: only Kafka's default is accepted, any other value stops the start with one line;
- **without effect here**: accepted, because no client and no operator could tell one value from
  another. A broker names those that it was given in one warning.

A name that Kafka does not know is kept for plugins, and a warning names it. *While it runs* says
what can be changed by `kafka-configs`: for one broker, or for all of the cluster. A property with a
name for topics is the default of topics that do not set their own.
"""
GROUPS: tuple[tuple[str, Any], ...] = (
    ("The broker", BrokerProperties),
    ("Listeners, connections and requests", NetworkProperties),
    ("Quotas", QuotaProperties),
    ("Topics and logs", LogProperties),
    ("The log cleaner", CleanerProperties),
    ("Replication, the controller and Fetch", ReplicationProperties),
    ("Groups, transactions and producers", CoordinatorProperties),
    ("Share groups", ShareProperties),
)
NAMED = {LONG_MAX: "no limit", INT_MAX: "no limit", DOUBLE_MAX: "no limit"}


def default_of(row: Property) -> str:
    if row.default is None:
        return "unset"
    if isinstance(row.default, int | float) and row.default in NAMED:
        return NAMED[row.default]
    return f"`{text_of(row.default)}`" if row.default not in ("", ()) else "empty"


def values_of(row: Property) -> str:
    """The range or the choices of a property."""
    if row.choices:
        return ", ".join(f"`{choice}`" for choice in row.choices)
    low, high = row.at_least, row.at_most
    if low is not None and high is not None:
        return f"{low:g} to {high:g}"
    return "" if low is None else f"{low:g} or more"


def table(titles: str, rows: Iterable[Iterable[str]]) -> Iterator[str]:
    yield f"| {titles} |\n|{'---|' * (titles.count('|') + 1)}\n"
    for row in rows:
        yield f"| {' | '.join(row)} |\n"
    yield "\n"


def built(area: Any) -> Iterator[tuple[str, ...]]:
    for field in fields(area):
        row = KEPT[field.name.replace("_", ".")]
        if row.state is State.BUILT:
            also = f" Other name: `{', '.join(row.synonyms)}`." if row.synonyms else ""
            live = "" if row.update is Update.READ_ONLY else "yes"
            topic = f"`{row.topic}`" if row.topic else ""
            yield f"`{row.name}`", default_of(row), values_of(row), row.doc + also, topic, live


def secured() -> Iterator[tuple[str, ...]]:
    for row in (*SECURITY, *ZOOKEEPER_ROWS):
        yield f"`{row.name}`", default_of(row), values_of(row), row.doc


def topics_own() -> Iterator[tuple[str, ...]]:
    """The topics' properties that are not simply one of the broker's."""
    single = {row.topic for row in KEPT.values()}
    for row in TOPIC.values():
        if row.name not in single and row.state is State.BUILT:
            of = ", ".join(f"`{name}`" for name in row.synonyms)
            yield f"`{row.name}`", default_of(row), values_of(row), row.doc, of


def unbuilt(state: State) -> Iterator[str]:
    """One line for each reason."""
    reasons: dict[str, list[str]] = {}
    for row in (*BROKER.values(), *TOPIC.values()):
        if row.state is state:
            names = reasons.setdefault(row.reason, [])
            shown = f"`{row.name}`"
            if state is State.REFUSED:
                shown += f" ({default_of(row)})"
            if shown not in names:
                names.append(shown)
    for reason, names in reasons.items():
        yield f"- {_capital(reason)}: {', '.join(names)}.\n"
    yield "\n"


def _capital(text: str) -> str:
    return re.sub(r"^[a-z]", lambda first: first[0].upper(), text)


def differing() -> Iterator[tuple[str, str, str]]:
    for row in (*BROKER.values(), *TOPIC.values()):
        for aspect, why in row.differs.items():
            yield f"`{row.name}`", {"update": "while it runs"}.get(aspect, aspect), why


def render() -> str:
    parts = [HEAD, "\n## Built\n\n"]
    for title, area in GROUPS:
        parts += [f"### {title}\n\n"]
        parts += table(
            "property | default | values | what it does | for topics | while it runs", built(area)
        )
    parts += [
        "### Security on the wire\n\n",
        "A listener's own value, `listener.name.NAME.PROPERTY` with the name in lower case, goes "
        "before the general one. [security.md](security.md) shows how to switch it on.\n\n",
        *table("property | default | values | what it does", secured()),
        "### Topics alone\n\n",
        "Of several properties of the broker the first that is given is the default.\n\n",
        *table("property | default | values | what it does | the broker's", topics_own()),
        "## Refused\n\nIn brackets what is accepted. The same holds for a listener's own form "
        "(`listener.name.NAME.ssl.…`), and for other names that begin like these.\n\n",
        *unbuilt(State.REFUSED),
        "## Without effect here\n\n",
        *unbuilt(State.WITHOUT_EFFECT),
        "## What differs from Apache Kafka 3.9\n\n",
        "DescribeConfigs leaves out what is refused or without effect, but for the defaults of "
        "topics.\n\n",
        *table("property | what | why", differing()),
    ]
    return "".join(parts).rstrip() + "\n"


if __name__ == "__main__":
    print(render(), end="")
