"""spark/verify.py in this process: what it prints and writes, its exit codes, what it refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from highwater.verdict import catalog, duck, runner, tables
from highwater.verdict.by_spark import spark_job, spark_session
from highwater.verdict.conclusion import compare
from highwater.verdict.plain_table import lines
from tests.planted.stories import PLANTS
from tests.planted.story import write
from tests.unit.highwater.verdict.test_own_history import as_it_should_be, write_own

CHECKS = len(catalog.checks())
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


def older(table: Path) -> None:
    """The table as a version wrote it that had no max_in_flight."""
    old = table.with_name("old.parquet")
    duckdb.sql(f"COPY (SELECT * EXCLUDE (max_in_flight) FROM read_parquet('{table}')) TO '{old}'")
    old.replace(table)


def job(*arguments: str | Path) -> int:
    return spark_job.main([str(a) for a in arguments])


def test_a_sound_run_ends_with_0_and_the_table_of_verify(
    planted: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    """Its table has an older schema, so the lines are read, of which the last one is torn."""
    run = planted("clean")
    by_duckdb = runner.run(run, "duckdb", lambda line: None)
    history = run / "history.jsonl"
    history.write_bytes((whole := history.read_bytes()) + whole.splitlines()[-1][:-30])
    older(run / "tables" / "history.parquet")
    out = run / "by-spark.json"
    assert job(run, "--out", out) == 0
    told = capfd.readouterr()
    verdict = json.loads(out.read_text())
    assert (verdict["verdict"], verdict["engine"]) == ("valid", "spark")
    assert set(verdict["spark"]["phases"]) == {"session", "read", "views", "checks"}
    said = told.out.splitlines()
    assert sum(f" of {CHECKS}  " in line for line in said) == CHECKS
    table = ["valid  (checked by spark)", *lines(by_duckdb)[1:]]
    begin = said.index(table[0])
    assert said[begin : begin + len(table)] == table
    assert any("of another schema, without max_in_flight" in note for note in verdict["notes"])
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


def test_a_history_of_ones_own_is_valid(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither run.json nor consumed/ is there: required is what the history claims to hold."""
    write_own(tmp_path, as_it_should_be)
    by_duckdb = runner.run(tmp_path, "duckdb", lambda line: None, ingest=False)
    assert job(tmp_path) == 0, capfd.readouterr().out
    by_spark = json.loads((tmp_path / "verdict.json").read_text())
    assert by_spark["verdict"] == by_duckdb.verdict == "valid"
    (told,) = (note for note in by_duckdb.notes if "required are" in note)
    assert told in by_spark["notes"]


@pytest.mark.rare
def test_an_interrupted_run_is_void_and_never_invalid(planted: Callable[..., Path]) -> None:
    run = planted("lost-at-the-end", "vanished")
    file = run / "run.json"
    unfinished = {"finished": False, "final_read": False, "healed": False}
    file.write_text(json.dumps(json.loads(file.read_text()) | unfinished))
    shutil.rmtree(run / "consumed")
    assert job(run) == 2
    assert json.loads((run / "verdict.json").read_text())["verdict"] == "void"


@pytest.mark.rare
@pytest.mark.parametrize("cut", [1, 30], ids=["the end of the line", "half a line"])
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


def only_an_older_table(run: Path) -> None:
    tables.build(run)
    older(run / "tables" / "history.parquet")
    no_history(run)


def no_json(run: Path) -> None:
    (run / "run.json").write_text("{")


REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "no history": (no_history, "holds neither history.jsonl nor"),
    "a damaged line": (first_line('{"f":"po'), "history.jsonl: 1 line is not as it should be: {"),
    "a field of another type": (
        first_line('{"f":"poll","partition":"first"}'),
        "history.jsonl: 1 line is not as it should be: {",
    ),
    "a table of an older schema": (only_an_older_table, "another version of Highwater wrote it"),
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
