"""Broken rules that the harness must flag, each on the schedule written for it; the clean build
passes the same.

A mutant is a patch of a copy of the brokers' source: what must be there once is replaced.  Where a
refactoring moves it, the test says so at once.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
SCHEDULES = Path(__file__).parent / "schedules"
pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]


@dataclass(frozen=True, slots=True)
class Mutant:
    """`number` is that of the list of mutants; any of `flagged_by` is the check that must find
    it."""

    number: int
    rule: str
    schedule: str
    file: str
    old: str
    new: str
    flagged_by: tuple[str, ...]


MUTANTS = [
    Mutant(
        13,
        "consumers are served up to the LEO",
        "unreplicated",
        "broker/replica/manager.py",
        "            limit = partition.high_watermark\n",
        "            limit = leader_log.log_end_offset\n",
        ("C15", "C1"),
    ),
    Mutant(
        14,
        "acks=all is answered at the local append",
        "unreplicated",
        "broker/replica/partition.py",
        "        if self.high_watermark < required_offset:\n            return None\n",
        "",
        ("C3", "C4"),
    ),
    Mutant(
        1,
        "a follower truncates to its own HW",
        "high-watermark-behind",
        "broker/replica/fetcher.py",
        "        if follower_log.epochs.latest < 0:\n",
        "        if True:\n",
        ("C15", "C1", "C3", "C4"),
    ),
    Mutant(
        10,
        "the ISR is written without a version check",
        "stale-isr-write",
        "broker/replica/isr_writer.py",
        "await zk.set(path, data, change.zk_version)",
        "await zk.set(path, data)",
        ("R7",),
    ),
]


def patched(mutant: Mutant, folder: Path) -> Path:
    """A copy of what a broker imports, with the mutant's line changed."""
    for name in ("broker", "controller", "highwater/common"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "highwater/__init__.py", folder / "highwater/__init__.py")
    path = folder / mutant.file
    text = path.read_text()
    assert text.count(mutant.old) == 1, f"mutant {mutant.number}: {mutant.file} has changed"
    path.write_text(text.replace(mutant.old, mutant.new))
    return folder


def run(schedule: str, out: Path, seed: int, source: Path | None = None) -> dict[str, Any]:
    """The verdict of a chaos run on this schedule."""
    command = [sys.executable, "-I", "-m", "highwater.cli.main", "chaos", f"--seed={seed}"]
    command += ["--duration=8", f"--faults={SCHEDULES / schedule}.json", f"--out={out}"]
    # a lag that a slow machine does not reach before the schedule has done its work
    lag = "8000" if schedule == "high-watermark-behind" else "2000"
    command += ["--engine=duckdb", f"--override=replica.lag.time.max.ms={lag}"]
    if source is not None:
        command.append(f"--broker-source={source}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    path = out / "verdict.json"
    assert path.exists(), done.stdout + done.stderr
    verdict: dict[str, Any] = json.loads(path.read_text())
    verdict["said"] = done.stderr[-3000:]
    return verdict


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"mutant-{m.number}")
def test_a_mutant_is_flagged(mutant: Mutant, tmp_path: Path) -> None:
    source = patched(mutant, tmp_path / "source")
    verdict = run(mutant.schedule, tmp_path / "run", 1, source)
    assert verdict["verdict"] == "invalid", verdict["said"]
    violated = {i for i, c in verdict["checks"].items() if c["violations"]}
    assert violated & set(mutant.flagged_by), (violated, verdict["said"])


@pytest.mark.parametrize("schedule", sorted({m.schedule for m in MUTANTS}))
def test_the_clean_build_is_valid_on_the_same_schedule(schedule: str, tmp_path: Path) -> None:
    verdict = run(schedule, tmp_path / "run", 1)
    assert verdict["verdict"] == "valid", (verdict["notes"], verdict["said"])
