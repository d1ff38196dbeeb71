"""The checks in DuckDB: the same SQL files as Spark's, in this process and within a second."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import duckdb

from highwater.verdict import catalog, tables
from highwater.verdict.location import Folder
from highwater.verdict.results import Found, Results, finding, none_yet


def run_checks(run: Path, examples: int = 5, folder: Path | None = None) -> Results:
    """Runs the checks on the tables in RUN/tables; `folder` holds other SQL files."""
    began = time.perf_counter()
    with duckdb.connect() as db:
        db.execute("SET threads = 2")
        db.execute("SET enable_progress_bar = false")  # it would disturb the command's own line
        tables.register(db, run)
        build_views(db, folder)
        checks = look(db, catalog.checks(folder), examples)
        facts = rows(db, catalog.FACTS)[0]
        claims = {} if tables.read_info(run) else rows(db, catalog.CLAIMS)[0]
    return Results(
        engine="duckdb",
        version=duckdb.__version__,
        checks=checks,
        facts=facts,
        claims=claims,
        seconds=round(time.perf_counter() - began, 1),
    )


def build_views(db: duckdb.DuckDBPyConnection, folder: Folder | None) -> None:
    """Builds the views that the checks use, on the tables that exist."""
    for name, query in catalog.views(folder):
        db.execute(f"CREATE TEMP TABLE {name} AS {query}")


def look(
    db: duckdb.DuckDBPyConnection, selected: list[catalog.Check], examples: int
) -> dict[str, Found]:
    """The findings of each of these checks; `examples` rows of each kind."""
    checks = none_yet([c.id for c in selected])
    for id_, examined in db.execute(catalog.examined_query(selected)).fetchall():
        checks[id_]["examined"] = examined
    for row in rows(db, catalog.findings_query(selected, examples)):
        entry = checks[row["id"]]
        entry["found"][row["kind"]] = row["found"]
        entry["examples"].append(finding(row))
    return checks


def rows(db: duckdb.DuckDBPyConnection, query: str) -> list[dict[str, Any]]:
    cursor = db.execute(query)
    names = [column[0] for column in cursor.description or []]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
