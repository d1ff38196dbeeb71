"""C1-C15 of a simulated run, by the SQL files that judge real runs, in DuckDB.

A history of one seed is some ten thousand lines.  They enter DuckDB as one JSON column, which
becomes the table `history`; in the same way the writes to ZooKeeper that the rules saw become the
table `witness`. The views and checks are the files in spark/; only their findings are read.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb

from highwater.verdict import catalog

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# a simulation freezes all objects (kernel.py), and DuckDB's module needs its own back at the end
atexit.register(gc.unfreeze)

CHECKS = ("C1", "C2", "C3", "C4", "C7", "C8", "C9", "C10", "C11", "C12", "C13", "C14", "C15")
OF_TRANSACTIONS = ("T8", "T9")


class Finding(NamedTuple):
    """One violation of a check."""

    check: str
    found: int
    example: str


class Topic(NamedTuple):
    """A topic's promises; `unclean`: committed records were given up."""

    name: str
    expect_loss: bool
    unclean: bool


@cache
def _checks(ids: tuple[str, ...]) -> list[Any]:
    return [c for c in catalog.checks() if c.id in ids]


@cache
def _views() -> list[tuple[str, str]]:
    return catalog.views()


def judge(
    lines: Sequence[dict[str, Any]],
    topics: Iterable[Topic],
    witnessed: Sequence[dict[str, Any]] = (),
) -> list[Finding]:
    """The violations that the checks found; raises ValueError if they had nothing to examine."""
    db = _database()
    _load(db, lines, topics, witnessed)
    return [finding for kind, finding in _judge(db, CHECKS) if kind == "violation"]


def judge_transactions(topic: str, lines: Sequence[dict[str, Any]]) -> tuple[list[Finding], int]:
    """The circles of reads (T9), and the number of circles of writes (T8), which are allowed."""
    db = _database()
    _load(db, lines, [Topic(topic, False, False)], ())
    found = _judge(db, OF_TRANSACTIONS)
    broken = [finding for kind, finding in found if kind == "violation"]
    return broken, sum(finding.found for kind, finding in found if kind != "violation")


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """One database for all seeds of a process; each seed rebuilds all tables."""
    db = duckdb.connect()
    db.execute("SET threads = 1")
    return db


def _judge(db: duckdb.DuckDBPyConnection, ids: tuple[str, ...]) -> list[tuple[str, Finding]]:
    """Runs these checks; returns each finding with its kind."""
    for name, query in _views():
        db.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {query}")
    selected = _checks(ids)
    examined = dict(db.execute(catalog.examined_query(selected)).fetchall())
    idle = [c.id for c in selected if c.required and not examined.get(c.id)]
    if idle:
        raise ValueError(f"nothing to look at for {', '.join(idle)}")
    cursor = db.execute(catalog.findings_query(selected, 1))
    names = [column[0] for column in cursor.description or []]
    findings = []
    for row in cursor.fetchall():
        one = dict(zip(names, row, strict=True))
        place = f"{one['topic']}-{one['partition']}@{one['offset']}"
        value = f" {one['value']!r}" if one["value"] is not None else ""
        finding = Finding(one["id"], one["found"], f"{place}{value}: {one['detail']}")
        findings.append((one["kind"], finding))
    return findings


def _load(
    db: duckdb.DuckDBPyConnection,
    lines: Sequence[dict[str, Any]],
    topics: Iterable[Topic],
    witnessed: Sequence[dict[str, Any]],
) -> None:
    for name, (_, columns) in catalog.TABLES.items():
        fields = ", ".join(f'"{column}" {kind}' for column, kind in columns.items())
        db.execute(f"CREATE OR REPLACE TEMP TABLE {name} ({fields})")
    _fill(db, "history", lines)
    _fill(db, "witness", witnessed)
    fields = ", ".join(f'"{column}" {kind}' for column, kind in catalog.CONSUMED.items())
    db.execute(f"CREATE OR REPLACE TEMP TABLE consumed ({fields})")
    fields = ", ".join(f'"{column}" {kind}' for column, kind in catalog.TOPICS.items())
    db.execute(f"CREATE OR REPLACE TEMP TABLE topics ({fields})")
    db.executemany("INSERT INTO topics VALUES (?, ?, ?)", [list(topic) for topic in topics])


def _fill(db: duckdb.DuckDBPyConnection, name: str, lines: Sequence[dict[str, Any]]) -> None:
    """Loads lines as JSON, the fastest way into DuckDB; fields missing in a line become NULL."""
    columns = catalog.TABLES[name][1]
    spec = ", ".join(f"'{column}': '{kind}'" for column, kind in columns.items())
    file, path = tempfile.mkstemp(prefix="highwater-sim-", suffix=".json", dir=_memory())
    try:
        with os.fdopen(file, "w", encoding="utf-8") as out:
            out.write(json.dumps(lines))
        db.execute(
            f"INSERT INTO {name} SELECT * FROM read_json('{path}', "
            f"format = 'array', columns = {{{spec}}})"
        )
    finally:
        os.unlink(path)


def _memory() -> str | None:
    """A folder in memory, or None where there is none."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
