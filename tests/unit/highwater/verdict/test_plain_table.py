"""The verdict's table: its width, its idle checks, and the order and words of its cells."""

from __future__ import annotations

import json
from itertools import takewhile
from pathlib import Path

import pytest

from highwater.verdict import runner
from highwater.verdict.plain_table import example_lines, lines, seen_lines
from highwater.verdict.verdict import Verdict
from tests.planted.stories import PLANTS
from tests.planted.story import write

RULES = ("R10", "R2", "R5")


def judged(tmp_path: Path, *names: str) -> Verdict:
    write(tmp_path, [plant for plant in PLANTS if plant.name in names])
    info = tmp_path / "run.json"
    found = {"name": "logs match", "examined": 12_345_678, "violations": 0, "examples": []}
    more = {"cluster_checks": dict.fromkeys(RULES, found), "seen": {"isr_shrinks": 3}}
    info.write_text(json.dumps(json.loads(info.read_text()) | more))
    return runner.run(tmp_path, "duckdb", lambda line: None)


@pytest.mark.thorough
def test_it_fits_80_columns_and_one_entry_names_the_idle_checks(tmp_path: Path) -> None:
    verdict = judged(tmp_path, "lost-at-the-end")
    table = lines(verdict)
    assert max(map(len, table)) <= 80
    at = next(n for n, line in enumerate(table) if line.startswith("idle "))
    further = takewhile(lambda line: line.startswith("  "), table[at + 1 :])
    idle = " ".join((table[at], *further))
    for id_, check in verdict.checks.items():
        rows = [line for line in table if line.startswith(f"{id_} ")]
        assert (len(rows), id_ in idle.replace(",", " ").split()) == (
            (0, True) if check.status == "idle" else (1, False)
        )


@pytest.mark.thorough
def test_one_violation_is_singular_and_rules_come_in_the_order_of_their_numbers(
    tmp_path: Path,
) -> None:
    verdict = judged(tmp_path, "lost-at-the-end")
    table = lines(verdict)
    (row,) = [line for line in table if line.startswith("C4 ")]
    assert "  1 violation  violated" in row
    assert f"C4 {verdict.checks['C4'].name}: 1 violation" in verdict.notes
    ids = [line.split()[0] for line in table]
    assert sorted(RULES, key=ids.index) == ["R2", "R5", "R10"]
    assert example_lines(verdict)[0].startswith("C4: t00-lost-at-the-end-0 offset ")


@pytest.mark.thorough
def test_what_was_seen_is_told_in_words(tmp_path: Path) -> None:
    assert seen_lines(judged(tmp_path, "clean")) == ["seen      3 ISR shrinks"]
