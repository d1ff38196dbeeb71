"""Measures the ways in which Spark can run the checks: the table of docs/spark.md.

    python spark/plans.py RUN [--rounds 3] [--variant NAME ...]

Each variant runs by a spark-submit of its own, all of them in turn, so that a busy minute of the
machine meets each of them; the table has medians of seconds, and of the CPU seconds of the whole
job.  RUN needs its tables as Parquet: `highwater verify RUN --engine duckdb` makes them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

for place in Path(__file__).resolve().parents[1:3]:
    if (place / "highwater" / "__init__.py").is_file():
        sys.path.insert(0, str(place))

from highwater.verdict import catalog  # noqa: E402
from highwater.verdict.by_spark import spark_tables  # noqa: E402
from highwater.verdict.by_spark.spark_submit import QUICK_JAVA  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PHASES = ("session", "views", "checks")
INTERPRETED = (
    ("spark.sql.codegen.wholeStage", "false"),
    ("spark.sql.adaptive.enabled", "false"),
    ("spark.sql.inMemoryColumnarStorage.compressed", "false"),
)
ONE = ("spark.sql.shuffle.partitions", "1")
EIGHT = ("spark.sql.shuffle.partitions", "8")
ADAPTIVE = ("spark.sql.adaptive.enabled", "true")


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to do it."""

    queries: int
    """Into how many the checks are put; 0 is one a check."""
    keep: str
    """The views: "memory", "parquet", "alone" (in memory, without the queries that made them), or
    "" where each query computes them."""
    layout: str
    """The views' rows: "single" partition, "hashed" by topic and partition and sorted, or ""."""
    at_a_time: int
    settings: tuple[tuple[str, str], ...]
    java: str = QUICK_JAVA
    pools: bool = False


VARIANTS = {
    "one query, no view kept": Variant(1, "", "", 1, (*INTERPRETED, ONE)),
    "one query": Variant(1, "memory", "", 1, (*INTERPRETED, ONE)),
    "four queries": Variant(4, "memory", "single", 2, (*INTERPRETED, ONE)),
    "one a check": Variant(0, "memory", "single", 1, (*INTERPRETED, ONE)),
    "two at a time": Variant(0, "memory", "single", 2, (*INTERPRETED, ONE)),
    "alone": Variant(0, "alone", "single", 2, (*INTERPRETED, ONE)),
    "two at a time, FAIR": Variant(0, "memory", "single", 2, (*INTERPRETED, ONE), pools=True),
    "three at a time": Variant(0, "memory", "single", 3, (*INTERPRETED, ONE)),
    "Parquet": Variant(0, "parquet", "single", 2, (*INTERPRETED, ONE)),
    "Java's defaults": Variant(0, "memory", "single", 2, (*INTERPRETED, ONE), java=""),
    "compiled": Variant(0, "memory", "single", 2, (*INTERPRETED[1:], ONE)),
    "hashed": Variant(0, "memory", "hashed", 2, (*INTERPRETED, EIGHT)),
    "hashed, compiled": Variant(0, "memory", "hashed", 2, (*INTERPRETED[1:], EIGHT)),
    "hashed, compiled, AQE": Variant(0, "memory", "hashed", 2, (EIGHT, ADAPTIVE)),
    "Spark's defaults": Variant(0, "memory", "", 2, (), java=""),
}


