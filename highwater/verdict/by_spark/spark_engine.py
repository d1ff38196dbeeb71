"""The checks in Spark: the same SQL files as DuckDB's, several at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from highwater.verdict import catalog
from highwater.verdict.by_spark.spark_steps import Step
from highwater.verdict.results import Found, finding, none_yet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str], None]
HEAVY = ("C13", "C7", "G2", "C2", "C3", "T3", "C6", "C10", "C11", "C14", "C8", "C15")
"""The slowest checks.  They begin first, so that none of them runs alone at the end."""
FACTS = "facts"


class Checks:
    """Checks as steps, and what they found; `facts` are the rows of `facts_query`."""

    def __init__(
        self,
        spark: SparkSession,
        selected: Sequence[catalog.Check],
        facts_query: str,
        examples: int,
        progress: Progress,
    ) -> None:
        self.found = none_yet([check.id for check in selected])
        self.facts: list[dict[str, Any]] = []
        self._spark, self._examples, self._progress = spark, examples, progress
        self._names = {check.id: check.name for check in selected}
        self._told = 0
        order = sorted(selected, key=lambda c: HEAVY.index(c.id) if c.id in HEAVY else len(HEAVY))
        self.steps = [self._step(check) for check in order]
        self.steps.append(Step(FACTS, lambda: self._ask_facts(facts_query), facts_query))
        self._seconds: dict[str, float] = {}

    def tell(self, step: Step) -> None:
        """Prints one line about a check that is done."""
        if step.name not in self._names:
            return
        self._told += 1
        found, seconds = _told(self.found[step.name]), self._seconds[step.name]
        self._progress(
            f"{self._told:2} of {len(self._names)}  {step.name} {self._names[step.name]}: "
            f"{found} ({seconds:.1f} s)"
        )

    def _step(self, check: catalog.Check) -> Step:
        def work() -> None:
            self.found[check.id], self._seconds[check.id] = _check(
                self._spark, check, self._examples
            )

        return Step(check.id, work, f"{check.examined}\n{check.findings}")

    def _ask_facts(self, query: str) -> None:
        self.facts = _facts(self._spark, query)


def _check(spark: SparkSession, check: catalog.Check, examples: int) -> tuple[Found, float]:
    began = time.monotonic()
    _describe(spark, check.id, f"{check.id} {check.name}")
    found = Found(examined=0, found={}, examples=[])
    rows = spark.sql(catalog.check_query(check, examples)).collect()
    for row in sorted(rows, key=lambda row: (row["kind"], row["nth"])):
        if row["kind"] == catalog.EXAMINED:
            found["examined"] = row["found"]
        else:
            found["found"][row["kind"]] = row["found"]
            found["examples"].append(finding(row.asDict()))
    return found, time.monotonic() - began


def _facts(spark: SparkSession, query: str) -> list[dict[str, Any]]:
    _describe(spark, FACTS, "numbers of the whole")
    return [row.asDict() for row in spark.sql(query).collect()]


def _describe(spark: SparkSession, pool: str, description: str) -> None:
    """Labels the jobs of the calling thread: with a pool for Spark's scheduler, and with a
    description for its UI."""
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
    spark.sparkContext.setJobDescription(description)


def _told(found: Found) -> str:
    kinds = ", ".join(f"{n:,} {kind}" for kind, n in sorted(found["found"].items()))
    return f"{found['examined']:,} examined, {kinds or 'nothing found'}"
