"""Mutants: the code with one rule broken, to prove that the simulation would notice.

A mutant is a file in `mutants/`: its fault, the rules that may catch it, and replacements of source
text, each of which must fit in exactly one place.  It is applied to a copy of the source tree and
run by a process that imports the copy: the product has no switch for it.

    python -m tests.simulation.mutation [--seeds 0..499] [--jobs N] [--table FILE] [ID ...]

searches for each of them, and keeps the table: rule that found it, seeds and seconds that it took.
A mutant that needs an order of events that no seed has is shown by the scenario that it names.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import click

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "mutants"
PACKAGES = ("highwater", "broker", "controller", "spark")

_BLOCK = re.compile(r"^<<<<\n(.*?)^====\n(.*?)^>>>>\n", re.MULTILINE | re.DOTALL)


class Stale(Exception):
    """A mutant that does not fit the source any more."""


@dataclass(frozen=True)
class Mutant:
    name: str
    id: int
    what: str
    rules: tuple[str, ...]
    changes: tuple[tuple[str, str, str], ...]
    """(file, text, its replacement)"""
    options: tuple[str, ...] = ()
    """Options of `highwater sim` that it needs to show itself."""
    ci: str = ""
    """Seeds in which the regression test looks for it, with calm clients, from the first one that
    found it; empty: it is not in the test."""
    equivalent: str = ""
    """The reason why no run can tell it from the product, if there is one."""
    scenario: str = ""
    """The named course of events that finds it, where seeds do not."""


def load(path: Path) -> Mutant:
    head, *files = re.split(r"^file: *(.+)\n", path.read_text(), flags=re.MULTILINE)
    fields = dict(line.split(": ", 1) for line in head.strip().splitlines())
    changes = [
        (file.strip(), before, after)
        for file, body in zip(files[::2], files[1::2], strict=True)
        for before, after in _BLOCK.findall(body)
    ]
    return Mutant(
        path.stem, int(fields["id"]), fields["what"], tuple(fields["rules"].split()),
        tuple(changes), tuple(fields.get("options", "").split()), fields.get("ci", ""),
        fields.get("equivalent", ""), fields.get("scenario", ""),
    )  # fmt: skip


def all_mutants() -> list[Mutant]:
    return [load(path) for path in sorted(FOLDER.glob("*.mutant"))]


def mutated(mutant: Mutant) -> dict[str, str]:
    """The files that it changes, changed; raises Stale."""
    files: dict[str, str] = {}
    for file, before, after in mutant.changes:
        source = files.get(file) or (ROOT / file).read_text()
        if source.count(before) != 1:
            raise Stale(
                f"mutant {mutant.name} fits {source.count(before)} places of {file}, and must fit "
                f"one: bring it up to date with the source"
            )
        files[file] = source.replace(before, after)
    return files


@cache
def _compile() -> None:
    """A copy takes the byte code over, which each of its processes would make again."""
    command = [sys.executable, "-m", "compileall", "-q", "-o", "0", "-o", "1", *PACKAGES]
    subprocess.run(command, cwd=ROOT, check=True)


def _linked(source: str, target: str) -> None:
    """A second name of the same file, which costs a tenth of a copy."""
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


@contextmanager
def mutated_tree(mutant: Mutant | None) -> Iterator[Path]:
    _compile()
    with tempfile.TemporaryDirectory(prefix="highwater-mutant-") as folder:
        tree = Path(folder)
        for package in PACKAGES:
            # the links in highwater/ stay links, so that the mutated copy is imported
            shutil.copytree(ROOT / package, tree / package, symlinks=True, copy_function=_linked)
        for file, source in mutated(mutant).items() if mutant is not None else ():
            (tree / file).unlink()  # it is the project's own file
            (tree / file).write_text(source)
        yield tree


def _sim(tree: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """`highwater sim` of that tree, without the product's own assertions, because the rules have to
    find the mutant from outside.
    """
    return subprocess.run(
        [sys.executable, "-O", "-m", "highwater.cli.main", "sim", *options], cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def simulate(
    mutant: Mutant | None,
    seeds: str,
    *,
    jobs: int = 1,
    minutes: float = 30,
    finds: int = 1,
    pace: float = 1,
) -> Any:
    """`highwater sim --json` of the mutated tree, until so many seeds have broken a rule.  The pace
    among a mutant's options is before `pace`.
    """
    with mutated_tree(mutant) as tree:
        result = tree / "result.json"
        done = _sim(
            tree,
            "--seeds", seeds, "--jobs", str(jobs), "--minutes", str(minutes),
            "--json", str(result), "--finds", str(finds), "--pace", str(pace),
            *(mutant.options if mutant is not None else ()),
        )  # fmt: skip
        if not result.exists():
            raise RuntimeError(f"the simulation failed: {done.stderr[-2000:]}")
        return json.loads(result.read_text())


def play(mutant: Mutant, scenario: str) -> subprocess.CompletedProcess[str]:
    """`highwater sim --scenario` of the mutated tree."""
    with mutated_tree(mutant) as tree:
        return _sim(tree, "--scenario", scenario)


def rules_broken(mutant: Mutant, scenario: str) -> list[str]:
    """The rules by which the scenario finds it, or its own checks; empty if it does not."""
    done = play(mutant, scenario)
    if done.returncode != 1 or "FAILED" not in done.stdout:
        return []
    found = re.findall(r"^  (\w+) broken at ", done.stdout, re.MULTILINE)
    return found or ["the scenario's own check"]


NONE = {"violations": [], "first_seed": 0, "seeds": 0, "simulated_seconds": 0.0}
"""The row of a mutant that is equivalent, and not searched for."""


def row_of(mutant: Mutant, result: Any, pace: float = 1) -> dict[str, Any]:
    """The search for one mutant, as a row to keep and show."""
    violations = sorted(result["violations"], key=lambda v: v["seed"])
    seeds = [v["seed"] for v in violations]
    gaps = [b - a for a, b in pairwise([result["first_seed"] - 1, *seeds])]
    a_seed = result["simulated_seconds"] / max(result["seeds"], 1)
    return {
        "name": mutant.name, "commit": _commit(), "pace": pace, "id": mutant.id,
        "what": mutant.what, "equivalent": mutant.equivalent,
        "rules": sorted({v["rule"] for v in violations}), "first": seeds[0] if seeds else None,
        "found": len(seeds), "seeds": result["seeds"],
        "median_seeds": median(gaps) if gaps else None,
        "median_seconds": round(median(gaps) * a_seed, 1) if gaps else None,
    }  # fmt: skip


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return done.stdout.strip() or "unknown"


_HEAD = """# Mutants in the simulation

