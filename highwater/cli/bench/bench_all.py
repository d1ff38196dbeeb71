"""`highwater bench all`: the whole comparison, row by row."""

from __future__ import annotations

from pathlib import Path

import click

from highwater.cli.bench.bench_options import dir_option, say, working
from highwater.cli.error_lines import clear_errors

MINUTES = 90.0


def _names(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> object:
    from highwater.bench.everything.table import NAMES

    for name in given:
        if name not in NAMES:
            raise click.BadParameter(f"{name} is no row; the rows are {', '.join(NAMES)}")
    return given


@click.command("all")
@click.option(
    "--against",
    type=click.Choice(["apache"]),
    help="Measure this in turn; `apache` is fetched by Maven the first time.",
)
@click.option(
    "--row",
    "rows",
    multiple=True,
    metavar="NAME",
    callback=_names,
    help="Measure this row alone; may be given more than once.  [default: all]",
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
@click.option(
    "--page",
    "page_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a page with table and plots, too.",
)
@click.option(
    "--markdown",
    "markdown_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Put the table into this page, in place of what this command put there before.",
)
@dir_option
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
      highwater bench all --against apache --row one-in-flight --row produce-16k
    """
    import trio

    from highwater.bench.everything import page
    from highwater.bench.everything.all_rows import VALIDATION, Kept, about, run
    from highwater.bench.everything.table import MEASURES
    from highwater.bench.everything.turns import DEFAULT, FULL, QUICK
    from highwater.bench.figures.sides import Side
    from highwater.cluster.processes import apache
    from highwater.cluster.processes.programs import Highwater

    if full and quick:
        raise click.UsageError("--full and --quick exclude each other")
    size = "full" if full else "quick" if quick else "default"
    plan = {"full": FULL, "quick": QUICK, "default": DEFAULT}[size]
    with clear_errors(), working(folder) as work:
        sides = [Side("Highwater", Highwater(), work / "ours", {VALIDATION: validation})]
        if against == "apache":
            sides.append(Side(f"Apache Kafka {apache.VERSION}", apache.program(), work / "theirs"))
        kept = Kept.load(json_file, about(size, sides))
        wanted = [m for m in MEASURES if not rows or m.name in rows]
        for measure in wanted if again else ():
            kept.results.pop(measure.name, None)

        async def measured() -> None:
            everything = full or quick
            await run(wanted, plan, sides, kept, full=everything, minutes=minutes, progress=say)

        try:
            trio.run(measured)
        finally:
            theirs = sides[-1].name if len(sides) > 1 else "nothing"
            if page_file is not None:
                page_file.write_text(page.page(MEASURES, kept.results, kept.about, theirs))
            if markdown_file is not None:
                _into(markdown_file, page.markdown(MEASURES, kept.results, theirs), kept.about)
        click.echo(page.text(MEASURES if not rows else wanted, kept.results))
        failed = [r.name for r in kept.results.values() if r.reason.startswith("failed")]
        if failed:
            raise click.ClickException(f"failed: {', '.join(failed)}")


def _into(file: Path, table: str, about: dict[str, object]) -> None:
    import time

    from highwater.bench.figures.markdown import put

    facts = (
        f"{about['cores']} cores, {about['memory_gib']} GiB, Python {about['python']}, "
        f"commit {about['commit']}"
    )
    text = (
        "### The table\n\n`highwater bench all --against apache`, "
        f"{time.strftime('%Y-%m-%d')}, {facts}; size {about['size']}:\nmedians "
        f"(least to greatest), and the ratio, above 1 where Highwater is ahead.\n\n{table}"
    )
    before = file.read_text() if file.exists() else ""
    file.write_text(put(before, "bench all", text))
