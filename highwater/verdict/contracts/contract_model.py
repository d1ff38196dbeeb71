"""A contract's file: where each topic's fields are, and what must hold.  docs/contract.md has two.

    topics:
      orders:
        sequence: {json: $.number, per: key}
        id: {json: $.id}
        must: [no gap, no repeat, order per key]
      invoices:
        id: {header: order-id}
    pipelines:
      - {from: orders, to: invoices, must: [exactly once], within_s: 30}

`sums` compares amounts: `{topics: [debits, credits], per: key}`, `{topics: [bank], total: 0}`.
Anything that is not understood is a one-line error (ContractError), because a promise that was
skipped would look as if it were kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import PurePosixPath
from typing import Any, Final

from highwater.verdict.contracts import avro
from highwater.verdict.contracts.fields import FIELDS, LARGEST_AMOUNT, PLACES, UNITS_IN_MS, Source
from highwater.verdict.documents import DocumentError, decode

TOPIC_RULES: Final = {
    "no gap": ("sequence",),
    "no repeat": ("sequence",),
    "order per key": ("key", "sequence"),
    "monotonic time": ("time",),
}
"""A topic's promise -> the fields that it needs."""
PIPELINE_RULES: Final = (
    "at least once",
    "at most once",
    "exactly once",
    "in order per key",
    "transactions whole",
)
COLUMNS: Final = ("key", "value", "timestamp", "partition", "offset")
SCOPES: Final = {"sequence": ("key", "partition", "topic"), "time": ("partition", "key")}
"""The scopes in which a field counts, the default first."""
DEFAULTS: Final = {"key": {"column": "key"}, "time": {"column": "timestamp"}}
ISOLATION: Final = ("read_committed", "read_uncommitted")
ROOT: Final = "the contract"

ReadText = Callable[[str], str | None]
"""The text of a file, or None where there is none."""


class ContractError(Exception):
    """The contract cannot be understood; the message is one line with the place and the remedy."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic's fields and promises."""

    name: str
    sources: dict[str, Source]
    must: tuple[str, ...]
    per: dict[str, str]
    compacted: bool
    wanted: set[str] = field(default_factory=set)
    """The fields that some promise needs; no others are extracted."""

    @property
    def looked_for(self) -> dict[str, Source]:
        return {name: source for name, source in self.sources.items() if name in self.wanted}


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Records of `source` must appear in `target`, matched by `id`."""

    source: str
    target: str
    must: tuple[str, ...]
    within_ms: int | None


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums of these topics' amounts must be equal, or each be `total`; for the whole topic, or
    for each key."""

    topics: tuple[str, ...]
    per_key: bool
    total: Decimal | None


@dataclass(frozen=True, slots=True)
class Contract:
    """A user's demands on their topics."""

    file: str
    isolation: str
    topics: dict[str, Topic]
    pipelines: tuple[Pipeline, ...]
    sums: tuple[Sums, ...]


def load(file: str, read: ReadText) -> Contract:
    """The contract in a file; the schemas that it names lie beside it."""
    text = read(file)
    if text is None:
        raise ContractError(f"{file}: there is no such file")
    try:
        document = decode(text, file)
        return _Reading(file, read).contract(document)
    except DocumentError as error:
        raise ContractError(str(error)) from None


