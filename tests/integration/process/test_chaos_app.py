"""`highwater chaos --app`: applications with one known mistake are found, one without is valid."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from highwater.verdict.history import read_lines
from tests.integration.process.app_runs import run_app

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
COPIER = Path(__file__).parent / "apps" / "copier.py"
EXAMPLES = Path(__file__).parents[3] / "examples" / "app"
KILL_THE_APP: list[dict[str, Any]] = [{"at": 3, "name": "kill", "target": "app", "for": 0.5}]
STRIKES: list[dict[str, Any]] = [
    {"at": 2, "name": "kill", "target": "any copy", "when": "ahead", "for": 0.5},
    {"name": "wait", "until": "healthy"},
    {"name": "kill", "target": "any copy", "when": "behind", "for": 0.5, "as": "struck"},
    {"name": "wait", "until": "healthy"},
    {"name": "kill", "target": "any copy", "when": "ending", "for": 0.5},
    {"name": "wait", "until": "healthy"},
    {"name": "pause", "target": "any copy", "when": "behind", "for": 1},
    {"name": "reorder_output", "target": "any copy"},
    {"name": "refuse_output", "target": "any copy"},
    {"name": "kill", "target": "coordinator of group app", "when": "behind", "for": 1},
]


def example(
    folder: Path, name: str, schedule: list[dict[str, Any]], *options: str
) -> dict[str, Any]:
    app = f"{sys.executable} {EXAMPLES / name}.py"
    return run_app(folder, app, "--within=6", *options, schedule=schedule)


def chaos(folder: Path, how: str, schedule: list[dict[str, Any]], *options: str) -> dict[str, Any]:
    return run_app(folder, f"{sys.executable} {COPIER} {how}", *options, schedule=schedule)


def effects(folder: Path, name: str) -> list[str]:
    lines = read_lines(folder / "run" / "faults.jsonl")
    return [line["effect"] for line in lines if line["name"] == name]


def test_transactions_done_right_withstand_every_strike(tmp_path: Path) -> None:
    options = ("--copies=2", "--duration=8", "--within=60", "--exactly-once")
    verdict = example(tmp_path, "right/exactly_once", STRIKES, *options)
    assert (verdict["verdict"], verdict["code"]) == ("valid", 0), verdict["said"]
    assert {"K7", "K8", "K10", "K11"} <= verdict["checks"].keys()
    assert verdict["checks"]["K7"]["examined"] > 300
    ahead, behind, ending, coordinator = effects(tmp_path, "kill")
    assert ahead.startswith("closed: "), verdict["said"]
    assert behind.startswith("hit: "), verdict["said"]
    assert "in an open transaction" in behind
    assert ending.startswith("hit: "), verdict["said"]
    assert effects(tmp_path, "pause")[0].startswith("hit: "), verdict["said"]
    assert effects(tmp_path, "refuse_output")[0].startswith("closed: "), verdict["said"]
    repeated = next(line for line in verdict["notes"] if line.startswith("none repeated: "))
    assert "between output and commit" in repeated
    assert coordinator.startswith("hit: "), verdict["said"]
    assert "with a coordinator that died between output and commit" in repeated
    assert (tmp_path / "run" / "app-2.log").exists()
    page = (tmp_path / "run" / "report.html").read_text()
    assert verdict["headline"] in page
    for told in ("app process", "app-2 process", "outputs/s in invoices"):
        assert told in page, told
    lives = read_lines(tmp_path / "run" / "cluster" / "processes.jsonl")
    states = {line["state"] for line in lives if line["member"].startswith("app")}
    assert states == {"up", "down", "paused"}


@pytest.mark.parametrize(
    ("name", "strike", "rule", "mistake"),
    [
        (
            "wrong/commits_first",
            {"name": "kill", "target": "app", "when": "ahead", "for": 0.5},
            "K7",
            "app was struck in between: the application commits before its output is stored",
        ),
        ("wrong/acks_1", {"name": "lose_unreplicated"}, "K7", "which acks=1 acknowledges"),
        (
            "wrong/ignores_errors",
            {"name": "refuse_output", "target": "app"},
            "K7",
            "the application commits past an output that was refused",
        ),
        (
            "wrong/reorders",
            {"name": "reorder_output", "target": "app"},
            "K11",
            "its producer is not idempotent, and what it sends again comes late",
        ),
    ],
    ids=["commits-first", "acks-1", "ignores-errors", "reorders"],
)
def test_a_mistake_is_found_by_one_strike_and_named(
    tmp_path: Path, name: str, strike: dict[str, Any], rule: str, mistake: str
) -> None:
    verdict = example(tmp_path, name, [{"at": 2, **strike}], "--duration=3")
    assert (verdict["verdict"], verdict["code"]) == ("invalid", 1), verdict["said"]
    assert verdict["checks"][rule]["violations"] > 0
    assert verdict["headline"].endswith(mistake), verdict["said"]
    assert effects(tmp_path, strike["name"])[0].startswith("hit: "), verdict["said"]


def test_at_least_once_is_right_until_exactly_once_is_demanded(tmp_path: Path) -> None:
    strike = [{"at": 2, "name": "kill", "target": "app", "when": "behind", "for": 0.5}]
    verdict = example(tmp_path, "right/at_least_once", strike, "--duration=3", "--exactly-once")
    assert (verdict["verdict"], verdict["code"]) == ("invalid", 1), verdict["said"]
    assert verdict["checks"]["K7"]["violations"] == 0
    assert verdict["headline"].endswith("writes outputs and commits offsets in two steps")


@pytest.mark.rare
def test_one_that_is_slower_than_its_input_is_told_so(tmp_path: Path) -> None:
    verdict = chaos(tmp_path, "slow", [], "--duration=6", "--within=3")
    assert verdict["verdict"] == "invalid", verdict["said"]
    assert verdict["headline"].endswith("not yet there 3 s after the last input (--rate, --within)")


@pytest.mark.rare
def test_one_that_never_reads_is_named_so(tmp_path: Path) -> None:
    verdict = chaos(tmp_path, "reads-nothing", [], "--duration=2", "--within=1")
    assert verdict["verdict"] == "invalid", verdict["said"]
    assert verdict["headline"] == "no copy of the application ever read orders"


@pytest.mark.rare
def test_one_that_ends_by_itself_is_told_with_its_last_lines(tmp_path: Path) -> None:
    verdict = chaos(tmp_path, "ends", [], "--duration=30", "--within=1")
    assert verdict["verdict"] == "invalid", verdict["said"]
    told = "app ended by itself with code 1: the configuration is missing (6 times)"
    assert verdict["notes"].count(told) == 1


def test_one_that_cannot_start_is_fed_nothing_and_meets_no_fault(tmp_path: Path) -> None:
    none = tmp_path / "none.py"
    app = f"{sys.executable} {none}"
    verdict = run_app(tmp_path, app, "--duration=30", schedule=KILL_THE_APP)
    assert (verdict["verdict"], verdict["code"]) == ("invalid", 1), verdict["said"]
    assert verdict["headline"].startswith("the application ended six times with code 2: ")
    assert str(none) in verdict["headline"]
    assert "0 inputs sent, 0 acknowledged" in verdict["notes"]
    assert list(read_lines(tmp_path / "run" / "faults.jsonl")) == []
    for false in ("works", "faults", "healing", "after the start", "ever read"):
        assert false not in verdict["said"], verdict["said"]
