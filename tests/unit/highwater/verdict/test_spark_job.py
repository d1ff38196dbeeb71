"""spark/verify.py in this process: what it prints and writes, its exit codes, what it refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from highwater.verdict import duck, runner, spark_job, spark_session, tables
from highwater.verdict.conclusion import compare
from highwater.verdict.plain_table import lines
from tests.planted.stories import PLANTS
from tests.planted.story import write

BY_NAME = {plant.name: plant for plant in PLANTS}

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("java"),
]


@pytest.fixture
def planted(tmp_path: Path) -> Callable[..., Path]:
    def plant(*names: str) -> Path:
        write(tmp_path / "run", [BY_NAME[name] for name in names])
        return tmp_path / "run"

    return plant


def job(*arguments: str | Path) -> int:
    return spark_job.main([str(a) for a in arguments])


def test_a_sound_run_ends_with_0_and_the_table_of_verify(
    planted: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    run = planted("clean")
    by_duckdb = runner.run(run, "duckdb", lambda line: None)
    shutil.rmtree(run / "tables")
    out = run / "by-spark.json"
    assert job(run, "--out", out) == 0
    told = capfd.readouterr()
    verdict = json.loads(out.read_text())
    assert (verdict["verdict"], verdict["engine"]) == ("valid", "spark")
    assert set(verdict["spark"]["phases"]) == {"session", "read", "views", "checks"}
    said = told.out.splitlines()
    assert sum(" of 26  " in line for line in said) == 26
    table = ["valid  (checked by spark)", *lines(by_duckdb)[1:]]
    begin = said.index(table[0])
    assert said[begin : begin + len(table)] == table
    assert " INFO " not in told.err
    assert not list(run.glob(".*.crc"))


@pytest.mark.rare
def test_the_layout_of_a_large_run_finds_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_session, "SMALL_BYTES", 0)
    write(tmp_path, PLANTS)
    tables.build(tmp_path)
    by_duckdb = duck.run_checks(tmp_path)
    assert job(tmp_path, "--found", tmp_path / "found.json") == 0
    by_spark = json.loads((tmp_path / "found.json").read_text())
    assert compare(by_spark, by_duckdb) == []
    assert by_spark["facts"] == by_duckdb["facts"]


def test_a_planted_loss_ends_with_1(
    planted: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    run = planted("clean", "lost-at-the-end")
    assert job(run, "--out", run / "verdict.json") == 1
    said = capfd.readouterr().out
    assert "C4: " in said
    assert "is in no read" in said
    by_spark = json.loads((run / "verdict.json").read_text())
    by_duckdb = runner.run(run, "duckdb", lambda line: None)
    assert by_spark["checks"]["C4"]["examples"] == by_duckdb.checks["C4"].examples


def test_an_interrupted_run_is_void_and_never_invalid(planted: Callable[..., Path]) -> None:
    run = planted("lost-at-the-end", "vanished")
    file = run / "run.json"
    unfinished = {"finished": False, "final_read": False, "healed": False}
    file.write_text(json.dumps(json.loads(file.read_text()) | unfinished))
    shutil.rmtree(run / "consumed")
    assert job(run) == 2
    assert json.loads((run / "verdict.json").read_text())["verdict"] == "void"


@pytest.mark.parametrize(
    "cut",
    [
        pytest.param(1, id="the end of the line", marks=pytest.mark.rare),
        pytest.param(30, id="half a line"),
    ],
)
def test_a_torn_last_line_is_left_out(planted: Callable[..., Path], cut: int) -> None:
    run = planted("clean")
    history = run / "history.jsonl"
    lines_there = history.read_bytes().splitlines(keepends=True)
    history.write_bytes(b"".join(lines_there[:-1]))
    assert job(run, "--found", run / "whole.json") == 0
    history.write_bytes(b"".join(lines_there)[:-cut])
    assert job(run, "--found", run / "torn.json") == 0
    whole, torn = (json.loads((run / f"{name}.json").read_text()) for name in ("whole", "torn"))
    assert compare(whole, torn) == []


def first_line(text: str) -> Callable[[Path], None]:
    def put(run: Path) -> None:
        history = run / "history.jsonl"
        history.write_text(text + "\n" + history.read_text())

    return put


def no_history(run: Path) -> None:
    (run / "history.jsonl").unlink()


def no_json(run: Path) -> None:
    (run / "run.json").write_text("{")


REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "no history": (no_history, "holds neither history.jsonl nor"),
    "a damaged line": (first_line('{"f":"po'), "history.jsonl: 1 line is not as it should be: {"),
    "a field of another type": (
        first_line('{"f":"poll","partition":"first"}'),
        "history.jsonl: 1 line is not as it should be: {",
    ),
    "run.json": (no_json, "run.json is not JSON"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_checked_is_one_line_and_3(
    planted: Callable[..., Path], capfd: pytest.CaptureFixture[str], what: str
) -> None:
    run = planted("clean")
    damage, told = REFUSED[what]
    damage(run)
    assert job(run) == 3
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("verify: ")]
    assert len(said) == 1
    assert str(run) in said[0]
    assert told in said[0]


def test_a_table_of_an_older_schema_is_read_from_the_lines_or_refused(
    planted: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    run = planted("clean")
    tables.build(run)
    table = run / "tables" / "history.parquet"
    old = run / "old.parquet"
    duckdb.sql(f"COPY (SELECT * EXCLUDE (max_in_flight) FROM read_parquet('{table}')) TO '{old}'")
    old.replace(table)
    assert job(run) == 0
    notes = json.loads((run / "verdict.json").read_text())["notes"]
    assert any("of another schema, without max_in_flight" in note for note in notes)
    (run / "history.jsonl").unlink()
    assert job(run) == 3
    assert "another version of Highwater wrote it" in capfd.readouterr().err
