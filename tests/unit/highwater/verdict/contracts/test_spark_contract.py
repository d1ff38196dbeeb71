"""spark/contract.py in this process: the same answers as DuckDB's, exit codes, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from highwater.verdict.by_spark import spark_session
from highwater.verdict.conclusion import compare
from highwater.verdict.contracts import spark_contract
from tests.planted.contracts import PLANTS, READ_MS, Plant, together, write
from tests.unit.highwater.verdict.contracts.test_planted_contracts import check

pytestmark = [
    pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("java"),
]  # fmt: skip
EVERYTHING = "1000"


def job(folder: Path, *arguments: str) -> int:
    out = str(folder / "verdict.json")
    file = str(folder / "contract.json")
    return spark_contract.main(
        [file, "--consumed", str(folder / "consumed"), "--out", out, *arguments]
    )


def test_spark_finds_in_all_plants_what_duckdb_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    by_duckdb = check(tmp_path)
    found = str(tmp_path / "found.json")
    # when the plants are read is written in them
    monkeypatch.setattr(spark_contract, "wall_ms", lambda: READ_MS)
    assert job(tmp_path, "--examples", EVERYTHING, "--found", found) == 1
    by_spark = json.loads(Path(found).read_text())
    assert compare(by_spark, by_duckdb) == []
    coverage = [sorted(map(str, f["facts"]["coverage"])) for f in (by_spark, by_duckdb)]
    assert coverage[0] == coverage[1]
    said = capfd.readouterr().out
    assert "contract: 12 of 12  K" in said
    assert "K3: repeat-0 offset 3: has number 2 of key k" in said


@pytest.mark.rare
def test_the_layout_of_large_topics_and_a_topic_without_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_session, "SMALL_BYTES", 0)
    clean = next(p for p in PLANTS if p.name == "clean")
    document = together([clean])
    document["topics"] |= {"empty": {"must": "monotonic time"}}
    write(tmp_path, document, clean.records)
    assert job(tmp_path) == 2
    verdict = json.loads((tmp_path / "verdict.json").read_text())
    assert verdict["headline"] == "this proves nothing: empty holds no record"
    assert {c["status"] for c in verdict["checks"].values()} == {"passed"}


def test_what_cannot_be_checked_is_one_line_and_3(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plant = Plant("t", {"t": {"must": "monotonic time"}})
    plant.put("t", 0, {})
    file = write(tmp_path, together([plant]), plant.records)
    table = tmp_path / "consumed" / "part-0.parquet"
    old = tmp_path / "old.parquet"
    duckdb.sql(f"COPY (SELECT * EXCLUDE (value) FROM read_parquet('{table}')) TO '{old}'")
    old.replace(table)
    assert job(tmp_path) == 3
    file.write_text('{"topics": {"t": {"must": "no gaps"}}}')
    assert job(tmp_path) == 3
    file.unlink()
    assert job(tmp_path) == 3
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("contract: ")]
    assert [line.split(": ", 1)[1].removeprefix(f"{file}: ") for line in said] == [
        "the Parquet has no column value",
        "topics.t: must: 'no gaps' is unknown; there are no gap, no repeat, order per key, "
        "monotonic time",
        "there is no such file",
    ]
