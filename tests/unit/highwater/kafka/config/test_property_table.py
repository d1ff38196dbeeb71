"""The table of configuration against Apache Kafka's own, and against the code that it describes.

kafka_configs.tsv holds facts of Apache Kafka 3.9.2, and of 4.2.0 those of share groups (lines that
begin with "share", there "broker"); tests/integration/oracle/KafkaConfigs.java prints them; its
head says how to run it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from highwater.broker.log.log_config import LogConfig
from highwater.kafka.config.checks import ConfigError, is_secret
from highwater.kafka.config.property_row import Kind, Property, State, Update, text_of
from highwater.kafka.config.property_table import ALIASES, BROKER, KEPT, TOPIC
from highwater.kafka.config.sources import Loaded, load
from highwater.kafka.config.unserved import refused
from tests import configuration_page

ROOT = Path(__file__).parents[5]
NEEDED = {"zookeeper.connect": "localhost:2181"}
OUR_OWN = ("highwater.", "super.users", "allow.everyone.if.no.acl.found")
"""The last two are AclAuthorizer's, which no table of Apache Kafka names."""


@dataclass(frozen=True)
class Fact:
    """One line of kafka_configs.tsv."""

    name: str
    kind: str
    default: str
    range: str
    last: str
    """A broker's property: its update mode; a topic's: its synonyms."""


def facts(kind: str) -> dict[str, Fact]:
    lines = (Path(__file__).parent / "kafka_configs.tsv").read_text().splitlines()
    parts = [line.split("\t") for line in lines]
    return {p[1]: Fact(*p[1:]) for p in parts if p[0] == kind}


BROKERS, TOPICS = facts("broker") | facts("share"), facts("topic")
BUILT = [
    pytest.param(row, id=f"{where} {row.name}")
    for where, table in (("broker", BROKER), ("topic", TOPIC))
    for row in table.values()
    if row.state is State.BUILT
]


def test_every_property_of_kafka_has_a_row_and_no_other() -> None:
    assert (len(facts("broker")), len(facts("share"))) == (329, 30)
    assert {n for n in BROKER if not n.startswith(OUR_OWN)} == set(BROKERS)
    assert set(TOPIC) == set(TOPICS)


def same_default(row: Property, kafkas: str) -> bool:
    if row.default is None:
        return kafkas == "null"
    if row.kind in (Kind.INT, Kind.SHORT, Kind.LONG, Kind.DOUBLE):
        return kafkas != "null" and float(text_of(row.default)) == float(kafkas)
    return text_of(row.default) == kafkas


def same_range(row: Property, kafkas: str) -> bool:
    told = re.fullmatch(r"\[(-?\d+),\.\.\.(?:,(-?\d+))?\]( or -1)?", kafkas)
    if told is not None:
        low = -1.0 if told[3] else float(told[1])
        return (row.at_least, row.at_most) == (low, float(told[2]) if told[2] else None)
    if row.wrong is not None:
        return row.choices == ()
    choices = set(kafkas.strip("[]").split(", ")) if kafkas else set()
    return set(row.choices) == choices and (row.at_least, row.at_most) == (None, None)


def differences(row: Property, fact: Fact) -> set[str]:
    found = {
        "type": row.kind.name != fact.kind,
        "default": not same_default(row, fact.default),
        # a property that is not built accepts its default alone, or is not looked at
        "range": row.state is State.BUILT and not same_range(row, fact.range),
    }
    return {aspect for aspect, differs in found.items() if differs}


@pytest.mark.parametrize("fact", BROKERS.values(), ids=list(BROKERS))
def test_a_brokers_property_is_kafkas_but_for_declared_differences(fact: Fact) -> None:
    row = BROKER[fact.name]
    found = differences(row, fact)
    if row.state is not State.REFUSED and row.update is not Update(fact.last or "read-only"):
        found.add("update")
    assert found == set(row.differs), (row, fact)


@pytest.mark.parametrize("fact", TOPICS.values(), ids=list(TOPICS))
def test_a_topics_property_is_kafkas(fact: Fact) -> None:
    row = TOPIC[fact.name]
    assert differences(row, fact) == set(row.differs) == set(), (row, fact)
    assert ",".join(row.synonyms) == fact.last


def test_every_password_is_a_secret() -> None:
    assert [
        r.name for r in BROKER.values() if r.kind is Kind.PASSWORD and not is_secret(r.name)
    ] == []
    assert [name for name in KEPT if is_secret(name)] == []


# --- each built property has a reader and a test


