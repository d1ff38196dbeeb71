"""Spark and DuckDB agree on every planted history: one session for all of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from highwater.verdict import duck, runner, tables
from highwater.verdict.by_spark import spark_submit
from highwater.verdict.conclusion import compare
from tests.planted.at_random import History, differences, planted, violations
from tests.planted.stories import PLANTS
from tests.planted.story import write

EVERYTHING = 100_000
AT_RANDOM = 50
"""Of `scripts/long planted`."""
BY_NAME = {plant.name: plant for plant in PLANTS}

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def test_spark_and_duckdb_find_the_same_in_all_planted_histories(tmp_path: Path) -> None:
    """From JSON lines, as plain spark-submit finds them; test_spark_job has those in Parquet."""
    histories = [History(number) for number in range(AT_RANDOM)]
    topics = list(write(tmp_path, [*PLANTS, *(history.plant() for history in histories)]))
    counts = tables.build(tmp_path)
    by_duckdb = duck.run_checks(tmp_path, EVERYTHING)
    shutil.rmtree(tmp_path / tables.FOLDER)
    lines: list[str] = []
    by_spark = spark_submit.verify(
        tmp_path, rows=sum(counts.values()), examples=EVERYTHING, progress=lines.append
    )
    assert compare(by_spark, by_duckdb) == []
    assert by_spark["facts"] == by_duckdb["facts"]
    assert by_spark["checks"]["C4"]["found"]["violation"] > 5
    wanted = planted(topics[len(PLANTS) :], histories)
    of_plants = set(topics[: len(PLANTS)])
    found = {place for place in violations(by_spark) if place[1] not in of_plants}
    assert differences(found, wanted) == []
    assert lines[0] == "starting Spark"
    assert lines[-1].startswith("checked in ")


@pytest.mark.rare
def test_both_engines_call_an_interrupted_run_void(tmp_path: Path) -> None:
    write(tmp_path, [BY_NAME["lost-at-the-end"], BY_NAME["vanished"]])
    file = tmp_path / "run.json"
    unfinished = {"finished": False, "final_read": False, "healed": False}
    file.write_text(json.dumps(json.loads(file.read_text()) | unfinished))
    shutil.rmtree(tmp_path / "consumed")
    by_spark, by_duckdb = (
        runner.run(tmp_path, engine, lambda line: None, ingest=False)
        for engine in ("spark", "duckdb")
    )
    assert by_spark.engine == "spark"
    assert by_spark.verdict == by_duckdb.verdict == "void"
    assert by_spark.checks == by_duckdb.checks
