"""Runs the checks over a run's history and consumed data, and writes what they found as JSON.

    spark-submit spark/verify.py --run RUN --out RUN/spark.json
    spark-submit --jars JARS spark/verify.py ... --bootstrap 127.0.0.1:9092 --topics a,b

With --bootstrap it first reads the topics (as ingest.py does) in the same session.  RUN holds the
tables as Parquet (tables/NAME.parquet, which `highwater verify` writes) or as JSON lines
(history.jsonl, ...); RUN/consumed holds the independent reader's Parquet files, and may be
missing.  Works with any --master that can read RUN.

The checks are the files in checks/, in the words of views/; catalog.py says how they are written.
All of them run as two queries, because starting a query costs Spark more than most checks do.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import catalog
import ingest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEAVY = {"sends", "reads", "placed", "poll_steps"}
"""Views that many checks read: kept in memory."""


def load_tables(spark: SparkSession, run: str) -> None:
    """Registers `history`, `faults`, ..., `topics` and `consumed`."""
    for name, (file, columns) in catalog.TABLES.items():
        table = _table(spark, run, name, file, columns)
        if name == "history":
            table = table.where("f IS NOT NULL")  # a torn last line
        table.createOrReplaceTempView(name)
    _topics(spark, run).createOrReplaceTempView("topics")
    consumed = _read(spark, "parquet", f"{run}/consumed", catalog.ddl(catalog.CONSUMED))
    _or_empty(spark, consumed, catalog.CONSUMED).createOrReplaceTempView("consumed")


def _table(
    spark: SparkSession, run: str, name: str, file: str, columns: dict[str, str]
) -> DataFrame:
    schema = catalog.ddl(columns)
    found = _read(spark, "parquet", f"{run}/tables/{name}.parquet", schema)
    if found is None:
        found = _read(spark, "json", f"{run}/{file}", schema)
    if found is None and name == "history":
        raise SystemExit(
            f"verify: {run} holds neither {file} nor tables/{name}.parquet: name a run's folder"
        )
    return _or_empty(spark, found, columns)


def _topics(spark: SparkSession, run: str) -> DataFrame:
    found = _read(spark, "parquet", f"{run}/tables/topics.parquet", catalog.ddl(catalog.TOPICS))
    if found is None:
        fields = "name: STRING, expect_loss: BOOLEAN, unclean: BOOLEAN"
        info = _read(spark, "json", f"{run}/run.json", f"topics ARRAY<STRUCT<{fields}>>", True)
        if info is not None:
            found = info.selectExpr("inline(topics)").withColumnRenamed("name", "topic")
    return _or_empty(spark, found, catalog.TOPICS)


def _read(
    spark: SparkSession, form: str, path: str, schema: str, whole: bool = False
) -> DataFrame | None:
    from pyspark.errors import AnalysisException

    try:
        return spark.read.schema(schema).option("multiLine", whole).format(form).load(path)
    except AnalysisException as error:
        if "PATH_NOT_FOUND" in str(error):
            return None
        raise


def _or_empty(spark: SparkSession, found: DataFrame | None, columns: dict[str, str]) -> DataFrame:
    return found if found is not None else spark.createDataFrame([], catalog.ddl(columns))


def run_checks(spark: SparkSession, examples: int) -> dict[str, Any]:
    """{"checks": {id: {"examined", "found": {kind: n}, "examples": [...]}}, "facts": {...}}"""
    for name, query in catalog.views():
        spark.sql(query).createOrReplaceTempView(name)
        if name in HEAVY:
            spark.sql(f"CACHE LAZY TABLE {name}")
    selected = catalog.checks()
    result: dict[str, Any] = {c.id: {"examined": 0, "found": {}, "examples": []} for c in selected}
    for row in spark.sql(catalog.examined_query(selected)).collect():
        result[row["id"]]["examined"] = row["examined"]
    for row in spark.sql(catalog.findings_query(selected, examples)).collect():
        entry = result[row["id"]]
        entry["found"][row["kind"]] = row["found"]
        entry["examples"].append({name: row[name] for name in catalog.FINDING})
    facts = spark.sql(catalog.FACTS).collect()[0].asDict()
    return {"checks": result, "facts": facts}


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Runs the checks over a run's folder and writes what they found as JSON.",
        epilog="example: spark-submit spark/verify.py --run runs/7 --out runs/7/spark.json",
    )
    parser.add_argument("--run", required=True, help="the run's folder")
    parser.add_argument("--out", required=True, help="JSON file to write")
    parser.add_argument(
        "--bootstrap", help="read the topics from this cluster first, into RUN/consumed"
    )
    parser.add_argument("--topics", help="topics to read, separated by commas (with --bootstrap)")
    parser.add_argument(
        "--examples", type=int, default=5, help="examples kept for each check (default 5)"
    )
    args = parser.parse_args()
    if bool(args.bootstrap) != bool(args.topics):
        parser.error("--bootstrap and --topics go together")

    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("highwater-verify").getOrCreate()
    began = time.monotonic()
    result: dict[str, Any] = {
        "engine": "spark",
        "version": spark.version,
        "master": spark.sparkContext.master,
        "ingest": None,
        "ingest_error": None,
    }
    if args.bootstrap:
        print(
            f"verify: reading {args.topics} from {args.bootstrap} through Spark's Kafka source",
            flush=True,
        )
        try:
            count = ingest.read_topics(
                spark, args.bootstrap, args.topics.split(","), f"{args.run}/consumed"
            )
            result["ingest"] = {"records": count, "seconds": round(time.monotonic() - began, 1)}
            print(f"verify: read {count} records", flush=True)
        except Exception as error:
            result["ingest_error"] = ingest.reason(error)
            print(f"verify: the topics could not be read: {result['ingest_error']}", flush=True)
    load_tables(spark, args.run)
    print(f"verify: running {len(catalog.checks())} checks", flush=True)
    result.update(run_checks(spark, args.examples))
    result["seconds"] = round(time.monotonic() - began, 1)
    Path(args.out).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"verify: checked in {result['seconds']} s", flush=True)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
