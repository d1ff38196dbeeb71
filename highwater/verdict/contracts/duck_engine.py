"""Checks a contract's rules in DuckDB, on records that a reader yields one by one.

The records' fields go through a file, so that memory does not grow with the topic.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import duckdb

from highwater.verdict import duck
from highwater.verdict.contracts import tables
from highwater.verdict.contracts.contract_model import Contract
from highwater.verdict.contracts.fields import Record, extract
from highwater.verdict.contracts.judge import EXAMPLES
from highwater.verdict.results import Results

AT_A_TIME = 10_000


class RecordsUnreadable(Exception):
    """The records cannot be read; the message is one line that says why."""


def check(
    contract: Contract, records: Iterable[Record], read_ms: int, examples: int = EXAMPLES
) -> Results:
    """The rules' findings; `read_ms` is the wall clock before the first record was read."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="highwater-contract-") as tmp, duckdb.connect() as db:
        db.execute("SET threads = 2")
        db.execute("SET enable_progress_bar = false")
        spool = Path(tmp) / "records.jsonl"
        spec = ", ".join(f"'{name}': '{kind}'" for name, kind in tables.RECORDS.items())
        if _write(spool, contract, records):
            source = (
                f"SELECT * FROM read_json('{spool}', format = 'newline_delimited', "
                f"columns = {{{spec}}})"
            )
        else:
            fields = (f'CAST(NULL AS {k}) AS "{n}"' for n, k in tables.RECORDS.items())
            source = f"SELECT {', '.join(fields)} WHERE false"
        db.execute(f"CREATE TABLE records AS {source}")
        for name, rows in tables.rows(contract, read_ms).items():
            columns = tables.PROMISES[name]
            db.execute(f"CREATE TABLE {name} ({', '.join(f'{c} {k}' for c, k in columns.items())})")
            if rows:
                places = ", ".join("?" * len(columns))
                db.executemany(f"INSERT INTO {name} VALUES ({places})", rows)
        duck.build_views(db, tables.rules_folder())
        checks = duck.look(db, tables.demanded(contract), examples)
        facts = {"coverage": duck.rows(db, tables.COVERAGE)}
    return Results(
        engine="duckdb",
        version=duckdb.__version__,
        checks=checks,
        facts=facts,
        seconds=round(time.perf_counter() - began, 1),
    )


def _write(spool: Path, contract: Contract, records: Iterable[Record]) -> int:
    wanted = {name: topic.looked_for for name, topic in contract.topics.items()}
    count = 0
    with spool.open("w", encoding="utf-8") as file:
        for record in records:
            place = (record.topic, record.partition, record.offset, record.timestamp_ms)
            values = (*place, *extract(wanted[record.topic], record))
            line = dict(zip(tables.RECORDS, values, strict=True))
            file.write(json.dumps(line, default=str) + "\n")
            count += 1
    return count


def consumed(folder: Path, topics: Iterable[str]) -> Iterator[Record]:
    """Records in Parquet, as spark/ingest.py or Spark's Kafka source writes them."""
    files = sorted(str(path) for path in folder.glob("*.parquet"))
    if not files:
        raise RecordsUnreadable(f"{folder} holds no Parquet files")
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        there = {name: str(kind) for name, kind, *_ in _describe(db, files)}
        lacking = [n for n in ("topic", "partition", "offset", "key", "value") if n not in there]
        if lacking:
            raise RecordsUnreadable(f"{folder}: the Parquet has no column {', '.join(lacking)}")
        columns = [
            '"topic"',
            '"partition"',
            '"offset"',
            'epoch_ms("timestamp")' if "timestamp" in there else "NULL",
            *(f'"{n}"' if there[n] == "BLOB" else f'encode("{n}")' for n in ("key", "value")),
            '"headers"' if "headers" in there else "NULL",
        ]
        cursor = db.execute(
            f"SELECT {', '.join(columns)} FROM read_parquet(?) WHERE list_contains(?, topic)",
            [files, list(topics)],
        )
        while batch := cursor.fetchmany(AT_A_TIME):
            for row in batch:
                pairs = [(h["key"], h["value"]) for h in row[6] or ()]
                yield Record._make((*row[:6], pairs))


def _describe(db: duckdb.DuckDBPyConnection, files: list[str]) -> list[tuple[Any, ...]]:
    try:
        return db.execute("DESCRIBE SELECT * FROM read_parquet(?)", [files]).fetchall()
    except duckdb.Error as error:
        first = str(error).splitlines()[0]
        raise RecordsUnreadable(f"{files[0]} cannot be read: {first}") from error
