"""Converts the run's JSON lines to the tables of the checks: Parquet files in RUN/tables, written
by DuckDB.

A million lines take DuckDB about a second, and Spark then reads columns instead of parsing text.
Both engines read these same files, so they cannot disagree about what a line said.  A torn last
line (the writer was killed) is left out; any other damage is an error that names the file.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import duckdb

from highwater.verdict import catalog

FOLDER = "tables"


class RunUnreadable(Exception):
    """The run's folder cannot be checked; the message says what is wrong with it."""


def build(run: Path) -> dict[str, int]:
    """Writes RUN/tables/*.parquet; returns the number of rows of each table."""
    if not (run / "history.jsonl").is_file():
        raise RunUnreadable(f"{run} holds no history.jsonl: name the folder of a run")
    target = run / FOLDER
    target.mkdir(exist_ok=True)
    counts = {}
    with duckdb.connect() as db:
        db.execute("SET threads = 2")
        for name, (file, columns) in catalog.TABLES.items():
            select = _select_lines(run / file, columns)
            counts[name] = _write(db, select, target / f"{name}.parquet", run / file)
        info = read_info(run)
        db.execute("CREATE TEMP TABLE topics (topic VARCHAR, expect_loss BOOLEAN, unclean BOOLEAN)")
        rows = [
            (t["name"], bool(t.get("expect_loss")), bool(t.get("unclean")))
            for t in info.get("topics", [])
        ]
        if rows:
            db.executemany("INSERT INTO topics VALUES (?, ?, ?)", rows)
        counts["topics"] = _write(
            db, "SELECT * FROM topics", target / "topics.parquet", run / "run.json"
        )
    return counts


def register(db: duckdb.DuckDBPyConnection, run: Path) -> None:
    """Makes the run's tables, and the consumed data, tables of this database."""
    for name in [*catalog.TABLES, "topics"]:
        path = run / FOLDER / f"{name}.parquet"
        db.execute(f"CREATE TEMP VIEW {name} AS SELECT * FROM read_parquet({_quoted(path)})")
    files = sorted((run / "consumed").glob("*.parquet"))
    columns = catalog.CONSUMED
    if files:
        picked = ", ".join(
            f'CAST("{name}" AS {kind}) AS "{name}"' for name, kind in columns.items()
        )
        source = f"SELECT {picked} FROM read_parquet([{', '.join(map(_quoted, files))}])"
    else:
        source = _nothing(columns)
    db.execute(f"CREATE TEMP VIEW consumed AS {source}")


def read_info(run: Path) -> dict[str, Any]:
    path = run / "run.json"
    if not path.is_file():
        return {}
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunUnreadable(f"{path} is not JSON: {error}") from error
    if not isinstance(info, dict):
        raise RunUnreadable(f"{path} does not hold a JSON object")
    return info


def _select_lines(path: Path, columns: dict[str, str]) -> str:
    if not path.is_file() or path.stat().st_size == 0:
        return _nothing(columns)
    _cut_torn_line(path)
    if path.stat().st_size == 0:
        return _nothing(columns)
    spec = ", ".join(f"'{name}': '{kind}'" for name, kind in columns.items())
    return (
        f"SELECT * FROM read_json({_quoted(path)}, format = 'newline_delimited', "
        f"columns = {{{spec}}}, maximum_object_size = 67108864)"
    )


def _nothing(columns: dict[str, str]) -> str:
    fields = ", ".join(f'CAST(NULL AS {kind}) AS "{name}"' for name, kind in columns.items())
    return f"SELECT {fields} WHERE false"


def _cut_torn_line(path: Path) -> None:
    """Cuts off a last line without a newline: it was never written whole."""
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        end, step = size, 1 << 16
        while end > 0:
            start = max(0, end - step)
            file.seek(start)
            at = file.read(end - start).rfind(b"\n")
            if at >= 0:
                end = start + at + 1
                break
            end = start
        if end < size:
            file.truncate(end)


def _write(db: duckdb.DuckDBPyConnection, select: str, path: Path, source: Path) -> int:
    temporary = path.with_suffix(".tmp")
    try:
        row = db.execute(f"COPY ({select}) TO {_quoted(temporary)} (FORMAT parquet)").fetchone()
    except duckdb.Error as error:
        first = str(error).splitlines()[0]
        raise RunUnreadable(f"{source} cannot be read: {first}") from error
    os.replace(temporary, path)
    return int(row[0]) if row else 0


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
