"""Checks a run's folder: tables, DuckDB's verdict at once, and Spark's after it.

Spark decides where it can be used.  DuckDB runs the same files over the same tables, in a second,
and a disagreement makes the verdict unknown: one of the two is wrong, and it is unknown which.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from highwater.verdict import duck, tables
from highwater.verdict.by_spark import spark_submit
from highwater.verdict.conclusion import compare, conclude
from highwater.verdict.results import Results
from highwater.verdict.verdict import Verdict

Engine = Literal["auto", "spark", "duckdb"]
Progress = Callable[[str], None]


def run(
    run_dir: Path,
    engine: Engine = "auto",
    progress: Progress = print,
    *,
    ingest: bool = True,
    bootstrap: str | None = None,
    master: str = "local[2]",
    examples: int = 5,
) -> Verdict:
    """Writes RUN/verdict.json and returns it.

    With `ingest` and the Spark engine, Spark reads the run's topics itself, from `bootstrap` or the
    cluster that run.json names: pass ingest=False if that cluster is gone, or another one may be at
    its address.  Raises RunUnreadable, and SparkMissing or SparkFailed if Spark was demanded.
    """
    counts = tables.build(run_dir)
    progress(f"checking {counts['history']} lines of history")
    about = _About(run_dir, tables.read_info(run_dir), _lines(run_dir / "faults.jsonl"))
    by_duckdb = duck.run_checks(run_dir, examples)
    verdict = about.verdict(by_duckdb)
    if engine != "duckdb":
        told = f"{verdict.verdict}: {verdict.headline}"
        progress(f"DuckDB, after {by_duckdb['seconds']} s: {told}")
        servers = (bootstrap or about.info.get("bootstrap") or None) if ingest else None
        try:
            by_spark = spark_submit.verify(
                run_dir,
                rows=sum(counts.values()),
                bootstrap=servers,
                topics=[t["name"] for t in about.info.get("topics", [])],
                examples=examples,
                master=master,
                progress=progress,
            )
        except (spark_submit.SparkMissing, spark_submit.SparkFailed) as error:
            if engine == "spark":
                raise
            note = f"checked by DuckDB alone: {error}"
            progress(note)
            verdict = about.verdict(by_duckdb, notes=[note])
        else:
            if by_spark["ingest"]:  # Spark has read records that DuckDB has not seen
                by_duckdb = duck.run_checks(run_dir, examples)
            verdict = about.verdict(by_spark, by_duckdb)
            progress(_confirmed(by_spark, by_duckdb))
    verdict.write(run_dir / "verdict.json")
    return verdict


def _confirmed(by_spark: Results, by_duckdb: Results) -> str:
    told = f"Spark {by_spark['version']}, after {by_spark['seconds']} s"
    if differences := compare(by_spark, by_duckdb):
        return f"{told}: disagrees with DuckDB: {differences[0]}"
    return f"{told}: the same in all {len(by_spark['checks'])} checks"


@dataclass(frozen=True, slots=True)
class _About:
    """The facts on which the verdict rests in addition to the checks."""

    run_dir: Path
    info: dict[str, Any]
    faults: Sequence[dict[str, Any]]

    def verdict(
        self, found: Results, other: Results | None = None, notes: Sequence[str] = ()
    ) -> Verdict:
        torn_read = (self.run_dir / "consumed" / "_temporary").exists()
        return conclude(
            found, self.info, self.faults, torn_read=torn_read, other=other, notes=notes
        )


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]
