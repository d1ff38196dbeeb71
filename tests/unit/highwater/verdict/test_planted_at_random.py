"""DuckDB finds the defects of random histories, each at its place, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from highwater.verdict import duck, tables
from tests.planted.at_random import DEFECTS, History, differences, planted, violations
from tests.planted.story import write

HISTORIES = 200


@pytest.mark.thorough
def test_each_defect_is_found_at_its_place_and_nothing_else(tmp_path: Path) -> None:
    """`scripts/long planted` has 5,000 of them, one by one and by Spark."""
    histories = [History(number) for number in range(HISTORIES)]
    topics = write(tmp_path, [history.plant() for history in histories])
    tables.build(tmp_path)
    found = violations(duck.run_checks(tmp_path, 100_000))
    assert differences(found, planted(topics, histories)) == []
    put = {name for history in histories for name in history.defects}
    assert put == {defect.__name__ for defect in DEFECTS}
    assert any(not history.defects for history in histories)
