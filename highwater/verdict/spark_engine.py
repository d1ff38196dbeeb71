"""The checks in Spark: the same SQL files as DuckDB's, several at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, Any

from highwater.verdict import catalog
from highwater.verdict.results import Found, finding, none_yet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str], None]
HEAVY = ("C13", "C7", "G2", "C2", "C3", "T3", "C6", "C10", "C11", "C14", "C8", "C15")
"""Begun first, so that none of them is left alone at the end."""


def run_checks(
    spark: SparkSession,
    selected: Sequence[catalog.Check],
    facts_query: str,
    examples: int,
    at_a_time: int,
    progress: Progress,
) -> tuple[dict[str, Found], list[dict[str, Any]]]:
    """The findings of each check, and the rows of `facts_query`; the views must be there."""
    result = none_yet([check.id for check in selected])
    order = sorted(selected, key=lambda c: HEAVY.index(c.id) if c.id in HEAVY else len(HEAVY))
    with ThreadPoolExecutor(at_a_time) as pool:
        facts = pool.submit(_facts, spark, facts_query)
        waiting = {pool.submit(_check, spark, check, examples): check for check in order}
        for done, future in enumerate(as_completed(waiting), 1):
            check = waiting[future]
            result[check.id], seconds = future.result()
            told = _told(result[check.id])
            progress(
                f"{done:2} of {len(selected)}  {check.id} {check.name}: {told} ({seconds:.1f} s)"
            )
        return result, facts.result()


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
    _describe(spark, "facts", "numbers of the whole")
    return [row.asDict() for row in spark.sql(query).collect()]


def _describe(spark: SparkSession, pool: str, description: str) -> None:
    """In Spark's UI, and for the scheduler: of the calling thread's jobs."""
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
    spark.sparkContext.setJobDescription(description)


def _told(found: Found) -> str:
    kinds = ", ".join(f"{n:,} {kind}" for kind, n in sorted(found["found"].items()))
    return f"{found['examined']:,} examined, {kinds or 'nothing found'}"
