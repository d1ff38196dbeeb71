"""Every rule finds what was planted for it, and nothing else, in DuckDB."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from highwater.verdict import catalog
from highwater.verdict.contracts import duck_engine, tables
from highwater.verdict.contracts.contract_model import load
from highwater.verdict.location import spark_folder
from highwater.verdict.results import Results
from tests.planted.contracts import PLANTS, READ_MS, Found, Plant, together, write


def check(folder: Path) -> Results:
    """All plants, each in topics of its own, under one contract."""
    file = write(folder, together(), [r for p in PLANTS for r in p.records])
    contract = load(str(file), lambda path: Path(path).read_text())
    records = duck_engine.consumed(folder / "consumed", contract.topics)
    return duck_engine.check(contract, records, READ_MS, 1000)


def findings(results: Results) -> Found:
    return {
        (id_, e["kind"], str(e["topic"]), e["partition"], e["offset"])
        for id_, check in results["checks"].items()
        for e in check["examples"]
    }


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return check(tmp_path_factory.mktemp("planted"))


@pytest.mark.thorough
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_a_plant_is_found_where_it_stands(plant: Plant, results: Results) -> None:
    assert plant.found <= findings(results)
    for rule, told in plant.details.items():
        examples = results["checks"][rule]["examples"]
        assert next(e["detail"] for e in examples if e["topic"] in plant.topics) == told


def test_nothing_else_is_found(results: Results) -> None:
    assert findings(results) == set().union(*(p.found for p in PLANTS))


def test_every_rule_has_a_plant() -> None:
    planted = {rule for p in PLANTS for rule, kind, *_ in p.found if kind == "violation"}
    assert planted == {c.id for c in catalog.checks(tables.rules_folder())}
    assert planted == {"K1"}.union(*map(set, tables.ASKS.values()))


@pytest.mark.thorough
def test_a_rule_that_always_holds_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutant of the harness: no repeat is found in any topic."""
    shutil.copytree(spark_folder() / "contracts", tmp_path / "contracts")
    file = tmp_path / "contracts" / "checks" / "K3.sql"
    file.write_text(file.read_text().replace("n.nth > 1", "n.nth > 99"))
    monkeypatch.setattr(tables, "rules_folder", lambda: tmp_path / "contracts")
    missed = set().union(*(p.found for p in PLANTS)) - findings(check(tmp_path))
    assert {rule for rule, *_ in missed} == {"K3"}
