"""spark/simulate.py by a plain spark-submit: the seeds' outcomes are those of this process."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from highwater.simulation import run_log
from highwater.simulation.options import Options
from highwater.simulation.seed_run import simulate
from highwater.simulation.seeds import as_arguments
from highwater.verdict.by_spark import spark_submit

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.rare, pytest.mark.timeout(600)]


def test_seeds_spread_over_executors(tmp_path: Path) -> None:
    spark = spark_submit.find()
    log = tmp_path / "run.jsonl"
    options = Options(seconds=3.0, pace=0.3, transactions=True, log_dirs=True)
    job = [
        str(ROOT / "spark" / "simulate.py"), "--out", str(log),
        *" ".join(as_arguments(options)).split(),
    ]  # fmt: skip

    def submit(seeds: str) -> str:
        done = subprocess.run(
            [
                str(spark.home / "bin" / "spark-submit"), "--master", "local[2]",
                "--conf", "spark.ui.enabled=false", *job, "--seeds", seeds,
            ],
            env=spark.environment(),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
        return done.stdout

    assert "3 seeds, 0 with a broken rule" in submit("0..2")
    head, outcomes = run_log.read([log])
    assert head["asked"]["seconds"] == 3.0
    assert [outcome.seed for outcome in outcomes] == [0, 1, 2]
    assert outcomes[1].digest == simulate(1, options).digest
    before = log.read_text()
    assert "4 seeds, 0 with a broken rule" in submit("0..3")  # it goes on
    assert log.read_text().startswith(before)