Each mutant is the product with one rule broken in one place (`tests/simulation/mutants/`).  A
search runs seeds in order until a rule is seen broken; where none is, the scenario is named that
shows what is broken.  `scripts/long mutants-pin` plays each row's seed again, and searches three
times as many seeds where it finds nothing any more; it made this page at {commit}, {time} UTC.
Seconds are of one core, when the mutant was searched for.

| mutant | what is broken | found by | found in | first seed | median seeds | median seconds |
|---|---|---|---|---|---|---|
"""


def table(rows: list[dict[str, Any]]) -> str:
    """The page that is kept in the docs."""
    commits = ", ".join(dict.fromkeys(row["commit"] for row in rows))
    time = f"{datetime.now(UTC):%Y-%m-%d %H:%M}"
    page = _HEAD.format(commit=commits, time=time)
    rows = sorted(rows, key=lambda row: row["name"])
    for row in rows:
        found = ", ".join(row["rules"]) or ("equivalent" if row["equivalent"] else "**not found**")
        where = f"{row['found']} of {row['seeds']} seeds" if row["seeds"] else ""
        if row["found"] == 1 and (begun := row["first"] - row["median_seeds"] + 1) > 0:
            where += f", from {begun} on"
        if row.get("scenario"):
            where += f"; scenario {row['scenario']}"
        cells = [row["id"], row["what"], found, where]
        figures = [row[name] for name in ("first", "median_seeds", "median_seconds")]
        cells += ["" if figure is None else figure for figure in figures]
        page += "| " + " | ".join(map(str, cells)) + " |\n"
    for row in rows:
        if row["equivalent"]:
            page += (
                f"\nMutant {row['id']} is equivalent, and not searched for: {row['equivalent']}\n"
            )
    for pace in sorted({row.get("pace", 1) for row in rows} - {1}):
        calmer = [str(row["id"]) for row in rows if row.get("pace", 1) == pace and row["seeds"]]
        page += f"\nWith calmer clients (`--pace {pace:g}`): {', '.join(calmer)}.\n"
    searched = {row["name"] for row in rows}
    left = [mutant for mutant in all_mutants() if mutant.name not in searched]
    if left:
        page += "\nNot searched for yet:\n\n"
        page += "".join(f"- {mutant.id}: {mutant.what}\n" for mutant in left)
    return page


@click.command()
@click.option("--seeds", default="0..499", show_default=True)
@click.option("--jobs", default=1, show_default=True)
@click.option(
    "--finds", default=1, show_default=True, help="Stop after so many seeds that find it."
)
@click.option(
    "--pace", default=1.0, show_default=True, help="Of the clients, as `highwater sim`'s."
)
@click.option("--table", "page", type=click.Path(path_type=Path), help="Write the page there.")
@click.option("--json", "kept", type=click.Path(path_type=Path), help="Rows to keep.")
@click.argument("ids", nargs=-1, type=int)
def main(
    seeds: str,
    jobs: int,
    finds: int,
    pace: float,
    page: Path | None,
    kept: Path | None,
    ids: tuple[int, ...],
) -> None:
    """Searches for each mutant (or those with these IDs), and prints the table.

    \b
    Example:
      python -m tests.simulation.mutation --seeds 0..499 --table docs/mutants-sim.md
      python -m tests.simulation.mutation --seeds 0..49 13 14
    """
    rows = json.loads(kept.read_text()) if kept is not None and kept.exists() else []
    there = {row["name"]: row for row in rows}
    for mutant in all_mutants():
        row = there.get(mutant.name)
        if (ids and mutant.id not in ids) or (row and (row["rules"] or not mutant.scenario)):
            continue
        if row is None:
            result = NONE
            if not mutant.equivalent:
                result = simulate(mutant, seeds, jobs=jobs, finds=finds, pace=pace)
            row = row_of(mutant, result, pace)
            rows.append(row)
        if mutant.scenario and not row["rules"]:
            row["rules"] = rules_broken(mutant, mutant.scenario)
            row["scenario"] = mutant.scenario
        verdict = "found by " + ", ".join(row["rules"]) if row["rules"] else "not found"
        verdict = "equivalent: " if row["equivalent"] else verdict
        where = f"{row['found']} of {row['seeds']} seeds, {row['median_seconds']} s"
        click.echo(f"{mutant.id:3} {verdict} in {where}: {mutant.what}")
        if kept is not None:
            kept.write_text(json.dumps(rows, indent=1) + "\n")
        if page is not None:
            page.write_text(table(rows))
    if page is not None:
        page.write_text(table(rows))
    sys.exit(any(not row["rules"] and not row["equivalent"] for row in rows))


if __name__ == "__main__":
    main()
