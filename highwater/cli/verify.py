"""`highwater verify RUN`: the verdict on a run's folder, once more or for the first time; and
`highwater verify --contract FILE`: the verdict on a user's own topics."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import cast

import click
from rich.console import Console

from highwater.cli.error_lines import complain
from highwater.cli.places import OutputFile
from highwater.cli.watch_contract import watch_contract
from highwater.verdict import report, runner
from highwater.verdict.by_spark.spark_submit import SparkFailed, SparkMissing
from highwater.verdict.contracts import judge
from highwater.verdict.location import ChecksMissing
from highwater.verdict.plain_table import example_lines, word_lines
from highwater.verdict.report.colour_table import verdict_table
from highwater.verdict.runner import Engine
from highwater.verdict.tables import RunUnreadable


@click.command()
@click.argument(
    "run", required=False, type=click.Path(path_type=Path, exists=True, file_okay=False)
)
@click.option(
    "--engine",
    type=click.Choice(["auto", "spark", "duckdb"]),
    default="auto",
    show_default=True,
    help="auto: Spark where PySpark and Java are there, else DuckDB.",
)
@click.option(
    "--contract",
    type=click.Path(path_type=Path),
    help="What your own topics must keep (docs/contract.md): checks them instead of a run.",
)
@click.option(
    "--bootstrap",
    help="Let Spark read the topics from this cluster first; with --contract, where they are."
    "  [default: no new reading]",
)
@click.option(
    "--command-config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="With --contract: security settings in a file, as Kafka's own tools take them.",
)
@click.option("--master", default="local[2]", show_default=True, help="Spark's master.")
@click.option(
    "--examples", type=int, help="Examples kept for each check.  [default: 5; of a contract 10]"
)
@click.option("--json", "json_file", type=OutputFile(), help="Write the verdict there too.")
@click.option(
    "--watch", is_flag=True, help="With --contract: go on reading, and name offenders as they come."
)
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    help="With --watch: the folder from which it goes on.  [default: FILE.watch]",
)
@click.option(
    "--unseen",
    type=float,
    help="With --watch: so many seconds late, an output counts as missing.  [default: 60]",
)
@click.option("--seconds", type=float, help="With --watch: end after so many.")
@click.option("--go-on", is_flag=True, help="With --watch: do not end at the first offender.")
@click.option("--no-report", is_flag=True, help="Leave report.html as it is.")
def verify(
    run: Path | None,
    engine: str,
    contract: Path | None,
    bootstrap: str | None,
    command_config: Path | None,
    master: str,
    examples: int | None,
    json_file: Path | None,
    watch: bool,
    state: Path | None,
    unseen: float | None,
    seconds: float | None,
    go_on: bool,
    no_report: bool,
) -> None:
    """Check the folder of a run: verdict.json, report.html, and a table; or your own topics by a
    contract.

    Exit code: 0 valid, 1 invalid, 2 void or unknown, 3 where RUN or the topics cannot be checked.

    \b
    Examples:
      highwater verify runs/7
      highwater verify runs/7 --engine duckdb --json verdict.json
      highwater verify --contract orders.yaml --bootstrap 127.0.0.1:9092
      highwater verify --contract orders.yaml --bootstrap 127.0.0.1:9092 --watch
    """
    if watch:
        more = {"--unseen": unseen, "--seconds": seconds, "--go-on": go_on}
        asked = (contract, run, bootstrap, command_config, master, state)
        raise SystemExit(watch_contract(*asked, more))
    if contract is not None:
        if engine == "spark":
            raise click.UsageError("Spark checks a contract by: spark-submit spark/contract.py")
        if (run is None) == (bootstrap is None):
            raise click.UsageError(
                "--contract needs --bootstrap HOST:PORT, or RUN with its records"
            )
        from highwater.cli.verify_contract import verify_contract

        how = (bootstrap, command_config, examples or judge.EXAMPLES, json_file)
        raise SystemExit(verify_contract(contract, run, *how))
    if run is None:
        raise click.UsageError("name a run's folder, or a contract by --contract")
    console = Console()
    try:
        verdict = runner.run(
            run,
            cast(Engine, engine),
            lambda line: click.echo(line, err=True),
            ingest=bootstrap is not None,
            bootstrap=bootstrap,
            master=master,
            examples=examples or 5,
        )
        if not no_report:
            report.write(run)
    except (RunUnreadable, SparkMissing, SparkFailed, ChecksMissing) as error:
        complain(str(error))
        raise SystemExit(3) from None
    if json_file is not None:
        json_file.write_text(json.dumps(asdict(verdict), indent=1) + "\n", encoding="utf-8")
    console.print(f"{verdict.headline}\n", markup=False, highlight=False, soft_wrap=True)
    console.print(verdict_table(verdict))
    for line in [*word_lines(verdict), *example_lines(verdict), *verdict.notes]:
        console.print(line, markup=False, highlight=False)
    raise SystemExit(verdict.exit_code)
