"""The long runs: a slice of one, and what is kept of a run that was cut off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.long import __main__ as long
from tests.long import coverage
from tests.long.coverage import FLAGS
from tests.long.jobs import JOBS, Step, broken

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page that results are kept on; the runs' folders are beside it."""
    page = tmp_path / "long.md"
    page.write_text("| command |\n|---|\n")
    monkeypatch.setattr(long, "PAGE", page)
    monkeypatch.setattr(long, "FOLDER", tmp_path)
    return page


@pytest.mark.slow
def test_each_flag_holds_with_another_for_a_seed(kept: Path) -> None:
    done = CliRunner().invoke(long.main, ["pairs", "--slice"])
    assert done.exit_code == 0, done.output
    logs = sorted((kept.parent / "pairs-slice").glob("*.jsonl"))
    assert [broken(log) for log in logs] == [(1, [])] * len(FLAGS)
    assert (
        f"{len(FLAGS)} of {len(FLAGS)} commands ended well; {len(FLAGS)} seeds, 0 broken"
        in done.output
    )


def test_a_run_goes_on_where_it_was_cut_off(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = len(FLAGS) * (len(FLAGS) - 1) // 2
    codes = iter([0, 1, *[0] * (pairs - 2), 0])
    ran: list[str] = []

    def run_step(step: Step, folder: Path) -> int:
        ran.append(step.name)
        return next(codes)

    monkeypatch.setattr(long, "run_step", run_step)
    first = CliRunner().invoke(long.main, ["pairs"])
    assert first.exit_code == 1
    assert f"{pairs - 1} of {pairs} commands ended well" in kept.read_text()
    again = CliRunner().invoke(long.main, ["pairs"])
    assert again.exit_code == 0, again.output
    assert ran[pairs:] == [ran[1]], "only what had failed"
    assert kept.read_text().count("scripts/long pairs") == 1
    assert f"{pairs} of {pairs} commands ended well" in kept.read_text()


def test_a_sum_is_made_again_when_a_step_has_run(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = iter([1, *[0] * 50, 0, 0])
    ran: list[str] = []

    def run_step(step: Step, folder: Path) -> int:
        ran.append(step.name)
        (folder / f"{step.name}.txt").write_text(f"sum {ran.count('total')}\n")
        return next(codes)

    monkeypatch.setattr(long, "run_step", run_step)
    assert CliRunner().invoke(long.main, ["targets"]).exit_code == 1
    assert f"FAILED {ran[0]}: sum 1" in kept.read_text()
    assert CliRunner().invoke(long.main, ["targets"]).exit_code == 0
    assert ran[51:] == [ran[0], "total"]
    assert "| sum 2 |" in kept.read_text()
    assert CliRunner().invoke(long.main, ["targets"]).exit_code == 0
    assert len(ran) == 53, "nothing was left to do"


def test_a_name_that_is_none_is_refused(kept: Path) -> None:
    done = CliRunner().invoke(long.main, ["pair"])
    assert done.exit_code == 2
    assert all(name in done.output for name in JOBS)


def test_the_page_of_what_seeds_reach_has_both_commits(tmp_path: Path) -> None:
    kinds = ("transitions", "branches", "pairs")
    number = coverage.SETS.index(("trimmed",))
    for name, reached, trimmed in (("7cdeae7", ["Fetch: NONE"], False), ("now", [], True)):
        missing = {"Fetch: NONE", "Fetch: OFFSET_OUT_OF_RANGE"} - set(reached)
        found = {"errors": {thing: [1, 0] for thing in reached}, **{kind: {} for kind in kinds}}
        never = {"errors": list(missing), **{kind: [] for kind in kinds}}
        (tmp_path / f"{name}-{number}.json").write_text(
            json.dumps({"commit": name, "seeds": 2, "reached": found, "never": never})
        )
        rows: list[dict[str, Any]] = [{"asked": {"trimmed": trimmed}}]
        rows += [{"seed": n, "operations": {"sends": 2}, "violation": None} for n in (0, 1)]
        rows[-1]["violation"] = {"rule": "R1"} if trimmed else None
        (tmp_path / f"{name}-{number}.jsonl").write_text(
            "".join(f"{json.dumps(row)}\n" for row in rows)
        )
    page = coverage.page(tmp_path)
    assert "| seeds | 2 | 2 |" in page
    assert "| seeds that broke a rule | 0 | 1 |" in page
    assert "| errors | 1 of 2 | 0 of 2 |" in page
    assert "| sends | 4 | 4 |" in page
    assert "7cdeae7 lacked `--trimmed`" in page
    assert "Fetch: NONE, OFFSET_OUT_OF_RANGE" in page
    assert coverage.sentence(tmp_path).startswith("2 seeds, 1 broken; reached: errors 0 of 2,")
