"""Transactions and consumer groups beside the writers, under the faults of a seed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]
OF_TRANSACTIONS = ("T3", "T4", "T5", "T7")
OF_GROUPS = ("G2", "G3", "G4")


def test_transactions_and_groups_under_faults(tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = ["--seed=5", "--duration=30", "--runtime=process", "--engine=duckdb", f"--out={out}"]
    workloads = ["--workload=transactions", "--workload=groups"]
    command = [sys.executable, "-I", "-m", "highwater.cli.main", "chaos", *options, *workloads]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    verdict = json.loads((out / "verdict.json").read_text())
    assert verdict["verdict"] == "valid"
    checks = verdict["checks"]
    for name in (*OF_TRANSACTIONS, *OF_GROUPS):
        assert checks[name]["status"] == "passed", checks[name]
        assert checks[name]["examined"] > 0, f"{name} had nothing to look at"
