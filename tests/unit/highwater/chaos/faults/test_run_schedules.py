"""A run's schedules, the seed's and those in files, name only what a run has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from highwater.chaos.faults.schedule import generate
from highwater.chaos.progress import Progress
from highwater.chaos.run import Options, Run
from highwater.cluster.faults.fault_model import Fault, ScheduleError
from highwater.cluster.faults.scene import Scene
from highwater.cluster.faults.schedule_form import check, load, parse
from highwater.cluster.faults.verb_row import Kind
from highwater.cluster.faults.verb_table import VERBS, lacks

ROOT = Path(__file__).parents[5]
TOPICS = {"safe": 3, "lossy": 1}


def test_a_schedule_names_nothing_that_the_target_lacks() -> None:
    scene = Scene((1, 2, 3), TOPICS, lacks=lacks(Kind.KRAFT))

    def possible(fault: Fault) -> bool:
        try:
            check([fault], scene)
        except ScheduleError:
            return False
        return True

    partitions = [f"safe-{n}" for n in range(3)]
    for seed in range(30):
        schedule = generate(seed, 60, partitions, possible)
        check(schedule, Scene((1, 2, 3), TOPICS, lacks=lacks(Kind.KRAFT)))
        assert {"kill"} == {f.params["how"] for f in schedule if f.name == "move_controller"}


@pytest.mark.parametrize("seed", range(50))
def test_what_a_seed_makes_is_a_schedule(seed: int) -> None:
    partitions = [f"safe-{n}" for n in range(3)]
    check(generate(seed, 60, partitions), Scene((1, 2, 3), TOPICS))


def test_what_this_project_has_written_down_is_a_schedule() -> None:
    files = sorted((ROOT / "tests/integration/mutants/schedules").glob("*.json"))
    assert files
    for file in files:
        check(load(file, VERBS), Scene((1, 2, 3), TOPICS))
    page = (ROOT / "docs/faults.md").read_text()
    examples = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    assert examples
    for example in examples:
        check(parse(json.loads(example), verbs=VERBS), Scene((1, 2, 3), TOPICS))


def test_a_run_refuses_it_before_it_makes_its_folder(tmp_path: Path) -> None:
    out = tmp_path / "run"
    schedule = parse([{"name": "kill", "target": "leader of bank-0"}])
    with pytest.raises(ScheduleError, match="no partition 'bank-0'"):
        Run(Options(out, 1, schedule=schedule), Progress())
    assert not out.exists()
    Run(Options(out, 1, schedule=schedule, workloads=("transactions",)), Progress())
