"""spark/contract.py without its first lines: arguments, phases, output, exit code.

It and its imports need only the standard library and PySpark (and PyYAML for a contract in YAML).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from highwater.base.wall_clock import wall_ms
from highwater.kafka.config.checks import ConfigError
from highwater.kafka.config.sources import parse_properties
from highwater.verdict import plain_table
from highwater.verdict.by_spark import spark_engine, spark_session, spark_tables
from highwater.verdict.by_spark.spark_job import in_session
from highwater.verdict.by_spark.spark_steps import carry_out
from highwater.verdict.by_spark.spark_store import Store
from highwater.verdict.catalog import ddl
from highwater.verdict.contracts import fields, tables
from highwater.verdict.contracts.contract_model import Contract, ContractError, load
from highwater.verdict.contracts.judge import EXAMPLES, judge
from highwater.verdict.contracts.watching import job as watching
from highwater.verdict.contracts.watching.row import Row
from highwater.verdict.results import Results
from highwater.verdict.watching.job import CannotWatch
from highwater.verdict.watching.machines import StateDamaged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROG: Final = "contract"
SENT: Final = ("highwater.verdict.contracts.avro", "highwater.verdict.contracts.fields")
"""Modules that executors get by value, so that they need no Highwater."""


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    began = time.monotonic()
    refusals = (ContractError, ConfigError, CannotWatch, StateDamaged)
    return in_session(PROG, lambda spark: _Job(spark, args, began).run(), *refusals)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spark-submit spark/contract.py",
        description="Checks whether topics keep what a contract demands (docs/contract.md): a "
        "table, verdict.json, and exit code 0 (valid), 1 (invalid), 2 (void) or 3 (the topics "
        "cannot be checked).",
        epilog="example: spark-submit --packages "
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 spark/contract.py orders.json "
        "--bootstrap 127.0.0.1:9092",
    )
    parser.add_argument("contract", metavar="FILE", help="any path that Spark can read")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--bootstrap", metavar="HOST:PORT", help="the cluster that has the topics")
    source.add_argument(
        "--consumed", metavar="FOLDER", help="Parquet of spark/ingest.py, instead of a cluster"
    )
    parser.add_argument(
        "--command-config", metavar="FILE", help="settings of the consumer, as Kafka's tools take"
    )
    parser.add_argument(
        "--out", default="verdict.json", help="where the verdict goes (default verdict.json)"
    )
    parser.add_argument(
        "--examples",
        type=int,
        default=EXAMPLES,
        help=f"offenders of each rule that are named (default {EXAMPLES})",
    )
    parser.add_argument("--found", metavar="FILE", help="write what the rules found there, too")
    watching.add_arguments(parser)
    return parser


class _Job:
    """One call of the job."""

    def __init__(self, spark: SparkSession, args: argparse.Namespace, began: float) -> None:
        self.spark = spark
        self.args = args
        self.store = Store(spark)
        self.began = began

    def run(self) -> int:
        contract = load(self.args.contract, self.store.read)
        if self.args.watch:
            return self._watch(contract)
        read_ms = wall_ms()
        records = extracted(self.spark, contract, self._source(contract)).persist()
        self.spark.sparkContext.setJobDescription("reading the topics")
        bytes_read = records.agg({"bytes": "sum"}).collect()[0][0] or 0
        cores = self.spark.sparkContext.defaultParallelism
        shape = spark_session.shape_of(bytes_read, cores)
        spark_session.tune(self.spark, shape)
        run = spark_tables.Run(self.spark, self.store, "", shape)
        count = spark_tables.keep(run, "records", records.drop("bytes"))
        records.unpersist()
        self._say(f"read {count:,} records of {', '.join(contract.topics)}")
        for name, rows in tables.rows(contract, read_ms).items():
            spark_tables.few_rows(self.spark, name, tables.PROMISES[name], rows)
        checks = spark_engine.Checks(
            self.spark,
            tables.demanded(contract),
            tables.COVERAGE,
            self.args.examples,
            self._say,
        )
        views = spark_tables.view_steps(run, tables.rules_folder())
        for step in carry_out([*views, *checks.steps], shape.at_a_time):
            checks.tell(step)
        found = Results(
            engine="spark",
            version=self.spark.version,
            checks=checks.found,
            facts={"coverage": checks.facts},
            seconds=round(time.monotonic() - self.began, 1),
        )
        if self.args.found:
            self.store.write(self.args.found, json.dumps(found, indent=1) + "\n")
        judgement = judge(contract, found)
        self.store.write(self.args.out, judgement.as_json())
        told = [judgement.headline, "", *plain_table.lines(judgement)]
        told += plain_table.example_lines(judgement, self.args.examples)
        print("\n".join([*told, *judgement.notes]), flush=True)
        return judgement.exit_code

    def _watch(self, contract: Contract) -> int:
        """Checks the same rules while the topics are written."""
        if not self.args.bootstrap:
            raise CannotWatch("--watch reads from a cluster: name it by --bootstrap HOST:PORT")
        options = kafka_options(contract, self.args.bootstrap, self._settings())

        def rows(source: DataFrame) -> DataFrame:
            return extracted(self.spark, contract, source).select(*Row._fields)

        return watching.ContractWatch(self.spark, self.args, contract, options, rows).run()

    def _source(self, contract: Contract) -> DataFrame:
        """The columns of Spark's Kafka source, from the cluster or from Parquet."""
        if self.args.consumed:
            return self.spark.read.parquet(self.args.consumed)
        options = kafka_options(contract, self.args.bootstrap, self._settings())
        options["endingOffsets"] = "latest"
        return self.spark.read.format("kafka").options(**options).load()

    def _settings(self) -> dict[str, str]:
        """The settings in the file of --command-config."""
        path = self.args.command_config
        if not path:
            return {}
        text = self.store.read(path)
        if text is None:
            raise ContractError(f"{path}: there is no such file")
        return parse_properties(text, path)

    def _say(self, line: str) -> None:
        print(f"{PROG}: {line}", flush=True)


