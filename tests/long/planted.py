"""Thousands of histories with defects at random places: DuckDB judges each by itself, and Spark the
same histories as topics of one folder.

usage: python -m tests.long.planted judge FILE FIRST COUNT
       python -m tests.long.planted total FILE

`judge` ends with 0 where both found exactly what was planted in the histories from FIRST on, and
adds a line to FILE; `total` sums these lines.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from highwater.verdict import duck, tables
from highwater.verdict.by_spark import spark_submit
from highwater.verdict.conclusion import compare
from tests.planted.at_random import History, differences, planted, violations
from tests.planted.story import write

EVERYTHING = 100_000


def by_duckdb(folder: Path, history: History) -> list[str]:
    topics = write(folder, [history.plant()])
    tables.build(folder)
    found = duck.run_checks(folder, EVERYTHING)
    return differences(violations(found), planted(topics, [history]))


def by_spark(folder: Path, histories: list[History]) -> list[str]:
    topics = write(folder, [history.plant() for history in histories])
    rows = sum(tables.build(folder).values())
    found = spark_submit.verify(folder, rows=rows, examples=EVERYTHING, progress=lambda line: None)
    return differences(violations(found), planted(topics, histories)) + compare(
        found, duck.run_checks(folder, EVERYTHING)
    )


def judge(file: Path, first: int, count: int) -> int:
    histories = [History(number) for number in range(first, first + count)]
    wrong: list[str] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as work:
        for history in histories:
            folder = Path(work, str(history.number))
            wrong += [f"history {history.number}, DuckDB: {d}" for d in by_duckdb(folder, history)]
        alone = time.monotonic() - began
        wrong += [f"Spark: {d}" for d in by_spark(Path(work, "all"), histories)]
    for line in wrong[:20]:
        print(line)
    row = {
        "histories": count,
        "folders": 1,
        "defects": sum(len(history.defects) for history in histories),
        "findings": sum(len(history.expected) for history in histories),
        "differences": len(wrong),
        "duckdb_s": alone,
        "spark_s": time.monotonic() - began - alone,
    }
    with file.open("a") as lines:
        lines.write(json.dumps(row) + "\n")
    return 1 if wrong else 0


def total(file: Path) -> None:
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    names = rows[0] if rows else ()
    of = {name: sum(row[name] for row in rows) for name in names}
    print(
        "{histories:,} histories with {defects:,} defects, {findings:,} findings planted: each one"
        " by DuckDB in {duckdb_s:,.0f} s, in {folders} folders by Spark in {spark_s:,.0f} s;"
        " {differences} differences".format(**of)
    )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["judge", file, first, count]:
            sys.exit(judge(Path(file), int(first), int(count)))
        case ["total", file]:
            total(Path(file))
        case _:
            sys.exit(__doc__)
