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
INVOICES = Path(__file__).parents[3] / "examples" / "app" / "invoices.py"
KILL_THE_APP: list[dict[str, Any]] = [
    {"at": 3, "name": "kill", "target": "app", "for": 0.5},
    # it has partitions again when its predecessor's session, six seconds, is over
    {"after": 9, "name": "kill", "target": "app", "for": 0.5},
]
KILLS: list[dict[str, Any]] = [
    {"at": 3, "name": "kill", "target": "app-2", "for": 0.5},
    {"after": 1, "name": "pause", "target": "app", "for": 1},
    {"after": 1, "name": "kill", "target": "coordinator of group app", "for": 1},
]
STATE = "/topics/invoices/partitions/0/state"
LOSE_THE_LEADER: list[dict[str, Any]] = [
    {"at": 2, "name": "wait", "until": "healthy"},
    {"name": "swap_leader", "target": "invoices-0", "not": "coordinator of group app"},
    {"after": 2, "name": "bind", "target": "leader of invoices-0", "as": "L"},
    {"name": "drop", "api": "setData", "from": "$L", "to": "zookeeper", "path": STATE, "count": 0},
    {"name": "cut", "from": "$L", "to": "other brokers"},
    {"after": 5, "name": "kill", "target": "$L", "for": 3},
    {"name": "heal"},
]


def chaos(folder: Path, how: str, schedule: list[dict[str, Any]], *options: str) -> dict[str, Any]:
    program = INVOICES if how in ("", "--commit-first") else COPIER
    return run_app(folder, f"{sys.executable} {program} {how}", *options, schedule=schedule)


def test_transactions_done_right_are_valid(tmp_path: Path) -> None:
    options = ("--copies=2", "--duration=8", "--within=60", "--exactly-once")
    verdict = chaos(tmp_path, "", KILLS, *options)
    assert (verdict["verdict"], verdict["code"]) == ("valid", 0), verdict["said"]
    assert {"K7", "K8", "K10", "K11"} <= verdict["checks"].keys()
    assert verdict["checks"]["K7"]["examined"] > 300
    assert (tmp_path / "run" / "app-2.log").exists()
    page = (tmp_path / "run" / "report.html").read_text()
    assert verdict["headline"] in page
    for told in ("app process", "app-2 process", "kill app-2", "outputs/s in invoices"):
        assert told in page, told
    lives = read_lines(tmp_path / "run" / "cluster" / "processes.jsonl")
    states = [(line["member"], line["state"]) for line in lives]
    assert {("app", "paused"), ("app-2", "down"), ("broker-1", "up")} <= set(states), states


def test_one_that_commits_before_it_processes_is_found(tmp_path: Path) -> None:
    verdict = chaos(tmp_path, "--commit-first", KILL_THE_APP, "--duration=6", "--within=8")
    assert (verdict["verdict"], verdict["code"]) == ("invalid", 1), verdict["said"]
    assert verdict["checks"]["K7"]["violations"] > 0
    assert "is not in invoices" in verdict["headline"]
    assert verdict["headline"].endswith("the application commits before its output is stored")


def test_one_with_acks_1_and_a_leaders_loss_is_found(tmp_path: Path) -> None:
    verdict = chaos(tmp_path, "acks-1", LOSE_THE_LEADER, "--duration=8", "--within=10")
    assert (verdict["verdict"], verdict["code"]) == ("invalid", 1), verdict["said"]
    assert verdict["checks"]["K7"]["violations"] > 0
    assert verdict["headline"].endswith("which acks=1 acknowledges")


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
