"""Generates a history of any size by SQL, with anomalies at places that are known beforehand.

Every record has a producer's send, a consumer's poll while the run lasts, and the full read at the
end: so an operation is a send or a poll, and makes two rows.  Partitions of `load` are plain; every
fourth partition belongs to `ledger`, whose records are in transactions of TEN, one after the other,
and whose readers are under read_committed.  Everything is computed from a record's own number, so
no row needs another one, and both engines make the same rows.  Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from highwater.verdict.history_schema import COLUMNS

TEN: Final = 10
"""The number of records in a transaction, and in a poll."""
STRIDE: Final = 32
"""How many positions in the history each record's lines have."""
KINDS: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    "lost": (("C3", 0), ("C4", 0)),
    "vanished": (("C15", 0), ("C8", 1), ("C14", -1)),
    "replaced": (("C1", 0), ("C3", 0), ("C4", 0), ("C7", 0)),
    "went back": (("C9", 0), ("C8", 1), ("C8", 2), ("C14", -1), ("C14", 0)),
}
"""Anomaly -> (check that finds it, how far behind the record).  Not only the record itself shows an
anomaly: consumers skip a record that is gone, and differ on what follows.
"""

Finding = tuple[str, str, int, int]
"""(check, topic, partition, offset)"""


class TooSmall(Exception):
    """The history is too small for the anomalies that shall be planted."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The size and the faults of a generated history."""

    operations: int
    partitions: int = 12
    skew: float = 0.0
    """The share of all records in partition 0, if it has more than the others."""
    anomalies: int = 5
    """How many anomalies of each kind there are."""

    @property
    def others(self) -> int:
        """The number of records in each partition but the first: whole transactions."""
        left = self.operations / 2 - self.first
        return max(TEN, round(left / (self.partitions - 1) / TEN) * TEN)

    @property
    def first(self) -> int:
        share = max(self.skew, 1 / self.partitions)
        return max(TEN, round(self.operations / 2 * share / TEN) * TEN)

    @property
    def records(self) -> int:
        return self.first + self.others * (self.partitions - 1)

    def places(self) -> Iterator[tuple[str, int, int]]:
        """(anomaly, partition, offset): on plain partitions, far from each other."""
        plain = [p for p in range(self.partitions) if topic_of(p) == "load"]
        count = self.anomalies * len(KINDS)
        step = self.others // (count + 1) // TEN * TEN
        if count and step < 2 * TEN:
            needed = 4 * TEN * self.partitions * (count + 2)
            raise TooSmall(f"{count} anomalies need a history of {needed:,} operations or more")
        for nth in range(count):
            kind = list(KINDS)[nth % len(KINDS)]
            yield kind, plain[nth % len(plain)], step * (nth + 1) + 5

    def findings(self) -> set[Finding]:
        """The findings that the checks must have, and no others."""
        return {
            (check, topic_of(p), p, offset + behind)
            for kind, p, offset in self.places()
            for check, behind in KINDS[kind]
        }

    def info(self) -> dict[str, Any]:
        """The content of run.json."""
        return {
            "run": "generated",
            "seed": 0,
            "runtime": "generated",
            "final_read": True,
            "healed": True,
            "finished": True,
            "loss_arranged": False,
            "topics": [{"name": name} for name in ("load", "ledger")],
        }

    def planted(self) -> str:
        """The content of planted.json."""
        found = [list(one) for one in sorted(self.findings())]
        return json.dumps({"operations": self.operations, "findings": found}, indent=1) + "\n"


def topic_of(partition: int) -> str:
    return "ledger" if partition % 4 == 3 else "load"


def query(shape: Shape) -> str:
    """The history, from a view `ids` whose `id` counts the records from 0."""
    others = shape.partitions - 1
    rest = f"(i.id - {shape.first})"
    return f"""
WITH placed AS (
  SELECT
    CASE WHEN i.id < {shape.first} THEN 0 ELSE 1 + {rest} % {others} END AS p,
    CASE WHEN i.id < {shape.first} THEN i.id ELSE {_div(rest, others)} END AS o
  FROM ids i
),
named AS (
  SELECT
    CAST(x.p AS INT) AS p, x.o, x.p % 4 = 3 AS ledger, {_div("x.o", TEN)} AS grp,
    x.o * {shape.partitions} + x.p AS slot,
    ({_div("x.o", TEN)} * {TEN} + {TEN - 1}) * {shape.partitions} + x.p AS last_slot,
    {_anomaly(shape)} AS anomaly
  FROM placed x
),
records AS (
  SELECT
    n.*,
    CASE WHEN n.ledger THEN 'ledger' ELSE 'load' END AS topic,
    n.o + CASE WHEN n.ledger THEN n.grp ELSE 0 END AS at,
    'g|' || CAST(n.p AS STRING) || '|' || CAST(n.o AS STRING) AS value,
    CASE WHEN n.ledger THEN 'g|' || CAST(n.p AS STRING) || '|t' || CAST(n.grp AS STRING) END AS txn
  FROM named n
),
lines AS (
{" UNION ALL ".join(_lines(shape))}
)
SELECT 'generated' AS run, CAST(0 AS BIGINT) AS seed, {", ".join(_columns())} FROM lines l
"""


