"""`highwater bench all`: the whole comparison, row by row."""

from __future__ import annotations

from pathlib import Path

import click
import trio

from highwater.bench.everything import page
from highwater.bench.everything.all_rows import VALIDATION, Kept, about, run
from highwater.bench.everything.turns import DEFAULT, FULL, QUICK
from highwater.bench.figures.markdown import section
from highwater.bench.table import MEASURES, NAMES
from highwater.cli.bench.bench_options import (
    against_option,
    dir_option,
    markdown_option,
    measured_here,
    page_option,
    put_into,
    sides_of,
)

MINUTES = 90.0


def _names(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> object:
    for name in given:
        if name not in NAMES:
            raise click.BadParameter(f"{name} is no row; the rows are {', '.join(NAMES)}")
    return given


@click.command("all")
@click.option(
    "--row",
    "rows",
    multiple=True,
    metavar="NAME",
    callback=_names,
    help="Measure this row alone, as `bench NAME` does; may be given more than once."
    "  [default: all]",
)
@click.option("--full", is_flag=True, help="30 kills, and the restart of 10 GiB: some hours more.")
@click.option("--quick", is_flag=True, help="Tiny sizes: a test of the command, no measurement.")
@click.option(
    "--minutes",
    default=MINUTES,
    show_default=True,
    type=click.FloatRange(min=0),
    help="No row begins after that.",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("bench-all.json"),
    show_default=True,
    help="Each row's figures, as soon as they are there: the same command again goes on, also at a"
    " later commit, which the table tells.",
)
@click.option(
    "--validation",
    type=click.Choice(["full", "headers"]),
    default="full",
    show_default=True,
    help="What Highwater checks of a produced batch (highwater.produce.validation).",
)
@click.option("--again", is_flag=True, help="Measure again the rows that the file has already.")
def everything(
    against: str | None,
    rows: tuple[str, ...],
    full: bool,
    quick: bool,
    minutes: float,
    json_file: Path,
    validation: str,
    again: bool,
    page_file: Path | None,
    markdown_file: Path | None,
    folder: Path | None,
) -> None:
    """Measure everything, in turn with Apache Kafka: one table, with what each row should reach.

    Exit code 1 where a row failed.

    \b
    Examples:
      highwater bench all --against apache --page bench.html
      highwater bench one-in-flight produce-16k --against apache
    """
    if full and quick:
        raise click.UsageError("--full and --quick exclude each other")
    size = "full" if full else "quick" if quick else "default"
    plan = {"full": FULL, "quick": QUICK, "default": DEFAULT}[size]
    with sides_of(folder, against, properties={VALIDATION: validation}) as sides:
        kept = Kept.load(json_file, about(size, sides.sides))
        wanted = [m for m in MEASURES if not rows or m.name in rows]
        for measure in wanted if again else ():
            kept.results.pop(measure.name, None)

        async def measured() -> None:
            everything = full or quick
            await run(wanted, plan, sides, kept, full=everything, minutes=minutes)

        try:
            trio.run(measured)
        finally:
            theirs = sides.theirs or "nothing"
            if page_file is not None:
                page_file.write_text(page.page(MEASURES, kept.results, kept.about, theirs))
            facts = (
                f"{measured_here()}, {kept.about['memory_gib']} GiB, Python {kept.about['python']};"
                f" size {size}:\nmedians (least to greatest of how many), and the ratio, above 1"
                " where Highwater is ahead"
            )
            table = page.markdown(MEASURES, kept.results, theirs)
            put_into(markdown_file, "bench all", "#" + section("The table", facts, table))
        click.echo(page.text(MEASURES if not rows else wanted, kept.results))
        failed = [r.name for r in kept.results.values() if r.reason.startswith("failed")]
        if failed:
            raise click.ClickException(f"failed: {', '.join(failed)}")


everything.params[:0] = [against_option(("apache",))]
everything.params += [page_option(), markdown_option(), dir_option()]
