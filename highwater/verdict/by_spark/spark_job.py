"""spark/verify.py without its first lines: arguments, phases, output, exit code.

Needs the standard library and PySpark alone, as everything it imports does.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from highwater.verdict import catalog, plain_table
from highwater.verdict.by_spark import spark_engine, spark_session, spark_tables
from highwater.verdict.by_spark.spark_steps import carry_out
from highwater.verdict.by_spark.spark_store import Store, StoreError
from highwater.verdict.by_spark.spark_tables import RunDamaged
from highwater.verdict.conclusion import conclude
from highwater.verdict.results import Ingest, Results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CANNOT_BE_CHECKED = 3
MARK = "verify: "
"""Begins a line about the job's progress; the lines of the verdict have no mark."""


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    began = time.monotonic()
    return in_session("verify", lambda spark: Job(spark, args, began).run(), RunDamaged)


def in_session(name: str, job: Callable[[SparkSession], int], *refusals: type[Exception]) -> int:
    """Runs a job; returns its exit code, or prints one line and returns CANNOT_BE_CHECKED if it
    raises anything."""
    spark = spark_session.open_session(f"highwater-{name}")
    try:
        return job(spark)
    except Exception as error:
        plain = isinstance(error, (*refusals, StoreError))
        told = error if plain else f"Spark gave up: {first_cause(error)}"
        print(f"{name}: {told}", file=sys.stderr, flush=True)
        return CANNOT_BE_CHECKED
    finally:
        spark.stop()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spark-submit spark/verify.py",
        description="Runs the checks over a run's folder: a table, verdict.json, and exit code 0 "
        "(valid), 1 (invalid), 2 (void or unknown) or 3 (RUN cannot be checked).",
        epilog="example: spark-submit spark/verify.py runs/7",
    )
    parser.add_argument("run", metavar="RUN", help="the run's folder: any path that Spark can read")
    parser.add_argument("--out", help="where the verdict goes (default RUN/verdict.json)")
    parser.add_argument(
        "--bootstrap", help="read the topics from this cluster first, into RUN/consumed"
    )
    parser.add_argument(
        "--topics", help="topics to read, separated by commas (default: those in RUN/run.json)"
    )
    parser.add_argument(
        "--examples", type=int, default=5, help="examples kept for each check (default 5)"
    )
    parser.add_argument(
        "--found", metavar="FILE", help="write what the checks found there, and no verdict"
    )
    return parser


class Job:
    """One call of the job."""

    def __init__(self, spark: SparkSession, args: argparse.Namespace, began: float) -> None:
        self.spark = spark
        self.args = args
        self.run_path: str = args.run.rstrip("/") or "/"
        self.store = Store(spark)
        self.began = self.last = began
        self.phases: dict[str, float] = {}
        self._end_of("session")

    def run(self) -> int:
        info = spark_tables.read_info(self.store, self.run_path)
        size = spark_tables.json_bytes(self.store, self.run_path)
        cores = self.spark.sparkContext.defaultParallelism
        shape = spark_session.shape_of(size, cores)
        spark_session.tune(self.spark, shape)
        self._say(
            f"Spark {self.spark.version} on {self.spark.sparkContext.master}, {cores} cores, "
            f"after {self.phases['session']:.1f} s"
        )
        ingest, problem = self._ingest(info)
        run = spark_tables.Run(self.spark, self.store, self.run_path, shape)
        checks = spark_engine.Checks(
            self.spark, catalog.checks(), catalog.FACTS, self.args.examples, self._say
        )
        self._carry_out(run, info, checks)
        own = not info
        claims = self.spark.sql(catalog.CLAIMS).collect()[0].asDict() if own else {}
        self._end_of("checks")
        results = Results(
            engine="spark",
            version=self.spark.version,
            master=self.spark.sparkContext.master,
            checks=checks.found,
            facts=checks.facts[0],
            claims=claims,
            ingest=ingest,
            ingest_error=problem,
            phases=self.phases,
            seconds=round(time.monotonic() - self.began, 1),
        )
        phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.phases.items())
        self._say(f"checked in {results['seconds']} s ({phases})")
        if self.args.found:
            self.store.write(self.args.found, json.dumps(results, indent=1) + "\n")
            return 0
        return self._verdict(results, info, run.notes)

    def _carry_out(
        self, run: spark_tables.Run, info: dict[str, object], checks: spark_engine.Checks
    ) -> None:
        """Makes tables and views, runs the checks, and reports its progress: the phase `read` ends
        with the last table, `views` with the last view; some checks may end before that."""
        tables, views = spark_tables.table_steps(run, info), spark_tables.view_steps(run)
        left = {"read": {step.name for step in tables}, "views": {step.name for step in views}}
        for step in carry_out([*tables, *views, *checks.steps], run.shape.at_a_time):
            checks.tell(step)
            for phase, names in left.items():
                if step.name in names:
                    names.remove(step.name)
                    if not names:
                        self._end_of(phase)
                        self._say(self._done(phase, run))

    def _done(self, phase: str, run: spark_tables.Run) -> str:
        what = f"read {run.rows['history']:,} lines of history"
        return f"{what if phase == 'read' else 'built the views'} ({self.phases[phase]:.1f} s)"

    def _verdict(self, results: Results, info: dict[str, object], notes: Sequence[str]) -> int:
        verdict = conclude(
            results,
            info,
            spark_tables.read_faults(self.store, self.run_path),
            torn_read=self.store.exists(f"{self.run_path}/consumed/_temporary"),
            notes=notes,
        )
        out = self.args.out or f"{self.run_path}/verdict.json"
        self.store.write(out, verdict.as_json())
        told = [verdict.headline, "", *plain_table.lines(verdict)]
        print("\n".join([*told, *plain_table.example_lines(verdict), *verdict.notes]), flush=True)
        return verdict.exit_code

    def _ingest(self, info: dict[str, object]) -> tuple[Ingest | None, str | None]:
        """Reads the topics; returns the outcome, or the reason why there is none."""
        if not self.args.bootstrap:
            return None, None
        import ingest  # the file beside verify.py

        topics = self.args.topics.split(",") if self.args.topics else _topics(info)
        if not topics:
            raise RunDamaged(f"{self.run_path}/run.json names no topics: name them with --topics")
        self._say(f"reading {', '.join(topics)} from {self.args.bootstrap}")
        try:
            self.spark.sparkContext.setJobDescription("reading the topics")
            count = ingest.read_topics(
                self.spark, self.args.bootstrap, topics, f"{self.run_path}/consumed"
            )
        except Exception as error:
            self._end_of("ingest")
            self._say(f"the topics could not be read: {ingest.reason(error)}")
            return None, ingest.reason(error)
        self._end_of("ingest")
        self._say(f"read {count:,} records ({self.phases['ingest']:.1f} s)")
        return Ingest(records=count, seconds=self.phases["ingest"]), None

    def _end_of(self, phase: str) -> None:
        now = time.monotonic()
        self.phases[phase] = round(now - self.last, 1)
        self.last = now

    def _say(self, line: str) -> None:
        print(MARK + line, flush=True)


def _topics(info: dict[str, object]) -> list[str]:
    topics = info.get("topics")
    return [str(topic["name"]) for topic in topics] if isinstance(topics, list) else []


def first_cause(error: Exception) -> str:
    """The line that names the cause, of an exception that may be a whole Java stack trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return (causes or lines or [type(error).__name__])[-1 if causes else 0][:300]