def kafka_options(
    contract: Contract, bootstrap: str, settings: Mapping[str, str]
) -> dict[str, str]:
    """The options of Spark's Kafka source, to read all topics at once from their first records."""
    return {
        "kafka.request.timeout.ms": "10000",
        "kafka.default.api.timeout.ms": "20000",
        "fetchOffset.numRetries": "1",  # each retry waits for the whole time-out
        **{f"kafka.{name}": value for name, value in settings.items()},
        "kafka.bootstrap.servers": bootstrap,
        "kafka.isolation.level": contract.isolation,
        "subscribe": ",".join(contract.topics),
        "startingOffsets": "earliest",
        "failOnDataLoss": "true",
        "includeHeaders": "true",
    }


def extracted(spark: SparkSession, contract: Contract, source: DataFrame) -> DataFrame:
    """tables.RECORDS of the contract's topics, and the `bytes` that each record has."""
    from pyspark.sql import functions as F

    lacking = {"topic", "partition", "offset", "key", "value"} - set(source.columns)
    if lacking:
        raise ContractError(f"the Parquet has no column {', '.join(sorted(lacking))}")
    there = "timestamp" in source.columns
    stamp = F.unix_millis(F.col("timestamp").cast("TIMESTAMP")) if there else F.lit(None)
    headers = F.col("headers") if "headers" in source.columns else F.lit(None)
    columns = [
        F.col("topic"),
        F.col("partition"),
        F.col("offset"),
        stamp.cast("BIGINT").alias("timestamp_ms"),
        F.col("key").cast("BINARY").alias("key"),
        F.col("value").cast("BINARY").alias("value"),
        headers.cast("ARRAY<STRUCT<key: STRING, value: BINARY>>").alias("headers"),
    ]
    place = ["topic", "partition", "offset", "timestamp_ms"]
    found = source.where(F.col("topic").isin(list(contract.topics))).select(*columns)
    size = F.coalesce(F.length("key"), F.lit(0)) + F.coalesce(F.length("value"), F.lit(0))
    got = _extractor(contract)(*place, "key", "value", "headers").alias("got")
    return found.select(*place, size.alias("bytes"), got).select(*place, "got.*", "bytes")


def _extractor(contract: Contract) -> Any:
    """`fields.extract` as a function of Spark's columns."""
    from pyspark import cloudpickle
    from pyspark.sql.functions import udf

    for module in SENT:
        cloudpickle.register_pickle_by_value(sys.modules[module])
    extract, record = fields.extract, cast("Any", fields.Record)
    wanted = {name: topic.looked_for for name, topic in contract.topics.items()}

    def look(*columns: Any) -> tuple[Any, ...]:
        *place, key, value, headers = columns
        key, value = (None if data is None else bytes(data) for data in (key, value))
        pairs = [
            (h["key"], None if h["value"] is None else bytes(h["value"])) for h in headers or ()
        ]
        return extract(wanted[place[0]], record(*place, key, value, pairs))

    return udf(look, ddl(tables.EXTRACTED))