@dataclass(slots=True)
class _Reading:
    file: str
    read: ReadText

    def contract(self, document: Any) -> Contract:
        root = self.mapping(document, ROOT, ("isolation", "topics", "pipelines", "sums"))
        isolation = self.one_of(
            root.get("isolation", ISOLATION[0]), f"{ROOT}: isolation", ISOLATION
        )
        declared = root.get("topics")
        if not isinstance(declared, dict) or not declared:
            raise self.wrong(ROOT, "topics names the topics: topics: {orders: {must: [no gap]}}")
        topics = {str(name): self.topic(str(name), body) for name, body in declared.items()}
        pipelines = tuple(
            self.pipeline(body, f"pipelines, entry {n}", topics)
            for n, body in enumerate(self.listed(root.get("pipelines"), "pipelines"), 1)
        )
        sums = tuple(
            self.sum(body, f"sums, entry {n}", topics)
            for n, body in enumerate(self.listed(root.get("sums"), "sums"), 1)
        )
        for topic in topics.values():
            if not topic.wanted:
                raise self.wrong(
                    f"topics.{topic.name}",
                    f"nothing is demanded of it: give it must: [{', '.join(TOPIC_RULES)}], "
                    "or name it in pipelines or sums",
                )
        return Contract(self.file, isolation, topics, pipelines, sums)

    def topic(self, name: str, body: Any) -> Topic:
        where = f"topics.{name}"
        known = (*FIELDS, "must", "compacted")
        declared = DEFAULTS | self.mapping(body, where, known)
        per = {of: scopes[0] for of, scopes in SCOPES.items()}
        sources: dict[str, Source] = {}
        for of in (of for of in FIELDS if of in declared):
            here = f"{where}.{of}"
            spec = dict(self.mapping(declared[of], here, None))
            if of in SCOPES:
                per[of] = self.one_of(spec.pop("per", per[of]), f"{here}: per", SCOPES[of])
            sources[of] = self.source(spec, of, here)
        must = self.promises(declared.get("must"), where, tuple(TOPIC_RULES))
        compacted = self.flag(declared.get("compacted", False), f"{where}: compacted")
        topic = Topic(name, sources, must, per, compacted)
        for rule in must:
            self.need(topic, TOPIC_RULES[rule], f"{where}: {rule}")
        if {"no gap", "no repeat"} & set(must) and per["sequence"] == "key":
            self.need(topic, ("key",), where)
        if "monotonic time" in must and per["time"] == "key":
            self.need(topic, ("key",), where)
        return topic

    def source(self, spec: dict[str, Any], of: str, where: str) -> Source:
        units = ("unit",) if of == "time" else ()
        places = [place for place in PLACES if place in spec]
        if len(places) != 1:
            raise self.wrong(where, f"name one place of it: {', '.join(PLACES)}")
        place, declared = places[0], spec[places[0]]
        inside = {"json": ("of", "confluent"), "avro": ("of", "confluent", "schema")}
        self.mapping(spec, where, (place, *inside.get(place, ()), *units))
        if not isinstance(declared, str) or not declared:
            raise self.wrong(where, f"{place} is followed by a text, not by {declared!r}")
        source: dict[str, Any] = {"place": place, "path": declared, "told": f"{place} {declared}"}
        source["unit"] = self.one_of(spec.get("unit", "ms"), f"{where}: unit", UNITS_IN_MS)
        if place in inside:
            source["of"] = self.one_of(spec.get("of", "value"), f"{where}: of", ("value", "key"))
            source["confluent"] = self.flag(spec.get("confluent", False), f"{where}: confluent")
            source["path"] = json_path(declared if place == "json" else f"$.{declared}")
            if source["path"] is None:
                rooted = f"$.{declared}"
                example = rooted if json_path(rooted) else "$.order.lines[0]"
                raise self.wrong(where, f"{declared!r} is no path: write {example!r}")
            if source["of"] == "key":
                source["told"] += " of the key"
        else:
            if place == "column":
                self.one_of(declared, f"{where}: column", COLUMNS)
            source["of"] = "value" if declared == "value" and place == "column" else "record"
        if place == "avro":
            source |= self.schema(spec.get("schema"), where)
        return source

    def schema(self, name: Any, where: str) -> dict[str, Any]:
        if not isinstance(name, str):
            raise self.wrong(where, "avro needs the schema's file: {avro: FIELD, schema: FILE}")
        path = name
        if "://" not in name and not name.startswith("/"):
            folder = self.file.rpartition("/")[0]
            path = f"{folder}/{name}" if folder else name
        text = self.read(path)
        if text is None:
            raise self.wrong(where, f"there is no schema {path}")
        try:
            # read as JSON, whatever the name's ending (.avsc)
            return {"schema": avro.parse(decode(text, path)), "schema_file": name}
        except avro.SchemaError as error:
            raise self.wrong(
                where, f"{PurePosixPath(path).name} is no Avro schema: {error}"
            ) from None

    def pipeline(self, body: Any, where: str, topics: dict[str, Topic]) -> Pipeline:
        given = self.mapping(body, where, ("from", "to", "must", "within_s"))
        source, target = (
            self.known(given.get(end), f"{where}: {end}", topics) for end in ("from", "to")
        )
        must = self.promises(given.get("must"), where, PIPELINE_RULES)
        within = given.get("within_s")
        if within is not None and (
            not isinstance(within, int | float) or isinstance(within, bool) or within <= 0
        ):
            raise self.wrong(where, f"within_s is a number of seconds above 0, not {within!r}")
        if not must and within is None:
            raise self.wrong(where, f"nothing is demanded: give it must: [{PIPELINE_RULES[2]}]")
        lost = {"at least once", "exactly once", "transactions whole"} & set(must)
        if target.compacted and lost:
            raise self.wrong(
                where,
                f"{min(lost)} cannot be told of {target.name}: it is compacted, and older records "
                "of a key are gone by right",
            )
        for topic in (source, target):
            self.need(topic, ("id",), where)
            if within is not None:
                self.need(topic, ("time",), where)
        if "in order per key" in must:
            self.need(source, ("key",), where)
        if "transactions whole" in must:
            self.need(source, ("transaction",), where)
        within_ms = None if within is None else round(within * 1000)
        return Pipeline(source.name, target.name, must, within_ms)

    def sum(self, body: Any, where: str, topics: dict[str, Topic]) -> Sums:
        given = self.mapping(body, where, ("topics", "per", "total"))
        named = [self.known(t, where, topics) for t in self.listed(given.get("topics"), where)]
        total = given.get("total")
        if total is not None:
            try:
                total = Decimal(str(total))
            except InvalidOperation:
                total = Decimal("nan")
            if not total.is_finite() or abs(total) >= LARGEST_AMOUNT:
                raise self.wrong(where, f"total is a number, not {given['total']!r}")
        if len(named) < (2 if total is None else 1):
            raise self.wrong(where, "topics names two topics or more, or one beside a total")
        per_key = self.one_of(given.get("per", "topic"), f"{where}: per", ("topic", "key")) == "key"
        for topic in named:
            if topic.compacted:
                raise self.wrong(where, f"{topic.name} is compacted: a part of its sum is gone")
            self.need(topic, ("amount", "key") if per_key else ("amount",), where)
        return Sums(tuple(t.name for t in named), per_key, total)

    def need(self, topic: Topic, fields: Iterable[str], where: str) -> None:
        for name in fields:
            if name not in topic.sources:
                raise self.wrong(where, f"needs the field {name} of topics.{topic.name}")
            topic.wanted.add(name)

    def known(self, name: Any, where: str, topics: dict[str, Topic]) -> Topic:
        if name not in topics:
            raise self.wrong(where, f"{name!r} is not among topics ({', '.join(topics)})")
        return topics[name]

    def promises(self, given: Any, where: str, known: tuple[str, ...]) -> tuple[str, ...]:
        rules = [given] if isinstance(given, str) else self.listed(given, f"{where}: must")
        return tuple(self.one_of(rule, f"{where}: must", known) for rule in rules)

    def mapping(self, given: Any, where: str, known: tuple[str, ...] | None) -> dict[str, Any]:
        if not isinstance(given, dict):
            raise self.wrong(where, f"is a mapping of names to values, not {str(given)[:60]!r}")
        if known is not None and (unknown := [str(name) for name in given if name not in known]):
            raise self.wrong(where, f"unknown field {unknown[0]!r}; there are {', '.join(known)}")
        return given

    def listed(self, given: Any, where: str) -> list[Any]:
        if given is None or isinstance(given, list):
            return given or []
        raise self.wrong(where, f"is a list, not {str(given)[:60]!r}")

    def one_of(self, given: Any, where: str, known: Iterable[str] | Mapping[str, Any]) -> str:
        if given not in list(known):
            raise self.wrong(where, f"{given!r} is unknown; there are {', '.join(known)}")
        return str(given)

    def flag(self, given: Any, where: str) -> bool:
        if not isinstance(given, bool):
            raise self.wrong(where, f"is true or false, not {given!r}")
        return given

    def wrong(self, where: str, told: str) -> ContractError:
        return ContractError(f"{self.file}: {where}: {told}")


def json_path(text: str) -> list[str | int] | None:
    """The steps of a path such as `$.a['b c'][0]`; None if the text is no such path."""
    step = re.compile(r"\.([^.\[\]']+)|\['([^']+)'\]|\[(-?\d+)\]")
    steps: list[str | int] = []
    at = 1
    while at < len(text):
        found = step.match(text, at)
        if found is None:
            return None
        name, quoted, index = found.groups()
        steps.append(int(index) if index is not None else name or quoted)
        at = found.end()
    return steps if text.startswith("$") and steps else None
