"""`highwater verify RUN`: the verdict on a run's folder, once more or for the first time."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import cast

import click
from rich.console import Console

from highwater.verdict import report, runner
from highwater.verdict.location import ChecksMissing
from highwater.verdict.plain_table import example_lines
from highwater.verdict.report.colour_table import verdict_table
from highwater.verdict.runner import Engine
from highwater.verdict.spark_submit import SparkFailed, SparkMissing
from highwater.verdict.tables import RunUnreadable


@click.command()
@click.argument("run", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--engine",
    type=click.Choice(["auto", "spark", "duckdb"]),
    default="auto",
    show_default=True,
    help="auto: Spark where PySpark and Java are there, else DuckDB.",
)
@click.option(
    "--bootstrap",
    help="Let Spark read the topics from this cluster first.  [default: no new reading]",
)
@click.option("--master", default="local[2]", show_default=True, help="Spark's master.")
@click.option("--examples", default=5, show_default=True, help="Examples kept for each check.")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Write the verdict there too."
)
@click.option("--no-report", is_flag=True, help="Leave report.html as it is.")
def verify(
    run: Path,
    engine: str,
    bootstrap: str | None,
    master: str,
    examples: int,
    json_file: Path | None,
    no_report: bool,
) -> None:
    """Check the folder of a run: verdict.json, report.html, and a table.

    Exit code: 0 valid, 1 invalid, 2 void or unknown, 3 where RUN cannot be checked.

    \b
    Examples:
      highwater verify runs/7
      highwater verify runs/7 --engine duckdb --json verdict.json
    """
    console = Console()
    try:
        verdict = runner.run(
            run,
            cast(Engine, engine),
            lambda line: click.echo(line, err=True),
            ingest=bootstrap is not None,
            bootstrap=bootstrap,
            master=master,
            examples=examples,
        )
        if not no_report:
            report.write(run)
    except (RunUnreadable, SparkMissing, SparkFailed, ChecksMissing) as error:
        click.echo(f"highwater: {error}", err=True)
        raise SystemExit(3) from None
    if json_file is not None:
        json_file.write_text(json.dumps(asdict(verdict), indent=1) + "\n", encoding="utf-8")
    console.print(f"{verdict.headline}\n", markup=False, highlight=False, soft_wrap=True)
    console.print(verdict_table(verdict))
    for line in [*example_lines(verdict), *verdict.notes]:
        console.print(line, markup=False, highlight=False)
    raise SystemExit(verdict.exit_code)
