"""Long runs: their log, going on after a cut, the page, what never happened; and shrinking."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from highwater.cli.sim import sim
from highwater.simulation import run_log, shrink
from highwater.simulation.faults.staged_faults import Fault
from highwater.simulation.options import Options
from highwater.simulation.rules.findings import Violation
from highwater.simulation.run_log import LogProblem, RunLog
from highwater.simulation.seed_outcome import Outcome
from highwater.simulation.seeds import Summary


@pytest.mark.timeout(240)
def test_a_run_that_was_cut_off_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    common = ["--seconds", "4", "--log", str(log)]
    first = CliRunner().invoke(sim, ["--seeds", "0..1", *common])
    assert first.exit_code == 0, first.output
    with log.open("a") as file:
        file.write('{"seed": 2, "torn')
    again = CliRunner().invoke(sim, ["--seeds", "0..2", *common])
    assert again.exit_code == 0, again.output
    assert "3 seeds, 0 with a broken rule" in again.output
    seeds = [json.loads(line).get("seed") for line in log.read_text().splitlines()]
    assert seeds == [None, 0, 1, 2]
    text = run_log.page([log])
    assert "| `--seeds 0..2 --seconds 4` | 3 | **0** |" in text
    other = CliRunner().invoke(sim, ["--seeds", "0..2", "--log", str(log)])
    assert other.exit_code == 2
    assert "was made with other options" in other.output


def outcome(seed: int, rule: str | None = None) -> Outcome:
    made = Outcome(seed, replay=f"highwater sim --replay {seed}")
    made.faults["kill"] = 2
    if rule is not None:
        made.violation = Violation(rule, "what", 1.5)
    return made


def test_shards_are_merged_and_a_seed_counts_once(tmp_path: Path) -> None:
    one, two = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    for path, seeds in ((one, (0, 1, 2)), (two, (2, 3))):
        log = RunLog(path, Options())
        for seed in seeds:
            log.add(outcome(seed, "R4" if seed == 3 else None))
    _, found = run_log.read([one, two])
    assert [o.seed for o in found] == [0, 1, 2, 3]
    assert found[3].violation == Violation("R4", "what", 1.5)
    text = run_log.page([one, two])
    assert "seed 3: R4 broken at 1.5000 s: what; `highwater sim --replay 3`" in text
    assert "| kill | 8 |" in text
    RunLog(tmp_path / "3.jsonl", Options(flush=True))
    with pytest.raises(LogProblem):
        run_log.read([one, tmp_path / "3.jsonl"])


def test_a_run_that_goes_on_at_another_commit_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "run.jsonl"
    for seed, commit in enumerate(("abc0001", "abc0001", "abc0002")):
        monkeypatch.setattr(run_log, "commit", lambda commit=commit: commit)
        RunLog(log, Options()).add(outcome(seed))
    assert " | abc0001, abc0002 | " in run_log.page([log])
    assert len(log.read_text().splitlines()) == 5


def test_what_never_happened_is_said() -> None:
    summary = Summary()
    summary.add(outcome(0))
    never = summary.never()
    assert "fault kill" not in never
    assert {"fault power loss", "seen controller_moves", "an expected loss"} <= set(never)
    assert summary.as_dict()["never"] == never


def test_shrinking_keeps_the_faults_that_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulation is replaced by a function of the schedule: 3 and 11 together break R1, 5
    alone breaks another rule."""
    faults = [Fault(float(n), "kill", "any", 1.0) for n in range(16)]

    def simulated(seed: int, options: Options | None = None) -> Outcome:
        only = options.only if options and options.only is not None else tuple(range(16))
        made = Outcome(seed, schedule=[faults[n] for n in only])
        if {3, 11} <= set(only):
            made.violation = Violation("R1", "both", 1.0)
        elif 5 in only:
            made.violation = Violation("R2", "another", 1.0)
        return made

    monkeypatch.setattr(shrink, "simulate", simulated)
    told: list[str] = []
    found = shrink.shrink(7, Options(), told.append)
    assert found.only == (3, 11)
    assert [fault.at for fault in found.schedule] == [3.0, 11.0]
    assert found.violation is not None
    assert found.violation.rule == "R1"
    assert told[0] == "R1 with 16 faults"
    with pytest.raises(ValueError, match="breaks no rule"):
        shrink.shrink(7, replace(Options(), only=(1,)))


def test_only_some_of_a_schedule() -> None:
    result = CliRunner().invoke(sim, ["--replay", "3", "--seconds", "4", "--only", "0"])
    assert result.exit_code == 0, result.output
    wrong = CliRunner().invoke(sim, ["--replay", "3", "--only", "x"])
    assert wrong.exit_code == 2
    assert "name positions" in wrong.output


def test_the_trace_of_a_clean_seed_names_no_broken_rule() -> None:
    """Its checker is tested with a planted lie, which is no event of the run."""
    done = CliRunner().invoke(sim, ["--replay", "3", "--seconds", "2", "--trace"])
    assert done.exit_code == 0, done.output
    assert "is gone" in done.output
    assert "checker" not in done.output
    assert "R5" not in done.output
