"""The page's data, gathered from the run's folder.

Seconds count from the first line of the history.  The numbers of the timeline come from the same
tables and views as the checks, so the page cannot contradict the verdict.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import duckdb

from highwater.verdict import catalog, tables
from highwater.verdict.report import anomaly
from highwater.verdict.report.anomaly import Anomaly

BINS: Final = 160
MAX_MARKS: Final = 2000
PROCESSES: Final = "cluster/processes.jsonl"


@dataclass(slots=True)
class Rates:
    """Operations a second in each bin of the timeline."""

    seconds: float
    acked: list[float] = field(default_factory=lambda: [0.0] * BINS)
    unsafe: list[float] = field(default_factory=lambda: [0.0] * BINS)
    """Acknowledgements where a loss is allowed (acks=1)."""
    unknown: list[float] = field(default_factory=lambda: [0.0] * BINS)
    failed: list[float] = field(default_factory=lambda: [0.0] * BINS)
    polled: list[float] = field(default_factory=lambda: [0.0] * BINS)
    """Records read, without those of the full read at the end."""
    latency_ms: list[float | None] = field(default_factory=lambda: [None] * BINS)
    """The p99 of the binding acknowledgements' latency."""


@dataclass(slots=True)
class Flow:
    """Records a second in each bin, into an application and out of it."""

    source: str
    target: str
    seconds: float
    acknowledged: list[float] = field(default_factory=lambda: [0.0] * BINS)
    came: list[float] = field(default_factory=lambda: [0.0] * BINS)
    """Outputs whose id had not come out before."""
    again: list[float] = field(default_factory=lambda: [0.0] * BINS)


@dataclass(slots=True)
class Span:
    """A state that lasted: a leader, an ISR, a controller, a process, its registration."""

    begin: float
    end: float
    state: Any
    note: str


@dataclass(slots=True)
class Fault:
    at: float
    name: str
    target: str
    effect: str | None


@dataclass(slots=True)
class Loss:
    at: float
    expected: bool
    text: str


@dataclass(slots=True)
class ReportData:
    info: dict[str, Any]
    verdict: dict[str, Any]
    seconds: float
    rates: Rates
    faults: list[Fault]
    leaders: dict[str, list[Span]]
    isrs: dict[str, list[Span]]
    controllers: list[Span]
    processes: dict[str, list[Span]]
    """Member -> up, paused, down: its process's states, as the harness caused or saw them."""
    registrations: dict[str, list[Span]]
    """Broker -> whether its znode exists: a killed broker's stays until its session ends."""
    losses: list[Loss]
    final_read_at: float | None
    """The start of the full read at the end."""
    gap: tuple[float, float] | None
    """The longest time without a binding acknowledgement while producers ran: its begin and its
    length.
    """
    clients: list[tuple[str, int, int, int]]
    """(library, records acknowledged, of unknown outcome, read)."""
    anomaly: Anomaly | None = None
    flow: Flow | None = None
    """Only for an application's run, whose history has no operations."""

    def members(self) -> list[str]:
        """The members: ZooKeeper and the application's copies first, then the brokers."""
        return sorted(self.processes.keys() | self.registrations.keys(), key=_natural)


def gather(run: Path) -> ReportData:
    counts = tables.build(run)
    verdict_file = run / "verdict.json"
    if not verdict_file.is_file():
        raise tables.RunUnreadable(
            f"{run} holds no verdict.json: run `highwater verify {run}` first"
        )
    verdict = json.loads(verdict_file.read_text(encoding="utf-8"))
    info = tables.read_info(run)
    with duckdb.connect() as db:
        db.execute("SET threads = 2")
        tables.register(db, run)
        for name, query in catalog.views():
            db.execute(f"CREATE TEMP TABLE {name} AS {query}")
        origin, seconds = _extent(db) if counts["history"] else (0, 1.0)
        rates = _rates(db, origin, seconds)
        losses = _losses(db, origin)
        gap = _longest_gap(db, origin)
        final_read_at = _final_read_at(db, origin)
        clients = _clients(db)
        first = anomaly.find(db, verdict, origin)
    return ReportData(
        info=info,
        verdict=verdict,
        seconds=seconds,
        rates=rates,
        faults=faults_of(run, origin),
        losses=losses,
        final_read_at=final_read_at,
        gap=gap,
        clients=clients,
        anomaly=first,
        **members_spans(run, origin, seconds),
    )


