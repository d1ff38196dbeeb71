"""The first anomaly of a run: what its clients did around one record, and what the logs hold there.

The finding is the one that the headline tells.  An *act* is one operation of a client: a send, from
its request to its outcome, or a moment at which records were read, or acknowledged by a member of a
share group.  Acts about the same record are the anomaly's own; those about the offsets next to it
show how others fared meanwhile.  Values stay out, because they are the user's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import duckdb

from highwater.verdict import catalog, duck
from highwater.verdict.headline import story

NEXT_TO: Final = 2
"""How many offsets at either side of the record are looked at."""
MOST_ACTS: Final = 40
MOST_ROWS: Final = 12


@dataclass(frozen=True, slots=True)
class Act:
    process: str
    kind: str
    """send, or a column `f` of the history."""
    begin: float
    end: float
    outcome: str
    """ok, fail, info (unknown)."""
    text: str
    own: bool
    """Whether it is about the record itself."""
    final: bool = False
    """Whether it belongs to the full read at the end."""


@dataclass(frozen=True, slots=True)
class Held:
    """What brokers' logs hold at one offset when the run is over."""

    offset: int
    what: str
    brokers: str
    own: bool


@dataclass(slots=True)
class Anomaly:
    check: str
    name: str
    sentence: str
    partition: str
    """topic-partition; empty where the finding names none, and then there are no acts."""
    acts: list[Act] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)

    @property
    def extent(self) -> tuple[float, float] | None:
        """Seconds of its own acts, from the first to the last, before the full read at the end."""
        own = [act for act in self.acts if act.own and not act.final]
        own = own or [act for act in self.acts if act.own] or self.acts
        return (min(a.begin for a in own), max(a.end for a in own)) if own else None


def find(db: duckdb.DuckDBPyConnection, verdict: dict[str, Any], origin: int) -> Anomaly | None:
    """The first violation of the first violated check; None in a run without any."""
    broken = next((i for i, c in verdict["checks"].items() if c["status"] == "violated"), None)
    check = next((c for c in catalog.checks() if c.id == broken), None)
    if check is None:
        return None
    found = duck.rows(db, catalog.findings_query([check], 1))
    row = next((r for r in found if r["kind"] == "violation"), None)
    if row is None:
        return None
    anomaly = Anomaly(check.id, check.name, story(row), "")
    if row["topic"] is not None and row["partition"] is not None:
        anomaly.partition = f"{row['topic']}-{row['partition']}"
        acts = [*_sends(db, row, origin), *_others(db, row, origin)]
        acts.sort(key=lambda act: (not act.own, act.begin))
        anomaly.acts = sorted(acts[:MOST_ACTS], key=lambda act: (act.begin, act.process))
        anomaly.held = _held(db, row)
    return anomaly


def _sends(db: duckdb.DuckDBPyConnection, row: dict[str, Any], origin: int) -> Iterable[Act]:
    query = f"""
        SELECT s.process, s.started_ns, s.acked_ns, s.outcome, s.offset, s.acks, s.expect_loss,
          s.leader_epoch, s.value
        FROM sends s
        WHERE s.topic = $topic
          AND (s.value = $value
            OR s.partition = $partition AND s.offset BETWEEN $low AND $high)
        ORDER BY s.started_ns LIMIT {MOST_ACTS}"""
    for send in _rows(db, query, row):
        begin = (send["started_ns"] - origin) / 1e9
        end = begin if send["acked_ns"] is None else (send["acked_ns"] - origin) / 1e9
        own = _is_it(send, row) or send["offset"] == row["offset"]
        yield Act(send["process"], "send", begin, end, send["outcome"], _send_text(send, row), own)


_ENDS: Final = {"fail": ": refused", "info": ": outcome unknown"}


def _is_it(send: dict[str, Any], row: dict[str, Any]) -> bool:
    """Whether the finding is about this record; one without a value names it by its offset."""
    name = "offset" if row["value"] is None else "value"
    return bool(send[name] == row[name])


