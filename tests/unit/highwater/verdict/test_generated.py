"""A generated history holds what was planted, and nothing else."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from highwater.verdict import catalog, duck
from highwater.verdict.conclusion import conclude
from highwater.verdict.generated import Shape, TooSmall, query
from highwater.verdict.results import Results


def checked(folder: Path, shape: Shape) -> Results:
    (folder / "tables").mkdir(parents=True)
    with duckdb.connect() as db:
        db.execute(f"CREATE VIEW ids AS SELECT range AS id FROM range({shape.records})")
        sql = query(shape).replace("`", '"')
        db.execute(f"COPY ({sql}) TO '{folder}/tables/history.parquet' (FORMAT parquet)")
        others = {n: c for n, (_, c) in catalog.TABLES.items() if n != "history"}
        for name, columns in (others | {"topics": catalog.TOPICS}).items():
            fields = ", ".join(f'CAST(NULL AS {kind}) AS "{c}"' for c, kind in columns.items())
            path = f"{folder}/tables/{name}.parquet"
            db.execute(f"COPY (SELECT {fields} WHERE false) TO '{path}' (FORMAT parquet)")
    return duck.run_checks(folder, 1000)


@pytest.mark.thorough
@pytest.mark.parametrize("skew", [0.0, 0.9])
def test_what_was_planted_is_found_and_nothing_else(tmp_path: Path, skew: float) -> None:
    shape = Shape(60_000, skew=skew, anomalies=1 if skew else 5)
    found = checked(tmp_path, shape)
    places = {
        (id_, e["topic"], e["partition"], e["offset"])
        for id_, check in found["checks"].items()
        for e in check["examples"]
    }
    assert places == shape.findings()
    assert found["facts"]["acked"] == shape.records
    assert abs(2 * shape.records - shape.operations) < 10 * shape.partitions
    examined = {id_ for id_, check in found["checks"].items() if check["examined"]}
    assert examined >= {"C1", "C4", "C8", "C9", "C10", "C11", "C15", "T3", "T4"}


@pytest.mark.thorough
def test_a_history_without_anomalies_is_valid(tmp_path: Path) -> None:
    shape = Shape(5_000, partitions=4, anomalies=0)
    verdict = conclude(checked(tmp_path, shape), shape.info(), [], torn_read=False)
    longest, *others = verdict.notes[:-1]
    assert longest.startswith("before the first fault, and long after the last one, an")
    assert (verdict.verdict, others) == ("valid", [])


def test_too_many_anomalies_are_refused() -> None:
    with pytest.raises(TooSmall, match="20 anomalies need a history of 10,560 operations or more"):
        query(Shape(1000))
