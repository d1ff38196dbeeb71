"""`highwater verify --contract` on consumed records: exit codes and words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from highwater.cli.verify import verify
from tests.planted.contracts import Plant, write

NUMBERED = {"sequence": {"json": "$.n"}, "must": ["no gap", "no repeat", "order per key"]}


def run(folder: Path, *numbers: int, **more: Any) -> Result:
    plant = Plant("t", {"t": NUMBERED})
    plant.numbers("t", *numbers)
    document = {"topics": {"t": NUMBERED}} | more
    file = write(folder, document, plant.records)
    arguments = [str(folder), "--contract", str(file), "--json", str(folder / "verdict.json")]
    return CliRunner().invoke(verify, arguments)


def test_kept(tmp_path: Path) -> None:
    done = run(tmp_path, 1, 2, 3)
    assert done.exit_code == 0, done.output
    assert done.output.startswith("3 records, and the contract is kept\n")
    verdict = json.loads((tmp_path / "verdict.json").read_text())
    assert list(verdict["checks"]) == ["K1", "K2", "K3", "K4"]
    assert (verdict["verdict"], verdict["records"]) == ("valid", {"t": 3})


@pytest.mark.thorough
def test_broken_names_the_first_ten(tmp_path: Path) -> None:
    done = run(tmp_path, *range(0, 60, 2), 58)
    assert done.exit_code == 1, done.output
    assert done.output.startswith("record 0 of t-0 has number 0 of key k, and the next one is 2")
    assert [line[:3] for line in done.output.splitlines()].count("K2:") == 10
    assert "K3: t-0 offset 30: has number 58 of key k" in done.output
    verdict = json.loads((tmp_path / "verdict.json").read_text())
    assert verdict["checks"]["K2"]["violations"] == 29


@pytest.mark.thorough
def test_no_record_and_a_path_that_no_record_has_are_void(tmp_path: Path) -> None:
    done = run(tmp_path / "a", 1, topics={"t": NUMBERED, "u": {"must": "monotonic time"}})
    assert done.exit_code == 2, done.output
    assert done.output.startswith("this proves nothing: u holds no record\n")
    wrong = NUMBERED | {"sequence": {"json": "$.m"}}
    done = run(tmp_path / "b", 1, topics={"t": wrong})
    assert done.exit_code == 2, done.output
    assert done.output.startswith(
        "this proves nothing: no record of t has json $.m (topics.t.sequence)\n"
    )


def test_a_broken_promise_is_not_hidden_by_a_void_one(tmp_path: Path) -> None:
    done = run(tmp_path, 1, 3, topics={"t": NUMBERED, "u": {"must": "monotonic time"}})
    assert done.exit_code == 1, done.output
    assert "void: u holds no record" in done.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--contract", "x.yaml", "--bootstrap", "h:1"], "x.yaml: there is no such file"),
        (["--contract", "x.yaml"], "--contract needs --bootstrap HOST:PORT, or RUN"),
        (["--contract", "x.yaml", "--engine", "spark"], "spark-submit spark/contract.py"),
        ([], "name a run's folder, or a contract by --contract"),
    ],
)
def test_what_cannot_be_done_is_said(arguments: list[str], told: str) -> None:
    done = CliRunner().invoke(verify, arguments)
    assert done.exit_code in (2, 3)
    assert told in done.output


@pytest.mark.thorough
def test_a_cluster_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("highwater.verdict.contracts.reader.ANSWER_S", 1.0)
    file = tmp_path / "c.json"
    file.write_text(json.dumps({"topics": {"t": NUMBERED}}))
    arguments = ["--contract", str(file), "--bootstrap", "127.0.0.1:1"]
    done = CliRunner().invoke(verify, arguments)
    assert done.exit_code == 3
    assert "highwater: 127.0.0.1:1: " in done.output
    settings = tmp_path / "s.properties"
    settings.write_text("no.such.setting=1\n")
    done = CliRunner().invoke(verify, [*arguments, "--command-config", str(settings)])
    assert done.exit_code == 3
    assert "the settings are refused: No such configuration property" in done.output