def readers_names(row: Property) -> set[str]:
    """The names by which the code may read the value: of the broker, or of a log."""
    names = {f".{row.attribute}"} if row.attribute else {f'"{row.name}"'}
    for f in fields(LogConfig):
        of: Property = f.metadata["row"]
        if of.name in (row.name, row.topic) or row.name in of.synonyms:
            names.add(f".{f.name}")
    return names


@pytest.mark.parametrize("row", BUILT)
def test_a_built_property_has_a_reader(row: Property) -> None:
    if row.name in ALIASES:
        row = BROKER[ALIASES[row.name]]
    path = ROOT / (row.read_by.replace(".", "/") + ".py")
    if not path.is_file():
        path = path.with_suffix("") / "__init__.py"
    assert path.is_file(), f"{row.name}: there is no module {row.read_by!r}"
    source = path.read_text()
    named = [name for name in readers_names(row) if re.search(re.escape(name) + r"(?!\w)", source)]
    assert named, f"{row.name}: {row.read_by} does not read it"


@pytest.mark.parametrize("row", BUILT)
def test_a_built_property_has_a_test_of_its_effect(row: Property) -> None:
    module, _, function = row.test.partition("::")
    files = [*ROOT.glob(f"tests/**/{module}.py")] if module else []
    assert any(f"def {function}(" in path.read_text() for path in files), (
        f"{row.name}: no test {row.test!r}"
    )


# --- values that start, and values that do not


def loaded(properties: dict[str, str], environment: dict[str, str] | None = None) -> Loaded:
    text = "\n".join(f"{n}={v}" for n, v in (NEEDED | properties).items())
    return load([("server.properties", text)], environment)


def kafkas_defaults() -> dict[str, str]:
    """Kafka has no text for "not given"; of the versions between brokers only 2.6 is built."""
    given = {f.name: f.default for f in BROKERS.values() if f.default != "null"}
    return given | {
        "inter.broker.protocol.version": text_of(KEPT["inter.broker.protocol.version"].default)
    }


def test_every_property_at_kafkas_default_starts() -> None:
    given = kafkas_defaults()
    assert len(given) > 250
    start = loaded(given)
    [warning] = start.warnings
    passed_over = warning.removeprefix("without effect here: ").split(", ")
    assert set(passed_over) == {n for n in given if BROKER[n].state is State.WITHOUT_EFFECT}
    for row in KEPT.values():
        if "default" not in row.differs:
            assert getattr(start.config, row.attribute) == row.default, row.name


REFUSED = [row for row in BROKER.values() if row.state is State.REFUSED]
OTHER = {Kind.BOOLEAN: "true", Kind.INT: "7", Kind.SHORT: "7", Kind.LONG: "7", Kind.DOUBLE: "0.7"}


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.name)
def test_each_value_that_is_not_built_is_refused_by_one_line(row: Property) -> None:
    other = OTHER.get(row.kind, "SSL")
    with pytest.raises(ConfigError) as caught:
        loaded({row.name: other})
    [line] = caught.value.lines
    shown = "[hidden]" if is_secret(row.name) else other
    assert line == f"{row.name}={shown}: {row.reason}; remove it"
    assert refused({row.name: text_of(row.default)}) == {}


def test_what_has_no_effect_is_named_by_one_warning() -> None:
    start = loaded({"metrics.num.samples": "3", "background.threads": "4", "no.such": "5"})
    assert start.warnings == (
        "no.such: unknown property, ignored",
        "without effect here: metrics.num.samples, background.threads",
    )


def test_variables_of_another_image_are_properties_too() -> None:
    """As docker.io/bitnami/kafka spells them."""
    names = {n: f"KAFKA_CFG_{n.replace('.', '_').upper()}" for n in kafkas_defaults()}
    given = {
        variable: kafkas_defaults()[name] for name, variable in names.items() if "_" not in name
    }
    given |= {"KAFKA_CFG_NUM_PARTITIONS": "7", "KAFKA_CFG_LOG_RETENTION_HOURS": "2"}
    start = load((), given | {"KAFKA_CFG_ZOOKEEPER_CONNECT": "localhost:2181"})
    assert (start.config.num_partitions, start.config.retention_ms) == (7, 7_200_000)
    with pytest.raises(ConfigError, match=r"process\.roles=broker,controller: .*; remove it"):
        loaded({}, {"KAFKA_CFG_PROCESS_ROLES": "broker,controller"})


def test_the_page_is_made_of_the_table() -> None:
    told = "python -m tests.configuration_page > docs/configuration.md"
    assert configuration_page.PAGE.read_text() == configuration_page.render(), told