def _lines(shape: Shape) -> Iterator[str]:
    """A SELECT for each kind of line, all with the columns of _GIVEN."""
    end = STRIDE * (shape.partitions * (max(shape.first, shape.others) + TEN) + 1)
    producer = "'producer-' || CAST(r.p AS STRING)"
    consumer = "'consumer-' || CAST(r.p AS STRING)"
    send = {
        "process": producer,
        "f": "'send'",
        "op": f"r.slot * {STRIDE}",
        "amount": f"CASE WHEN r.ledger THEN 1 - 2 * ({_mod('r.o', 2)}) END",
        "txn": "r.txn",
        "value": "r.value",
    }
    yield _select(send | {"type": "'invoke'", "idx": f"r.slot * {STRIDE}", "t": "r.slot * 1000"})
    acked = {"type": "'ok'", "idx": f"r.slot * {STRIDE} + 1", "t": "r.slot * 1000 + 400"}
    yield _select(send | acked | {"at": "r.at"})
    commit = {"process": producer, "f": "'end_txn'", "which": "'commit'", "txn": "r.txn"}
    commit |= {"op": f"r.last_slot * {STRIDE} + 4", "topic": "CAST(NULL AS STRING)"}
    first = f"r.ledger AND {_mod('r.o', TEN)} = 0"
    for nth, kind in enumerate(("invoke", "ok")):
        when = {
            "idx": f"r.last_slot * {STRIDE} + {4 + nth}",
            "t": f"r.last_slot * 1000 + {500 + nth}",
        }
        yield _select(commit | when | {"type": f"'{kind}'"}, first)
    read = {"f": "'poll'", "type": "'ok'", "at": "r.at"}
    read |= {"isolation": "CASE WHEN r.ledger THEN 'read_committed' END"}
    read |= {"value": "CASE WHEN r.anomaly = 'replaced' THEN 'x' || r.value ELSE r.value END"}
    # a record of the anomaly "went back" is read after its successor
    turn = f"{_mod('r.o', TEN)} * 2 + CASE WHEN r.anomaly = 'went back' THEN 3 ELSE 0 END"
    while_it_lasts = {
        "process": consumer,
        "op": f"r.last_slot * {STRIDE} + 6",
        "idx": f"r.last_slot * {STRIDE} + 7 + {turn}",
        "t": f"r.last_slot * 1000 + 600 + {turn}",
    }
    yield _select(read | while_it_lasts, "r.anomaly <> 'lost'")
    at_the_end = {
        "process": "'final'",
        "phase": "'final'",
        "op": f"{end} + r.last_slot",
        "idx": f"{end} + r.slot",
        "t": f"{end * 1000} + r.slot",
    }
    yield _select(read | at_the_end, "r.anomaly NOT IN ('lost', 'vanished')")


_GIVEN: Final = {
    "process": "",
    "f": "",
    "type": "",
    "op": "",
    "idx": "",
    "t": "",
    "phase": "'run'",
    "topic": "r.topic",
    "partition": "r.p",
    "value": "CAST(NULL AS STRING)",
    "at": "CAST(NULL AS BIGINT)",
    "txn": "CAST(NULL AS STRING)",
    "amount": "CAST(NULL AS INT)",
    "which": "CAST(NULL AS STRING)",
    "isolation": "CAST(NULL AS STRING)",
}
_FROM: Final = {"index": "l.idx", "t_ns": "l.t", "offset": "l.at", "client": "'generated'"}
_OF_SENDS: Final = {"acks": "-1", "idempotent": "true", "max_in_flight": "5"}


def _select(given: dict[str, str], where: str = "true") -> str:
    columns = ", ".join(f"{given.get(name, default)} AS {name}" for name, default in _GIVEN.items())
    return f"SELECT {columns} FROM records r WHERE {where}\n"


def _columns() -> Iterator[str]:
    for name, kind in COLUMNS.items():
        if name in ("run", "seed"):
            continue
        source = f"l.{name}" if name in _GIVEN else _FROM.get(name, "NULL")
        if name in _OF_SENDS:
            source = f"CASE WHEN l.f = 'send' THEN {_OF_SENDS[name]} END"
        if name == "key":
            source = "CASE WHEN l.value IS NOT NULL THEN 'k' END"
        yield f"CAST({source} AS {kind}) AS `{name}`"


def _anomaly(shape: Shape) -> str:
    cases = " ".join(
        f"WHEN x.p = {p} AND x.o = {offset} THEN '{kind}'" for kind, p, offset in shape.places()
    )
    return f"CASE {cases} ELSE '' END" if cases else "''"


def _div(number: str, by: int) -> str:
    """Whole division, which the engines write differently."""
    return f"CAST(({number} - {_mod(number, by)}) / {by} AS BIGINT)"


def _mod(number: str, by: int) -> str:
    return f"{number} % {by}"
