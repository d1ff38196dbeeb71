"""Makes, reaches, runs and shows the generated mutants: `python -m tests.simulation.generated`."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import click

from tests.simulation.generated import page as pages
from tests.simulation.generated.maker import ROOMS, ROOT, RULES, Made, everything
from tests.simulation.generated.reach import Reach, measure, runs
from tests.simulation.generated.samples import SEED, SIZE, sample
from tests.simulation.generated.trials import CPU_S, UNFOUND, Row, Rows, left, try_out

FOLDER = ROOT / "artifacts" / "long" / "generated-mutants"

_folder = click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=FOLDER,
    show_default=True,
    help="Where map and rows are kept.",
)
_size = click.option("--size", default=SIZE, show_default=True, help="Of the sample.")
_seed = click.option("--seed", default=SEED, show_default=True, help="Of the sample.")


@click.group()
def main() -> None:
    """Mutants that are made by rule, and what the simulation finds of them.

    \b
    Example:
      python -m tests.simulation.generated reach
      python -m tests.simulation.generated run --minutes 30
      python -m tests.simulation.generated page
    """


@main.command()
def count() -> None:
    """How many mutants there are, by room and rule."""
    made = Counter((mutant.room, mutant.rule) for mutant in everything())
    for room in ROOMS:
        cells = ", ".join(f"{rule} {made[room, rule]}" for rule in RULES)
        click.echo(f"{room:20} {cells}")
    click.echo(f"{made.total()} mutants")


@main.command()
@_folder
@click.option("--few", is_flag=True, help="Two runs only.")
def reach(folder: Path, few: bool) -> None:
    """Notes which seeds run which statements; takes some minutes."""
    file = folder / "reach.json.gz"
    if file.exists() and not Reach.read(file).stale():
        click.echo(f"{file} is up to date")
        return
    measure(runs(few), click.echo).write(file)


@main.command()
@_folder
@_size
@_seed
@click.option("--minutes", default=0.0, help="Stop after so many minutes; 0: never.")
@click.option("--only", default="", metavar="TEXT", help="Those whose ids have this text in them.")
@click.option(
    "--again", is_flag=True, help="Those that were not found, too, and are not explained away."
)
@click.option("--jobs", default=0, help="Mutants at a time; 0: one a core.")
def run(
    folder: Path, size: int, seed: int, minutes: float, only: str, again: bool, jobs: int
) -> None:
    """Runs the mutants of the sample that have no row yet."""
    known = _reach(folder)
    rows, started = Rows.read(folder / "rows.jsonl"), time.monotonic()
    chosen = [made for made in sample(everything(), size, seed) if only in made.id]
    wanted = left(chosen, rows)
    if again:
        explained = pages.explanations()
        kept = [(made, rows.of(made)) for made in chosen]
        wanted += [
            made
            for made, row in kept
            if row and row["verdict"] in UNFOUND
            if not explained.get(made.id, "").startswith(("equivalent", "harmless"))
        ]

    def one(made: Made) -> Row | None:
        if minutes and time.monotonic() - started > 60 * minutes:
            return None
        return try_out(made, known)

    pool = ThreadPoolExecutor(jobs or os.cpu_count())
    try:
        tried = (done.result() for done in as_completed([pool.submit(one, m) for m in wanted]))
        for number, row in enumerate((row for row in tried if row is not None), 1):
            rows.add(row)
            told = f"{row['verdict']} {row.get('by') or row.get('what') or ''}"
            click.echo(f"{number} of {len(wanted)}: {row['id']}: {told}, {row.get('cpu', 0)} s")
    finally:
        pool.shutdown(cancel_futures=True)  # an error need not wait for all the others
    there = [of for made in chosen if (of := rows.of(made)) is not None]
    click.echo(pages.sentence(there))


@main.command()
@_folder
@_size
@_seed
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / pages.PAGE)
def page(folder: Path, size: int, seed: int, out: Path) -> None:
    """Makes the page of the rows that are there."""
    known, mutants = _reach(folder), everything()
    rows, chosen = Rows.read(folder / "rows.jsonl"), sample(mutants, size, seed)
    reached = sum(bool(known.covering(made)) for made in mutants)
    explained = pages.explanations()
    out.write_text(pages.render(mutants, reached, chosen, rows, explained, CPU_S))
    there = [of for made in chosen if (of := rows.of(made)) is not None]
    click.echo(pages.sentence(there))


@main.command(name="all")
@_folder
@click.option("--few", is_flag=True, help="A map of two runs.")
@click.option("--minutes", default=0.0, help="Run mutants for so many minutes; 0: all of them.")
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / pages.PAGE)
@click.pass_context
def all_of_it(ctx: click.Context, folder: Path, few: bool, minutes: float, out: Path) -> None:
    """The map, the sample, and the page."""
    ctx.invoke(reach, folder=folder, few=few)
    ctx.invoke(run, folder=folder, minutes=minutes)
    ctx.invoke(page, folder=folder, out=out)


def _reach(folder: Path) -> Reach:
    file = folder / "reach.json.gz"
    if not file.exists():
        sys.exit(f"{file} is not there: python -m tests.simulation.generated reach")
    known = Reach.read(file)
    if stale := known.stale():
        sys.exit(f"{stale[0]} has changed since {file} was made: run `reach` again")
    return known


if __name__ == "__main__":
    main()
