"""docs/mutants-sim.md as rows, each held to what the simulation finds today.

A change of the simulation moves seeds, and with them what finds a mutant.  So each row's seed is
played again; where it finds nothing any more, three times as many seeds as the row took are
searched.  A mutant that none of them finds is lost, and its row says so.

    python -m tests.simulation.pinned part FOLDER K N    plays the K-th of N parts
    python -m tests.simulation.pinned page FOLDER        writes the page; ends with 1 if one is lost
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.simulation.mutation import (
    NONE,
    ROOT,
    Mutant,
    all_mutants,
    row_of,
    rules_broken,
    simulate,
    table,
)

PAGE = ROOT / "docs" / "mutants-sim.md"
UNIT = "its unit test"
TIMES, LEAST = 3, 60
"""So many times the seeds of its row are searched for a mutant, and at least so many."""
_ROW = re.compile(
    r"^\| (?P<id>\d+) \| (?P<what>.*) \| (?P<rules>[^|]*) \| (?P<where>[^|]*) \| (?P<first>\d*) \| "
    r"(?P<seeds>[\d.]*) \| (?P<seconds>[\d.]*) \|$",
    re.MULTILINE,
)


class Pinned(NamedTuple):
    """What the page says: the seed that found it, after how many, in how many seconds."""

    first: int
    seeds: int
    seconds: float

    @property
    def budget(self) -> str:
        begun = self.first - self.seeds + 1
        return f"{begun}..{begun + max(TIMES * self.seeds, LEAST) - 1}"


def pinned(page: Path = PAGE) -> dict[str, Pinned]:
    """The rows of mutants that a seed found, by what is broken: some share a number."""
    rows = [row.groupdict() for row in _ROW.finditer(page.read_text())]
    return {
        row["what"]: Pinned(int(row["first"]), round(float(row["seeds"])), float(row["seconds"]))
        for row in rows
        if row["first"]
    }


def by_units(page: Path = PAGE) -> set[str]:
    """The mutants that no seed finds, and a unit test does."""
    rows = _ROW.finditer(page.read_text())
    return {row["what"] for row in rows if row["rules"] == UNIT}


def play(mutant: Mutant, known: Pinned | None) -> dict[str, Any]:
    """The mutant's row today."""
    if mutant.equivalent:
        return row_of(mutant, NONE)
    if known is not None:
        again = row_of(mutant, simulate(mutant, f"{known.first}..{known.first}"))
        if again["rules"]:
            figures = {"median_seeds": known.seeds, "median_seconds": known.seconds}
            return again | figures | {"seeds": known.seeds}
    if known is None and mutant.scenario:
        row = row_of(mutant, NONE)
        return row | {"rules": rules_broken(mutant, mutant.scenario), "scenario": mutant.scenario}
    row = row_of(mutant, simulate(mutant, known.budget if known else f"0..{LEAST - 1}"))
    return row | {"rules": row["rules"] or [UNIT] * (mutant.what in by_units())}


def part(folder: Path, number: int, of: int) -> None:
    """Keeps each row as soon as it is known, so that a run that was cut off goes on."""
    file, rows = folder / f"rows-{number}.jsonl", pinned()
    lines = file.read_text().splitlines() if file.exists() else []
    done = {json.loads(line)["name"] for line in lines}
    for mutant in all_mutants()[number::of]:
        if mutant.name in done:
            continue
        row = play(mutant, rows.get(mutant.what))
        with file.open("a") as out:
            out.write(json.dumps(row) + "\n")
        found = ", ".join(row["rules"]) or ("equivalent" if row["equivalent"] else "LOST")
        print(f"{mutant.id}: {found}, seed {row['first']}", flush=True)


def page(folder: Path) -> int:
    rows = [
        json.loads(line)
        for file in sorted(folder.glob("rows-*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    for row in rows:
        if not row["rules"] and row["what"] in by_units():
            row["rules"] = [UNIT]
    PAGE.write_text(table(rows))
    lost = [row["name"] for row in rows if not row["rules"] and not row["equivalent"]]
    print(f"{len(rows)} mutants; lost: {', '.join(lost) or 'none'}")
    return bool(lost)


if __name__ == "__main__":
    verb, where, *numbers = sys.argv[1:]
    if verb == "page":
        sys.exit(page(Path(where)))
    part(Path(where), *map(int, numbers))
