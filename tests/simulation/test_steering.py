"""Varied schedules, and the choice of what is varied."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from highwater.cli.sim import sim
from highwater.simulation import steering as steering_module
from highwater.simulation.coverage.reached import AT_ONCE, EVENTS, Coverage, Kept
from highwater.simulation.faults.joints import KINDS
from highwater.simulation.faults.random_faults import WEIGHTS
from highwater.simulation.faults.staged_faults import Fault
from highwater.simulation.faults.variations import (
    END,
    MOST,
    as_variation,
    check,
    plan,
    varied,
)
from highwater.simulation.options import Options
from highwater.simulation.seed_outcome import Outcome
from highwater.simulation.seed_run import simulate
from highwater.simulation.steering import (
    AIMS,
    LONGEST,
    Steering,
    Trial,
    run_steered,
)
from highwater.world.chance import seeded

SHORT = Options(seconds=2, pace=0.3, coverage=True)
EVERYTHING = Options(stalls=True, joints=True, log_dirs=True, disk_errors=True)


def planned(seed: int, options: Options, *vary: object) -> list[Any]:
    return plan(seed, replace(options, vary=tuple(map(str, vary))), seeded(seed, "faults"))


@pytest.mark.parametrize("options", [Options(), EVERYTHING])
def test_a_variation_is_a_schedule_and_always_the_same(options: Options) -> None:
    faults = planned(1, options)
    unchanged = 0
    for number in range(300):
        found = varied(faults, options, str(number))
        assert found == planned(1, options, number) == sorted(found, key=lambda fault: fault.at)
        assert 1 <= len(found) <= MOST
        assert all(0 <= fault.at <= options.seconds * END for fault in found)
        assert [f for f in found if f.kind in KINDS] == [f for f in faults if f.kind in KINDS]
        unchanged += found == faults
    assert unchanged < 30


def test_variations_change_times_lengths_targets_kinds_and_numbers() -> None:
    options = Options()
    faults = planned(1, options)
    seen: Counter[str] = Counter()
    for number in range(300):
        found = varied(faults, options, str(number))
        seen["more"] += len(found) > len(faults)
        seen["fewer"] += len(found) < len(faults)
        for name in ("at", "kind", "target", "seconds"):
            before = Counter(getattr(fault, name) for fault in faults)
            seen[name] += Counter(getattr(fault, name) for fault in found) != before
    assert min(seen[name] for name in ("more", "fewer", "at", "kind", "target", "seconds")) > 20
    assert planned(1, options, 7, 8) == varied(planned(1, options, 7), options, "8")


def test_many_variations_stay_in_bounds() -> None:
    assert 1 <= len(planned(1, EVERYTHING, *range(200))) <= MOST


def test_a_variation_can_be_a_fault() -> None:
    added = Fault(12.3, "slow links", "leader", 2.0)
    assert as_variation(added) == "slow links of leader@12.3+2"
    check(as_variation(added))
    found = planned(1, Options(), 5, as_variation(added))
    assert [fault for fault in found if fault == added] == [added]
    assert found == sorted([*planned(1, Options(), 5), added], key=lambda fault: fault.at)
    late = planned(1, Options(), as_variation(replace(added, at=1000.0)))
    assert late[-1] == replace(added, at=Options().seconds * END)
    for bad in ("", "-1", "slow links", "slow lynx of leader@1+2", "kill of me@1+2", "1.5"):
        with pytest.raises(ValueError, match="is no variation: name a number, or a fault"):
            check(bad)


def a_steering(*kept: Kept) -> Steering:
    steering = Steering(Coverage("here"))
    steering.coverage.kept += kept
    return steering


def test_without_a_kept_run_all_are_fresh_seeds() -> None:
    trials = [a_steering().trial(number) for number in range(50)]
    assert [(trial.seed, trial.vary) for trial in trials] == [(n, ()) for n in range(50)]


def test_most_trials_vary_what_is_kept_and_rather_what_bears_fruit() -> None:
    barren, fruitful = Kept(3, (), 5, tries=0), Kept(4, ("9",), 1, fruits=200)
    full = Kept(5, tuple(map(str, range(LONGEST))), 1)
    steering = a_steering(barren, fruitful, full)
    trials = [steering.trial(number) for number in range(100, 400)]
    fresh = [trial for trial in trials if not trial.vary]
    assert 40 < len(fresh) < 140
    parents = Counter(trial.seed for trial in trials if trial.vary)
    assert parents[4] > 4 * parents[3] > 0
    assert 5 not in parents
    assert (barren.tries, fruitful.tries) == (parents[3], parents[4])
    one = next(trial for trial in trials if trial.seed == 4)
    assert one.vary[0] == "9"
    assert str(one) == f"4 --vary 9,{one.vary[1]}"


def test_a_run_is_kept_for_what_it_reaches_first() -> None:
    parent = Kept(3, (), 1)
    steering = a_steering(parent)
    trial = next(t for n in range(20) if (t := steering.trial(n)).vary)
    outcome = Outcome(3, reached={"errors": ["a", "b"]})
    assert [steering.learn(trial, outcome) for _ in range(2)] == [2, 0]
    assert [(kept.seed, kept.vary, kept.new) for kept in steering.coverage.kept] == [
        (3, (), 1),
        (3, trial.vary, 2),
    ]
    assert parent.fruits == 1
    steering.learn(replace(trial, seed=30, vary=(), parent=None), outcome)
    steering.learn(replace(trial, seed=20, vary=(), parent=None), outcome)
    assert steering.coverage.found["errors"]["a"] == (4, 20)


def test_a_fault_is_aimed_at_an_event_that_never_met_it() -> None:
    steering = a_steering(Kept(3, (), 1))
    seen = [f"during slow links: {event}" for event in EVENTS if event != "a move ends"]
    moments = {"a move ends": [1.0, 7.5, 20.25], "an election": [0.05]}
    steering.learn(Trial(8, ("5",)), Outcome(8, reached={"pairs": seen}, moments=moments))
    trials = [steering.trial(number) for number in range(2000)]
    aimed = [trial for trial in trials if trial.vary and not trial.vary[-1].isdecimal()]
    assert {trial.seed for trial in aimed} == {8}
    assert {trial.vary[0] for trial in aimed} == {"5"}
    faults = [planned(8, Options(), trial.vary[-1]) for trial in aimed]
    assert all(len(found) == len(planned(8, Options())) + 1 for found in faults)
    slow = [trial.vary[-1] for trial in aimed if trial.vary[-1].startswith("slow links")]
    assert len(slow) == AIMS, "at the one event that it never met, and not without end"
    begins = [float(text.partition("@")[2].partition("+")[0]) for text in slow]
    assert all(6.4 < at < 7.5 or 19.2 < at < 20.25 for at in begins), "of the latest two times"
    lasting = sum(kind not in AT_ONCE for kind in WEIGHTS)
    assert len(aimed) == AIMS * (2 * lasting - 1)


@pytest.mark.timeout(240)
def test_a_search_is_the_same_on_two_processes_and_its_runs_can_be_replayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(steering_module, "GENERATION", 4)
    found: list[list[tuple[str, str]]] = []
    for jobs in (1, 2):
        steering, outcomes = Steering(Coverage("here")), list[Outcome]()
        run_steered(
            range(9), SHORT, steering, jobs=jobs,
            progress=lambda _, outcome: outcomes.append(outcome),  # noqa: B023
        )  # fmt: skip
        assert all(outcome.ok for outcome in outcomes)
        found.append([(outcome.replay, outcome.digest) for outcome in outcomes])
    assert found[0] == found[1]
    one = next(outcome for outcome in outcomes if outcome.vary)
    assert f"--vary {shlex.quote(','.join(one.vary))}" in one.replay
    again = simulate(one.seed, replace(SHORT, coverage=False, vary=one.vary))
    assert again.digest == one.digest
    assert simulate(one.seed, replace(SHORT, coverage=False)).digest != one.digest


@pytest.mark.timeout(240)
def test_a_search_goes_on_in_its_file(tmp_path: Path) -> None:
    file = tmp_path / "reached.json"
    common = ["--seconds", "2", "--coverage", str(file), "--steer"]
    for seeds, kept in (("0..2", 3), ("3..6", 4)):
        done = CliRunner().invoke(sim, ["--seeds", seeds, *common], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        data = json.loads(file.read_text())
        assert len(data["kept"]) >= kept
        assert f"{len(data['kept'])} runs reached something first" in done.output
    assert data["seeds"] == 7
    assert any(one["vary"] for one in data["kept"])
    assert sum(one["tries"] for one in data["kept"]) > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--steer"], "--steer goes with --coverage"),
        (["--steer", "--coverage", "it.json", "--log", "it.jsonl"], "leave out --log"),
        (["--steer", "--coverage", "it.json", "--replay", "3"], "leave out --replay"),
        (["--vary", "3"], "--vary goes with --replay SEED"),
        (["--replay", "3", "--vary", "x"], "'x' is no variation: name a number, or a fault"),
    ],
)
def test_what_cannot_be_is_told(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(sim, words)
    assert done.exit_code == 2
    assert said in done.output