def measure(run: str, variant: Variant, began: float) -> dict[str, float]:
    """In the job: seconds of each phase."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("highwater-plans").getOrCreate()
    at = {"session": time.monotonic()}
    with tempfile.TemporaryDirectory() as scratch:
        for name, (_, columns) in catalog.TABLES.items():
            _keep(spark, variant, name, _table(spark, run, name, columns), scratch)
        _keep(spark, variant, "topics", _table(spark, run, "topics", catalog.TOPICS), scratch)
        _table(spark, run, "consumed", catalog.CONSUMED).createOrReplaceTempView("consumed")
        for name, query in catalog.views():
            _keep(spark, variant, name, spark.sql(query), scratch)
        at["views"] = time.monotonic()
        with ThreadPoolExecutor(variant.at_a_time) as pool:
            for _ in pool.map(lambda job: _run(spark, variant, *job), _jobs(variant)):
                pass
        at["checks"] = time.monotonic()
    starts = (began, *list(at.values())[:-1])
    return {phase: at[phase] - start for phase, start in zip(PHASES, starts, strict=True)}


def _jobs(variant: Variant) -> list[tuple[str, list[str]]]:
    selected = catalog.checks()
    if not variant.queries:
        return [(c.id, [catalog.check_query(c, 5)]) for c in selected]
    groups = [selected[i :: variant.queries] for i in range(variant.queries)]
    both = (catalog.examined_query, lambda group: catalog.findings_query(group, 5))
    return [(f"group {i}", [make(group) for make in both]) for i, group in enumerate(groups)]


def _run(spark: SparkSession, variant: Variant, name: str, queries: list[str]) -> None:
    if variant.pools:
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
    for query in queries:
        spark.sql(query).collect()


def _table(spark: SparkSession, run: str, name: str, columns: dict[str, str]) -> DataFrame:
    path = Path(run, "tables", f"{name}.parquet")
    if path.exists():
        return spark.read.schema(catalog.ddl(columns)).parquet(str(path))
    fields = ", ".join(f"CAST(NULL AS {kind}) AS `{column}`" for column, kind in columns.items())
    return spark.sql(f"SELECT {fields} WHERE false")


def _keep(spark: SparkSession, variant: Variant, name: str, found: DataFrame, scratch: str) -> None:
    if variant.layout == "single":
        found = found.coalesce(1)
    elif variant.layout == "hashed" and {"topic", "partition", "offset"} < set(found.columns):
        found = found.repartition(8, "topic", "partition")
        found = found.sortWithinPartitions("topic", "partition", "offset")
    if variant.keep == "parquet":
        found.write.parquet(f"{scratch}/{name}")
        found = spark.read.parquet(f"{scratch}/{name}")
        found = found.coalesce(1) if variant.layout == "single" else found
    elif variant.keep:
        found = found.persist()
        found.count()
    if variant.keep == "alone":
        found = spark_tables.alone(spark, found)
    found.createOrReplaceTempView(name)


def submit(run: str, name: str, master: str) -> dict[str, float]:
    """One variant by a spark-submit of its own: its phases, `total` and `cpu`."""
    from highwater.verdict.by_spark import spark_submit

    spark, variant = spark_submit.find(), VARIANTS[name]
    command = [str(spark.home / "bin" / "spark-submit"), "--master", master]
    command += ["--driver-memory", "4g", "--driver-java-options", variant.java or "-Dnone=1"]
    for key, value in (*variant.settings, ("spark.ui.enabled", "false")):
        command += ["--conf", f"{key}={value}"]
    if variant.pools:
        command += ["--conf", "spark.scheduler.mode=FAIR"]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [*command, str(Path(__file__).resolve()), run, "--one", name],
        env=spark.environment() | {"BEGAN": str(began)},
        capture_output=True,
        text=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"plans: {name}: {done.stderr[-2000:]}")
    phases: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {**phases, "total": sum(phases.values()), "cpu": cpu}


def main() -> int:
    parser = argparse.ArgumentParser(description="Measures how the checks are best put to Spark.")
    parser.add_argument("run", metavar="RUN", help="a run's folder with tables/*.parquet")
    parser.add_argument("--rounds", type=int, default=3, help="of each variant (default 3)")
    parser.add_argument("--variant", action="append", choices=VARIANTS, help="of these alone")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--one", choices=VARIANTS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.run, VARIANTS[args.one], float(os.environ["BEGAN"]))))
        return 0
    names = args.variant or list(VARIANTS)
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    try:
        for _ in range(args.rounds):
            for name in names:
                seen[name].append(submit(args.run, name, args.master))
                told = f"plans: {name}: {seen[name][-1]['total']:.1f} s"
                print(told, file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print("plans: stopped: the table has what was measured until now", file=sys.stderr)
    _print_table(seen)
    return 0


def _print_table(seen: dict[str, list[dict[str, float]]]) -> None:
    columns = (*PHASES, "total", "cpu")
    print(f"| variant | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}")
    for name, measured in seen.items():
        if measured:
            medians = (statistics.median(one[column] for one in measured) for column in columns)
            print(f"| {name} | {' | '.join(f'{m:.1f}' for m in medians)} |")


if __name__ == "__main__":
    sys.exit(main())
