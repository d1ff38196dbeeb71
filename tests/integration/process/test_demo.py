"""The whole demo: real clients, faults, a verdict; on Highwater's brokers, on Apache Kafka's, and
in containers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]
SEEN = (
    "not_leader",
    "leader_changes",
    "isr_shrinks",
    "isr_expands",
    "truncated_bytes",
    "hw_below_leo_at_leader_death",
    "controller_moves",
)


OF_TRANSACTIONS = ("T3", "T4", "T5", "T7")
OF_GROUPS = ("G2", "G3", "G4")


def demo(out: Path, *options: str) -> dict[str, Any]:
    """The verdict of a demo that exited with 0."""
    command = [sys.executable, "-I", "-m", "highwater.cli.main", "demo", f"--out={out}"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    said = done.stdout[-4000:] + done.stderr[-4000:]
    told = out / "verdict.json"
    verdict: dict[str, Any] = json.loads(told.read_text()) if told.exists() else {}
    assert done.returncode == 0, f"{verdict.get('notes')}\n{verdict.get('faults')}\n{said}"
    assert "verdict   valid" in done.stdout
    return verdict


def check(verdict: dict[str, Any], runtime: str) -> None:
    assert verdict["verdict"] == "valid"
    assert verdict["runtime"] == runtime
    assert {name: verdict["seen"][name] for name in SEEN if verdict["seen"][name] <= 0} == {}
    assert verdict["expected_losses"] > 0
    assert all(fault["effect"] for fault in verdict["faults"])


def test_demo_on_processes(tmp_path: Path) -> None:
    """With transactions and consumer groups beside the writers."""
    out = tmp_path / "run"
    options = ("--seed=7", "--duration=40", "--runtime=process", "--engine=duckdb")
    verdict = demo(out, *options, "--workload=transactions", "--workload=groups")
    check(verdict, "process")
    assert verdict["operations"]["acked"] >= 5000
    for name in (*OF_TRANSACTIONS, *OF_GROUPS):
        found = verdict["checks"][name]
        assert found["status"] == "passed", found
        assert found["examined"] > 0, f"{name} had nothing to look at"
    assert (out / "report.html").stat().st_size > 10_000
    assert not list(out.glob("cluster/broker-*/data")), "a valid run keeps no data without --keep"


@pytest.mark.compose
def test_demo_on_containers(tmp_path: Path) -> None:
    options = ("--seed=7", "--duration=30", "--runtime=compose", "--engine=duckdb")
    check(demo(tmp_path / "run", *options), "compose")
    left = subprocess.run(
        ["docker", "ps", "-aq", "--filter", "name=highwater-run-"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert left.stdout.strip() == ""


@pytest.mark.apache
@pytest.mark.rare  # as `scripts/long targets`; test_targets has a run on Apache Kafka for CI
def test_apache_kafka_passes_the_same_checks(tmp_path: Path) -> None:
    """The oracle: a check that Apache Kafka does not pass is wrong, or a finding."""
    from highwater.cluster.processes import apache

    options = ("--seed=3", "--duration=30", "--engine=duckdb", f"--apache={apache.home()}")
    check(demo(tmp_path / "run", *options), "process")
