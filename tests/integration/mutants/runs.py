"""Chaos runs of mutants and of the clean build, on schedules that were written for the mutants.

The mutants themselves are those of the simulation (`tests/simulation/mutants`): one definition of
each fault, two ways to find it.  Here a mutant meets real processes and real clients.  A case names
the schedule that exposes the broken rule, and the checks by which clients must see it; further
findings do no harm.  The clean build runs from a copy of the source too, on the same schedule and
with the same seeds: a check that flags it would prove nothing against a mutant.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.mutation import Mutant, all_mutants

SCHEDULES = Path(__file__).parent / "schedules"
WORKLOAD_S = 5
"""The least duration; a schedule that takes longer is carried out to its end."""
TIMEOUT_S = 240


@dataclass(frozen=True, slots=True)
class Case:
    """A mutant by its number, its schedule, and the checks of which at least one must flag it."""

    id: int
    schedule: str
    checks: tuple[str, ...]
    rare: bool = False
    """Only `scripts/long rest` runs the mutant here: in CI the simulation finds it, by a seed and
    in a scenario."""
    clean_is_rare: bool = False
    """The same of the clean build on this schedule: in CI one other and the demo show that it
    passes."""

    @property
    def mutant(self) -> Mutant:
        return next(mutant for mutant in all_mutants() if mutant.id == self.id)


CASES = (
    # acks=1 records that only a leader has, which then dies: a client that read them read too much
    Case(13, "served-above-hw", ("C15",), clean_is_rare=True),
    # acks=all records that only a leader has, which then dies: no client may have been told "done"
    Case(14, "answered-at-append", ("C3", "C4"), rare=True, clean_is_rare=True),
    # a follower has acknowledged records without knowing it; it changes its leader, cannot
    # fetch from the new one, and is the last replica left
    Case(1, "truncated-at-hw", ("C3", "C4", "C15"), rare=True),
    # a leader that was replaced while its last ISR write was on the way; then all restart, from
    # the state in ZooKeeper
    Case(10, "stale-isr-write", ("C3", "C4", "C15"), rare=True, clean_is_rare=True),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    verdict: str
    violations: dict[str, int]
    """By check; those without any are left out."""
    notes: tuple[str, ...]
    seconds: float
    folder: Path

    def flagged_by(self, checks: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(check for check in checks if check in self.violations)


def run(schedule: str, source: Path, out: Path, seed: int) -> Outcome:
    """`highwater chaos --faults` with brokers from `source`, from the start to the verdict."""
    command = [sys.executable, "-m", "highwater.cli.main", "chaos"]
    command += ["--seed", str(seed), "--duration", str(WORKLOAD_S), "--engine", "duckdb"]
    command += ["--faults", str(SCHEDULES / f"{schedule}.json")]
    command += ["--broker-source", str(source), "--out", str(out)]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    seconds = time.monotonic() - began
    verdict_file = out / "verdict.json"
    if not verdict_file.is_file():
        raise RuntimeError(f"the run in {out} came to no verdict: {done.stderr[-2000:]}")
    verdict = json.loads(verdict_file.read_text())
    violations = {i: c["violations"] for i, c in verdict["checks"].items() if c["violations"]}
    return Outcome(verdict["verdict"], violations, tuple(verdict["notes"]), seconds, out)
