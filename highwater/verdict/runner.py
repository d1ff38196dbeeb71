"""Checks a run's folder: tables, an engine, a cross-check by the other engine, and the verdict.

Spark gives the verdict where it can be used; DuckDB then runs the same files over the same
tables, and a disagreement makes the verdict unknown: one of the two is wrong, and nobody can tell
which.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

from highwater.verdict import duck, spark_submit, tables
from highwater.verdict.verdict import Verdict, decide

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

    With `ingest` and the Spark engine, Spark reads the run's topics itself, from `bootstrap` or
    the cluster that run.json names: pass ingest=False where that cluster is gone, or another one
    may stand in its place. Raises RunUnreadable, and SparkMissing or SparkFailed where Spark was
    demanded.

    """
    counts = tables.build(run_dir)
    progress(f"checking {counts['history']} lines of history")
    info = tables.read_info(run_dir)
    notes: list[str] = []
    found: dict[str, Any] | None = None
    if engine != "duckdb":
        servers = (bootstrap or info.get("bootstrap") or None) if ingest else None
        try:
            found = spark_submit.verify(
                run_dir,
                rows=sum(counts.values()),
                bootstrap=servers,
                topics=[t["name"] for t in info.get("topics", [])],
                examples=examples,
                master=master,
                progress=progress,
            )
        except (spark_submit.SparkMissing, spark_submit.SparkFailed) as error:
            if engine == "spark":
                raise
            notes.append(f"checked by DuckDB alone: {error}")
            progress(notes[-1])
    by_duckdb = duck.run_checks(run_dir, examples)
    facts = by_duckdb["facts"]
    if found is not None and found.get("ingest_error"):
        notes.append(f"Spark did not read the topics itself: {found['ingest_error']}")
    if facts["consumed"]:
        when = "" if found is not None and found.get("ingest") else " in an earlier session"
        notes.append(f"an independent client read {facts['consumed']} records through Spark{when}")
    else:
        notes.append(
            "no independent reader: the checks rest on what the harness's own clients read"
        )
    verdict = decide(
        found or by_duckdb,
        info,
        list(_lines(run_dir / "faults.jsonl")),
        final_read=bool(info.get("final_read")),
        read_by_others=facts["consumed"] > 0 and not (run_dir / "consumed" / "_temporary").exists(),
        disagreements=compare(found, by_duckdb) if found else (),
    )
    verdict.notes += notes
    if found is not None:
        kept = ("version", "master", "ingest", "ingest_error", "seconds")
        verdict.spark = {k: found.get(k) for k in kept}
    verdict.write(run_dir / "verdict.json")
    return verdict


def compare(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """What two engines say differently of the same tables: one line each."""
    lines = []
    for id_ in sorted(one["checks"].keys() | other["checks"].keys()):
        for what in ("examined", "found", "examples"):
            a = one["checks"].get(id_, {}).get(what)
            b = other["checks"].get(id_, {}).get(what)
            if a != b:
                lines.append(f"{id_} {what}: {one['engine']} {a}, {other['engine']} {b}"[:300])
    return lines


def _lines(path: Path) -> Iterable[dict[str, Any]]:
    if path.is_file():
        with path.open(encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)