def faults_of(run: Path, origin: int) -> list[Fault]:
    return [
        Fault(
            at=_seconds(f.get("t_ns"), origin, f.get("t")),
            name=str(f.get("name", "?")),
            target=_text(f.get("target")),
            effect=None if f.get("effect") is None else _text(f.get("effect")),
        )
        for f in json_lines(run / "faults.jsonl")
    ]


def members_spans(run: Path, origin: int, seconds: float) -> dict[str, Any]:
    """The fields of ReportData that come from the witness and the processes."""
    witnessed = json_lines(run / "witness.jsonl")
    lives = [{**line, "what": "process"} for line in json_lines(run / PROCESSES)]
    return {
        "leaders": _spans(witnessed, "leader", origin, seconds),
        "isrs": _spans(witnessed, "isr", origin, seconds),
        "controllers": _spans(witnessed, "controller", origin, seconds).get("", []),
        "processes": _spans(lives, "process", origin, seconds),
        "registrations": _spans(witnessed, "broker", origin, seconds),
    }


def _extent(db: duckdb.DuckDBPyConnection) -> tuple[int, float]:
    row = db.execute("SELECT min(h.t_ns), max(h.t_ns) FROM history h").fetchone()
    assert row is not None
    return int(row[0] or 0), max((int(row[1] or 0) - int(row[0] or 0)) / 1e9, 0.001)


def _rates(db: duckdb.DuckDBPyConnection, origin: int, seconds: float) -> Rates:
    rates = Rates(seconds=seconds / BINS)
    width_ns = seconds * 1e9 / BINS
    bin_of = f"least(CAST(floor(({{}} - {origin}) / {width_ns!r}) AS INT), {BINS - 1})"
    query = f"""
        SELECT {bin_of.format("coalesce(s.acked_ns, s.started_ns)")} AS bin,
          count(*) FILTER (WHERE s.binding), count(*) FILTER (WHERE s.acked AND NOT s.binding),
          count(*) FILTER (WHERE s.outcome = 'info'), count(*) FILTER (WHERE s.outcome = 'fail'),
          quantile_cont((s.acked_ns - s.started_ns) / 1e6, 0.99) FILTER (WHERE s.binding)
        FROM sends s GROUP BY bin"""
    for at, acked, unsafe, unknown, failed, slow in db.execute(query).fetchall():
        rates.acked[at], rates.unsafe[at] = acked / rates.seconds, unsafe / rates.seconds
        rates.unknown[at], rates.failed[at] = unknown / rates.seconds, failed / rates.seconds
        rates.latency_ms[at] = slow
    query = f"""SELECT {bin_of.format("r.t_ns")} AS bin, count(*) FROM reads r
        WHERE r.witness = 'run' GROUP BY bin"""
    for at, polled in db.execute(query).fetchall():
        rates.polled[at] = polled / rates.seconds
    return rates


def _losses(db: duckdb.DuckDBPyConnection, origin: int) -> list[Loss]:
    check = next(c for c in catalog.checks() if c.id == "C4")
    rows = db.execute(
        f"""SELECT s.acked_ns, f.kind, f.topic, f.partition, f.offset, f.value
        FROM ({check.findings}) f JOIN sends s ON s.topic = f.topic AND s.value = f.value
        WHERE s.acked ORDER BY s.acked_ns LIMIT {MAX_MARKS}"""
    ).fetchall()
    return [
        Loss(
            (at - origin) / 1e9,
            kind == "expected",
            f"{topic}-{partition} offset {offset}: {value[:60]}",
        )
        for at, kind, topic, partition, offset, value in rows
    ]


