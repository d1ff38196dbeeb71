"""From JSON lines to tables: the lines that are left out, and those that are refused."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from highwater.verdict import catalog, tables
from highwater.verdict.location import spark_folder


def rows(run: Path, table: str) -> list[tuple[object, ...]]:
    with duckdb.connect() as db:
        return db.execute(f"SELECT * FROM read_parquet('{run}/tables/{table}.parquet')").fetchall()


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    whole = json.dumps({"index": 0, "f": "send", "type": "invoke", "op": 1})
    (tmp_path / "history.jsonl").write_text(whole + "\n" + whole[:20])
    assert tables.build(tmp_path)["history"] == 1
    assert (tmp_path / "history.jsonl").read_text() == whole + "\n"


def test_a_line_that_is_not_json_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text('{"index": 0}\n{oops}\n{"index": 2}\n')
    with pytest.raises(tables.RunUnreadable, match=r"history\.jsonl cannot be read"):
        tables.build(tmp_path)


def test_a_folder_without_a_history_is_refused(tmp_path: Path) -> None:
    with pytest.raises(tables.RunUnreadable, match=r"holds no history\.jsonl"):
        tables.build(tmp_path)


def test_fields_that_are_not_there_are_null_and_objects_are_text(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text('{"index": 0, "unheard_of": 1}\n')
    fault = {"name": "cut", "target": "broker-1", "t": 1.5, "effect": {"not_leader": 3}}
    (tmp_path / "faults.jsonl").write_text(json.dumps(fault) + "\n")
    assert tables.build(tmp_path)["faults"] == 1
    ((name, _, t, t_ns, _, effect, _),) = rows(tmp_path, "faults")
    assert (name, t, t_ns) == ("cut", 1.5, None)
    assert json.loads(str(effect)) == {"not_leader": 3}


def test_topics_come_from_run_json(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text('{"index": 0}\n')
    info = {"topics": [{"name": "safe"}, {"name": "loose", "expect_loss": True, "partitions": 3}]}
    (tmp_path / "run.json").write_text(json.dumps(info))
    tables.build(tmp_path)
    assert rows(tmp_path, "topics") == [("safe", False, False), ("loose", True, False)]


def test_the_checks_are_found_beside_the_packages_or_inside() -> None:
    assert (spark_folder() / "verify.py").is_file()


def test_a_file_that_is_no_check_is_refused(tmp_path: Path) -> None:
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "C1.sql").write_text("-- C1 a name\nSELECT 1\n")
    with pytest.raises(catalog.CatalogError, match="a check has a first line"):
        catalog.checks(tmp_path)
