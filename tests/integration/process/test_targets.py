"""Chaos runs on what is not Highwater: a release of Apache Kafka without ZooKeeper."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from highwater.cluster import apache

pytestmark = [pytest.mark.integration, pytest.mark.apache, pytest.mark.timeout(400)]


def test_a_planted_loss_is_seen_on_apache_kafka_in_kraft_mode(tmp_path: Path) -> None:
    """The leader dies alone with records of acks=1, and the quorum's leader is killed."""
    out, faults = tmp_path / "run", tmp_path / "faults.json"
    schedule = [
        {"name": "wait", "until": "healthy"},
        {"name": "swap_leader", "target": "safe-0"},
        {"name": "lose_unreplicated"},
        {"name": "wait", "until": "healthy"},
        {"name": "move_controller", "how": "kill"},
    ]
    faults.write_text(json.dumps(schedule))
    command = [sys.executable, "-I", "-m", "highwater.cli.main", "chaos", f"--out={out}"]
    options = [f"--target=apache:{apache.VERSION}-kraft", f"--faults={faults}", "--seed=3"]
    more = ["--duration=3", "--rate=20", "--engine=duckdb", "--workload=transactions"]
    done = subprocess.run([*command, *options, *more], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "lacks zookeeper (there is no ZooKeeper)" in done.stdout
    verdict = json.loads((out / "verdict.json").read_text())
    assert verdict["verdict"] == "valid"
    assert verdict["expected_losses"] > 0
    assert verdict["seen"]["controller_moves"] > 0
    assert all(fault["effect"] for fault in verdict["faults"])
    assert verdict["checks"]["R10"]["status"] == "idle", "what was not examined has not passed"
