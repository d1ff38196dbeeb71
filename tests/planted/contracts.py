"""Planted topics of users: each bends one promise of a contract, and says where the offender is.

The plants share no topic, so all of them together are one contract, which Spark checks in one
session.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from highwater.verdict.contracts.fields import Record

READ_MS = 10_000_000
"""When the reading begins, in all plants."""
NUMBER = {"json": "$.n"}
Found = set[tuple[str, str, str, int | None, int | None]]
"""(rule, kind, topic, partition, offset)"""


@dataclass(slots=True)
class Plant:
    """Topics, what is demanded of them, their records, and what has to be found."""

    name: str
    topics: dict[str, dict[str, Any]] = field(default_factory=dict)
    pipelines: list[dict[str, Any]] = field(default_factory=list)
    sums: list[dict[str, Any]] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    found: Found = field(default_factory=set)
    details: dict[str, str] = field(default_factory=dict)
    """Rule -> what its finding says."""

    def put(self, topic: str, offset: int, value: Any, key: str | None = "k", **other: Any) -> None:
        """One record; `value` is JSON unless it is bytes or None."""
        data = value if isinstance(value, bytes | None) else json.dumps(value).encode()
        headers = [(name, text.encode()) for name, text in other.get("headers", {}).items()]
        coded = None if key is None else key.encode(errors="surrogateescape")
        stamp = other.get("t", 1000 + offset)
        self.records.append(
            Record(topic, other.get("partition", 0), offset, stamp, coded, data, headers)
        )

    def numbers(self, topic: str, *numbers: int, **other: Any) -> None:
        """Records with these numbers, at offsets from 0."""
        for offset, number in enumerate(numbers):
            self.put(topic, offset, {"n": number}, **other)

    def finds(self, rule: str, topic: str, offset: int | None, kind: str = "violation") -> None:
        self.found.add((rule, kind, topic, None if offset is None else 0, offset))

    def pipeline(self, *must: str, **other: Any) -> tuple[str, str]:
        """Two topics with ids in JSON and what is demanded between them."""
        a, b = f"{self.name}-a", f"{self.name}-b"
        self.topics |= {a: {"id": {"json": "$.n"}}, b: {"id": {"json": "$.n"}}}
        self.pipelines.append({"from": a, "to": b, "must": list(must), **other})
        return a, b


PLANTS: list[Plant] = []


def plant(story: Callable[[Plant], None]) -> Callable[[Plant], None]:
    made = Plant(story.__name__.replace("_", "-"))
    story(made)
    PLANTS.append(made)
    return story


@plant
def clean(p: Plant) -> None:
    """Everything at once, with holes in the offsets, two keys, and a tombstone."""
    p.topics["clean"] = {
        "sequence": NUMBER,
        "must": ["no gap", "no repeat", "order per key", "monotonic time"],
    }
    for offset, key, number in ((0, "a", 7), (1, "b", 1), (5, "a", 8), (6, "b", 2), (9, "a", 9)):
        p.put("clean", offset, {"n": number}, key)
    p.put("clean", 10, None, "b")


@plant
def gap(p: Plant) -> None:
    p.topics["gap"] = {"sequence": NUMBER, "must": "no gap"}
    p.numbers("gap", 1, 2, 5, 6)
    p.put("gap", 9, {"n": 40}, "another")
    p.finds("K2", "gap", 1)
    p.details["K2"] = "has number 2 of key k, and the next one is 5 (gap-0 offset 2)"


@plant
def gap_behind_a_repeat(p: Plant) -> None:
    """The first of two with one number is named."""
    p.topics["gap-repeat"] = {"sequence": NUMBER, "must": "no gap"}
    p.numbers("gap-repeat", 1, 2, 2, 4)
    p.finds("K2", "gap-repeat", 1)


@plant
def gap_over_partitions(p: Plant) -> None:
    """The numbers of a topic are spread over its partitions."""
    p.topics["spread"] = {"sequence": NUMBER | {"per": "topic"}, "must": "no gap"}
    p.put("spread", 0, {"n": 1})
    p.put("spread", 0, {"n": 2}, partition=1)
    p.put("spread", 1, {"n": 4}, partition=1)
    p.found.add(("K2", "violation", "spread", 1, 0))


@plant
def compacted(p: Plant) -> None:
    """Where the offsets have a hole, the missing number may have been there."""
    p.topics["compacted"] = {
        "sequence": NUMBER | {"per": "partition"},
        "compacted": True,
        "must": "no gap",
    }
    for offset, number in ((0, 1), (3, 4), (4, 6)):
        p.put("compacted", offset, {"n": number})
    p.finds("K2", "compacted", 0, "counted")
    p.finds("K2", "compacted", 3)


@plant
def repeat(p: Plant) -> None:
    p.topics["repeat"] = {"sequence": NUMBER, "must": ["no repeat", "no gap", "order per key"]}
    p.numbers("repeat", 1, 2, 3, 2, 4)
    p.finds("K3", "repeat", 3)
    p.details["K3"] = "has number 2 of key k, which repeat-0 offset 1 has already"


@plant
def swap(p: Plant) -> None:
    p.topics["swap"] = {"sequence": NUMBER, "must": ["no repeat", "no gap", "order per key"]}
    p.numbers("swap", 1, 3, 2, 4)
    p.finds("K4", "swap", 2)
    p.details["K4"] = "has number 2 of key k, and comes after 3 (offset 1)"


@plant
def time_goes_back(p: Plant) -> None:
    p.topics["back"] = {"must": "monotonic time"}
    for offset, t in enumerate((5, 9, 7, 8)):
        p.put("back", offset, {}, t=t, key="ab"[offset % 2])
    p.finds("K5", "back", 2)
    p.topics["back-per-key"] = {
        "time": {"json": "$.at", "unit": "s", "per": "key"},
        "must": "monotonic time",
    }
    for offset, (key, at) in enumerate((("a", "2024-05-01T10:00:00Z"), ("b", 3), ("b", 2.5))):
        p.put("back-per-key", offset, {"at": at}, key)
    p.finds("K5", "back-per-key", 2)


@plant
def unlike(p: Plant) -> None:
    """Another form, no field, no JSON; a tombstone is none of these."""
    p.topics["unlike"] = {"sequence": NUMBER, "must": "no repeat"}
    for offset, value in enumerate(
        ({"n": 1}, {"n": "two"}, {}, b"{", {"n": 3.5}, None, {"n": "6"})
    ):
        p.put("unlike", offset, value)
    for offset in (1, 2, 3, 4):
        p.finds("K1", "unlike", offset)


@plant
def odd_texts(p: Plant) -> None:
    """Half a pair of surrogates, a zero, bytes that are no text, ends of lines."""
    p.topics["odd"] = {"key": {"json": "$.k"}, "sequence": NUMBER, "must": "no repeat"}
    texts = ("\ud800", "\0", "a\nb", "'\"\\", "𝄞", "", "\ud800")
    for offset, text in enumerate(texts):
        p.put("odd", offset, {"k": text, "n": 1})
    p.finds("K3", "odd", 6)
    p.topics["bytes"] = {"sequence": {"column": "offset", "per": "key"}, "must": "no gap"}
    for offset, key in ((1, "\udcff"), (3, "\udcff")):  # the byte FF
        p.put("bytes", offset, {}, key)
    p.finds("K2", "bytes", 1)


@plant
def sums_differ(p: Plant) -> None:
    amount = {"amount": {"json": "$.a"}}
    p.topics |= {name: dict(amount) for name in ("debit", "credit", "bank", "level")}
    p.sums += [
        {"topics": ["debit", "credit"], "per": "key"},
        {"topics": ["bank"], "total": 0},
        {"topics": ["level", "bank"]},
    ]
    for offset, (key, a) in enumerate((("x", 10.25), ("y", 5), ("x", 1), ("z", 2))):
        p.put("debit", offset, {"a": a}, key)
    for offset, (key, a) in enumerate((("x", 11.25), ("y", 4), ("y", 2), ("w", 0.5))):
        p.put("credit", offset, {"a": a}, key)
    for offset, a in enumerate((-3, 3, 0.000000001)):
        p.put("bank", offset, {"a": a})
    p.put("level", 0, {"a": 0})
    p.finds("K6", "credit", 2)  # y
    p.finds("K6", "credit", None)  # z is not there
    p.finds("K6", "credit", 3)  # w is not in debit
    p.finds("K6", "bank", 2)  # of its own total, and beside `level`


@plant
def pipeline_clean(p: Plant) -> None:
    """In another order of keys, one id twice on both sides, and an input that came just now."""
    a, b = p.pipeline("exactly once", "in order per key", within_s=5)
    for offset, (n, key) in enumerate(((1, "x"), (2, "y"), (3, "x"), (3, "x"))):
        p.put(a, offset, {"n": n}, key)
    p.put(a, 7, {"n": 9}, "x", t=READ_MS - 10)
    for offset, n in enumerate((2, 1, 3, 3)):
        p.put(b, offset, {"n": n}, t=2000 + offset)
    p.put(b, 8, {"n": 77}, t=READ_MS + 1)  # of an input behind the end of what was read
    p.finds("K7", a, 7, "counted")
    p.finds("K9", b, 8, "counted")


@plant
def pipeline_loses(p: Plant) -> None:
    a, b = p.pipeline("at least once")
    p.numbers(a, 1, 2, 3)
    p.numbers(b, 1, 3, 3, 4)  # more than once, and of no input: nothing is said of these
    p.finds("K7", a, 1)
    p.details["K7"] = "is not in pipeline-loses-b (id 2)"


@plant
def pipeline_loses_what_was_due(p: Plant) -> None:
    a, b = p.pipeline("at least once", within_s=5)
    p.numbers(a, 1, 2)
    p.numbers(b, 1)
    p.finds("K7", a, 1)


@plant
def pipeline_repeats(p: Plant) -> None:
    a, b = p.pipeline("at most once")
    p.numbers(a, 1, 2, 3)
    p.numbers(b, 1, 2, 1)
    p.finds("K8", b, 2)


@plant
def pipeline_invents(p: Plant) -> None:
    a, b = p.pipeline("exactly once")
    p.numbers(a, 1, 2)
    p.numbers(b, 1, 5, 2)
    p.finds("K9", b, 1)


@plant
def pipeline_of_a_trimmed_topic(p: Plant) -> None:
    """The input may have been deleted."""
    a, b = p.pipeline("exactly once")
    p.put(a, 100, {"n": 2})
    p.numbers(b, 1, 2)
    p.finds("K9", b, 0, "counted")


@plant
def pipeline_is_late(p: Plant) -> None:
    a, b = p.pipeline(within_s=2)
    for n in (1, 2):
        p.put(a, n, {"n": n}, t=1000)
        p.put(b, n, {"n": n}, t=1000 + 1500 * n)
    p.finds("K10", b, 2)
    p.details["K10"] = "is 3000 ms behind its input, pipeline-is-late-a-0 offset 2"


@plant
def pipeline_disorders(p: Plant) -> None:
    a, b = p.pipeline("in order per key")
    for offset, key in enumerate("xxyy"):
        p.put(a, offset, {"n": offset}, key)
    p.numbers(b, 1, 2, 0, 3)
    p.finds("K11", b, 2)


@plant
def transaction_in_parts(p: Plant) -> None:
    a, b = p.pipeline("transactions whole")
    p.topics[a]["transaction"] = {"header": "txn"}
    for offset, txn in enumerate(("t1", "t1", "t2", "t2", "t3")):
        p.put(a, offset, {"n": offset}, headers={"txn": txn})
    p.numbers(b, 0, 1, 3)
    p.finds("K12", a, 2)


def avro_order(number: int, name: str) -> bytes:
    """A datum of AVRO."""
    text = name.encode()
    return bytes([number << 1, 2, len(text) << 1]) + text + struct.pack("<d", 1.5)


AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "number", "type": "long"},
        {"name": "buyer", "type": ["null", {"type": "record", "name": "Buyer", "fields": [
            {"name": "name", "type": "string"}]}]},
        {"name": "price", "type": "double"},
    ],
}  # fmt: skip


@plant
def avro_behind_five_bytes(p: Plant) -> None:
    place = {"schema": "order.avsc", "confluent": True}
    p.topics["avro"] = {
        "key": {"avro": "buyer.name", **place},
        "sequence": {"avro": "number", **place},
        "must": ["no repeat", "order per key"],
    }
    for offset, (number, name) in enumerate(((1, "ada"), (1, "bob"), (3, "ada"), (2, "ada"))):
        p.put("avro", offset, b"\0\0\0\0\x07" + avro_order(number, name))
    p.put("avro", 4, avro_order(9, "ada"))
    p.put("avro", 5, b"\0\0\0\0\x07" + avro_order(9, "ada")[:-1])
    p.finds("K4", "avro", 3)
    p.finds("K1", "avro", 4)
    p.finds("K1", "avro", 5)


def together(plants: Sequence[Plant] = PLANTS) -> dict[str, Any]:
    """One contract of all of them."""
    return {
        "topics": {name: body for p in plants for name, body in p.topics.items()},
        "pipelines": [one for p in plants for one in p.pipelines],
        "sums": [one for p in plants for one in p.sums],
    }


def write(folder: Path, document: dict[str, Any], records: Sequence[Record]) -> Path:
    """FOLDER/contract.json, the schema, and FOLDER/consumed; returns the contract's file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "order.avsc").write_text(json.dumps(AVRO))
    file = folder / "contract.json"
    file.write_text(json.dumps(document))
    (folder / "consumed").mkdir(exist_ok=True)
    with duckdb.connect() as db:
        db.execute(
            'CREATE TABLE c (topic VARCHAR, partition INT, "offset" BIGINT, "timestamp" TIMESTAMP, '
            "key BLOB, value BLOB, headers STRUCT(key VARCHAR, value BLOB)[])"
        )
        rows = [[*r[:6], [{"key": k, "value": v} for k, v in r.headers]] for r in records]
        db.executemany("INSERT INTO c VALUES (?, ?, ?, make_timestamp_ms(?), ?, ?, ?)", rows)
        db.execute(f"COPY c TO '{folder / 'consumed' / 'part-0.parquet'}' (FORMAT parquet)")
    return file
