"""Mutants: the code with one rule broken, to prove that the simulation would notice.

A mutant is a file in `mutants/`: what it breaks, the rules that may catch it, and replacements of
source text, each of which must fit in exactly one place.  It is applied to a copy of the source
tree and run by a process that imports the copy: the product has no switch for it.

    python -m tests.simulation.mutation [--seeds 0..499] [--jobs N] [ID ...]

prints the table: mutant, rule that found it, seeds and seconds that it took.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "mutants"
PACKAGES = ("highwater", "broker", "controller")

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
    """Of `highwater sim`, without which it cannot show itself."""
    ci: str = ""
    """Seeds in which the regression test looks for it; empty: it is not in the test."""


def load(path: Path) -> Mutant:
    head, *files = re.split(r"^file: *(.+)\n", path.read_text(), flags=re.MULTILINE)
    fields = dict(line.split(": ", 1) for line in head.strip().splitlines())
    changes = [
        (file.strip(), before, after)
        for file, body in zip(files[::2], files[1::2], strict=True)
        for before, after in _BLOCK.findall(body)
    ]
    return Mutant(
        path.stem,
        int(fields["id"]),
        fields["what"],
        tuple(fields["rules"].split()),
        tuple(changes),
        tuple(fields.get("options", "").split()),
        fields.get("ci", ""),
    )


def all_mutants() -> list[Mutant]:
    return [load(path) for path in sorted(FOLDER.glob("*.mutant"))]


def apply(mutant: Mutant, tree: Path) -> None:
    for file, before, after in mutant.changes:
        path = tree / file
        source = path.read_text()
        if source.count(before) != 1:
            raise Stale(
                f"mutant {mutant.name} fits {source.count(before)} places of {file}, and must fit "
                f"one: bring it up to date with the source"
            )
        path.write_text(source.replace(before, after))


@contextmanager
def mutated_tree(mutant: Mutant | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="highwater-mutant-") as folder:
        tree = Path(folder)
        for package in PACKAGES:
            shutil.copytree(
                ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__")
            )
        if mutant is not None:
            apply(mutant, tree)
        yield tree


def simulate(mutant: Mutant | None, seeds: str, *, jobs: int = 1, minutes: float = 30) -> Any:
    """`highwater sim --json` of the mutated tree; it stops at the first broken rule."""
    with mutated_tree(mutant) as tree:
        result = tree / "result.json"
        done = subprocess.run(
            [
                sys.executable, "-m", "highwater.cli.main", "sim", "--seeds", seeds,
                "--jobs", str(jobs), "--minutes", str(minutes), "--json", str(result),
                *(mutant.options if mutant is not None else ()),
            ],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        if not result.exists():
            raise RuntimeError(f"the simulation failed: {done.stderr[-2000:]}")
        return json.loads(result.read_text())


@click.command()
@click.option("--seeds", default="0..499", show_default=True)
@click.option("--jobs", default=1, show_default=True)
@click.argument("ids", nargs=-1, type=int)
def main(seeds: str, jobs: int, ids: tuple[int, ...]) -> None:
    click.echo("| mutant | what is broken | found by | seeds | seconds |")
    click.echo("|---|---|---|---|---|")
    missed = 0
    for mutant in all_mutants():
        if ids and mutant.id not in ids:
            continue
        started = time.perf_counter()
        result = simulate(mutant, seeds, jobs=jobs)
        found = result["violations"]
        missed += not found
        rule = ", ".join(sorted({v["rule"] for v in found})) or "**not found**"
        seconds = time.perf_counter() - started
        click.echo(f"| {mutant.id} | {mutant.what} | {rule} | {result['seeds']} | {seconds:.0f} |")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