def _send_text(send: dict[str, Any], row: dict[str, Any]) -> str:
    what = "the record" if _is_it(send, row) else "another record"
    if send["outcome"] in _ENDS:
        return f"sends {what}{_ENDS[send['outcome']]}"
    place = "acknowledged" if send["offset"] is None else f"acknowledged at {send['offset']}"
    epoch = "" if send["leader_epoch"] is None else f", epoch {send['leader_epoch']}"
    acks = "" if send["acks"] == -1 else f" (acks={send['acks']})"
    return f"sends {what}: {place}{epoch}{acks}"


def _others(db: duckdb.DuckDBPyConnection, row: dict[str, Any], origin: int) -> Iterable[Act]:
    """Reads of one poll are one act, and so are all that one request acknowledged."""
    query = """
        SELECT h.process, h.f, min(h.t_ns) AS begin_ns, max(h.t_ns) AS end_ns,
          coalesce(max(h.type) FILTER (h.type <> 'invoke'), 'info') AS outcome,
          list(DISTINCT h.offset ORDER BY h.offset) AS offsets,
          max(h.which) AS which, max(h.phase) AS phase,
          bool_or(h.offset = $offset OR h.value = $value) AS own
        FROM history h
        WHERE h.f <> 'send' AND h.topic = $topic AND h.partition = $partition
          AND (h.value = $value OR h.offset BETWEEN $low AND $high)
        GROUP BY h.process, h.f, coalesce(h.poll_id, h.op, h.index)
        ORDER BY begin_ns"""
    for act in _rows(db, query, row):
        offsets = ", ".join(str(offset) for offset in act["offsets"] if offset is not None)
        verb = _VERBS.get(act["f"], act["f"])
        which = f" ({act['which']})" if act["which"] else ""
        final = act["phase"] == "final"
        late = " in the full read at the end" if final else ""
        begin, end = ((act[name] - origin) / 1e9 for name in ("begin_ns", "end_ns"))
        outcome = act["outcome"]
        text = f"{verb} {offsets}{which}{_ENDS.get(outcome, '')}{late}"
        yield Act(act["process"], act["f"], begin, end, outcome, text, bool(act["own"]), final)


_VERBS: Final = {
    "poll": "reads", "acquire": "acquires", "acknowledge": "acknowledges", "commit": "commits",
    "committed": "learns the commit", "assign": "is assigned at", "list_offsets": "lists offset",
    "offset_fetch": "fetches the commit",
}  # fmt: skip


def _held(db: duckdb.DuckDBPyConnection, row: dict[str, Any]) -> list[Held]:
    query = f"""
        SELECT g.offset, g.own, g.leader_epoch,
          string_agg(CAST(g.broker AS VARCHAR), ', ' ORDER BY g.broker) AS brokers
        FROM (
          SELECT DISTINCT d.offset, d.broker, d.leader_epoch, d.value,
            coalesce(d.value = $value, false) AS own
          FROM segments d
          WHERE d.topic = $topic AND d.partition = $partition AND (d.value = $value
            OR d.offset BETWEEN $low AND $high)
        ) g
        GROUP BY g.offset, g.own, g.leader_epoch, g.value
        ORDER BY g.offset, brokers LIMIT {MOST_ROWS}"""
    return [
        Held(
            held["offset"],
            f"{'the record' if held['own'] else 'another record'}, epoch {held['leader_epoch']}",
            held["brokers"],
            held["own"],
        )
        for held in _rows(db, query, row)
    ]


def _rows(db: duckdb.DuckDBPyConnection, query: str, row: dict[str, Any]) -> list[dict[str, Any]]:
    """The query's rows; it may name fields of the finding, and the offsets next to it."""
    offset = row["offset"]
    low, high = (None, None) if offset is None else (offset - NEXT_TO, offset + NEXT_TO)
    given = {**row, "low": low, "high": high}
    cursor = db.execute(query, {name: given[name] for name in given if f"${name}" in query})
    columns = [column[0] for column in cursor.description or []]
    return [dict(zip(columns, found, strict=True)) for found in cursor.fetchall()]