def _final_read_at(db: duckdb.DuckDBPyConnection, origin: int) -> float | None:
    row = db.execute("SELECT min(r.t_ns) FROM reads r WHERE r.witness = 'final'").fetchone()
    return None if row is None or row[0] is None else (row[0] - origin) / 1e9


def _longest_gap(db: duckdb.DuckDBPyConnection, origin: int) -> tuple[float, float] | None:
    row = db.execute(
        """SELECT g.t_ns, g.gap FROM (
          SELECT s.acked_ns AS t_ns, lead(s.acked_ns) OVER (ORDER BY s.acked_ns) - s.acked_ns AS gap
          FROM sends s WHERE s.binding
        ) g WHERE g.gap IS NOT NULL ORDER BY g.gap DESC, g.t_ns LIMIT 1"""
    ).fetchone()
    return None if row is None else ((row[0] - origin) / 1e9, row[1] / 1e9)


def _clients(db: duckdb.DuckDBPyConnection) -> list[tuple[str, int, int, int]]:
    return db.execute(
        """SELECT c.client, sum(c.acked)::BIGINT, sum(c.unknown)::BIGINT, sum(c.polled)::BIGINT
        FROM (
          SELECT s.client, CASE WHEN s.acked THEN 1 ELSE 0 END AS acked,
            CASE WHEN s.outcome = 'info' THEN 1 ELSE 0 END AS unknown, 0 AS polled FROM sends s
          UNION ALL
          SELECT h.client, 0, 0, 1
          FROM history h WHERE h.f = 'poll' AND h.type = 'ok' AND h.offset >= 0
        ) c GROUP BY c.client ORDER BY c.client"""
    ).fetchall()


def _spans(
    lines: list[dict[str, Any]], what: str, origin: int, seconds: float
) -> dict[str, list[Span]]:
    """One row of spans for each thing the witness names: a partition, a broker, or ""."""
    rows: dict[str, list[Span]] = {}
    for line in lines:
        at = min(max(_seconds(line.get("t_ns"), origin, line.get("t")), 0.0), seconds)
        for subject, state in _states(line, what, rows):
            row = rows.setdefault(subject, [])
            if row and row[-1].state == state:
                continue
            if row:
                row[-1].end = at
            row.append(Span(at, seconds, state, _note(line)))
    return dict(sorted(rows.items()))


def _states(line: dict[str, Any], what: str, rows: dict[str, list[Span]]) -> list[tuple[str, Any]]:
    """The states of kind `what` in one line of witness.jsonl: (subject, state)."""
    kind = line.get("what")
    if what in ("leader", "isr") and kind in ("leader", "isr"):
        return [(f"{line.get('topic')}-{line.get('partition')}", line.get(what))]
    if kind != what:
        return []
    if what == "broker":
        registered = {f"broker-{number}" for number in line.get("brokers", [])}
        return [(name, name in registered) for name in sorted(registered | rows.keys())]
    if what == "process":
        return [(str(line.get("member")), line.get("state"))]
    return [("", line.get("controller"))]


def _natural(member: str) -> tuple[int, int, str]:
    """A sort key: ZooKeeper, then app before app-2, then broker-2 before broker-10."""
    kind, _, number = member.partition("-")
    order = {"app": 1, "broker": 2}.get(kind, 0)
    return order, int(number) if number.isdigit() else 0, member


def _note(line: dict[str, Any]) -> str:
    skipped = ("t_ns", "t", "what", "topic", "partition", "member")
    return ", ".join(f"{k} {_text(v)}" for k, v in line.items() if k not in skipped)


def _seconds(t_ns: Any, origin: int, otherwise: Any) -> float:
    if t_ns is not None:
        return (int(t_ns) - origin) / 1e9
    return float(otherwise or 0.0)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False).strip('"')


def json_lines(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n") and line.strip()]
