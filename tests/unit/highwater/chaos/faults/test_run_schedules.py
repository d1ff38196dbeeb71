"""A run's schedules, the seed's and those in files, name only what a run has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from highwater.chaos.faults.schedule import generate
from highwater.chaos.faults.workload_verbs import FORMS, VERBS
from highwater.chaos.progress import Progress
from highwater.chaos.run import Options, Run
from highwater.cluster.faults.forms import Scene, check
from highwater.cluster.faults.model import ScheduleError, load, parse

ROOT = Path(__file__).parents[5]
TOPICS = {"safe": 3, "lossy": 1}


def test_every_verb_has_a_form() -> None:
    assert set(FORMS) == set(VERBS)


@pytest.mark.parametrize("seed", range(50))
def test_what_a_seed_makes_is_a_schedule(seed: int) -> None:
    partitions = [f"safe-{n}" for n in range(3)]
    check(generate(seed, 60, partitions), Scene((1, 2, 3), TOPICS), FORMS)


def test_what_this_project_has_written_down_is_a_schedule() -> None:
    files = sorted((ROOT / "tests/integration/mutants/schedules").glob("*.json"))
    assert files
    for file in files:
        check(load(file, FORMS), Scene((1, 2, 3), TOPICS), FORMS)
    (example,) = re.findall(r"```json\n(.*?)```", (ROOT / "docs/faults.md").read_text(), re.DOTALL)
    check(parse(json.loads(example), names=FORMS), Scene((1, 2, 3), TOPICS), FORMS)


def test_a_run_refuses_it_before_it_makes_its_folder(tmp_path: Path) -> None:
    out = tmp_path / "run"
    schedule = parse([{"name": "kill", "target": "leader of bank-0"}])
    with pytest.raises(ScheduleError, match="no partition 'bank-0'"):
        Run(Options(out, 1, schedule=schedule), Progress())
    assert not out.exists()
    Run(Options(out, 1, schedule=schedule, workloads=("transactions",)), Progress())
