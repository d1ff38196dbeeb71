"""`highwater bench starts`."""

from __future__ import annotations

from pathlib import Path

import click

from highwater.cli.bench.bench_options import Page, compare, comparing, markdown_option


@click.command()
@click.option("--rounds", default=20, show_default=True, type=click.IntRange(1))
@click.option(
    "--seconds",
    default=60.0,
    show_default=True,
    type=click.FloatRange(1),
    help="Of load, before the memory is read.",
)
@markdown_option
@comparing
def starts(
    rounds: int,
    seconds: float,
    against: str | None,
    json_file: Path | None,
    folder: Path | None,
    markdown_file: Path | None,
) -> None:
    """Start clusters from nothing: until they serve, until a test's first record, and their memory.

    \b
    Example:
      highwater bench starts --against zookeeper --markdown docs/bench.md
    """
    from highwater.bench.starts import Plan, run

    if against == "apache":
        raise click.UsageError("`bench all` starts Apache Kafka: use --against zookeeper here")
    page = Page(markdown_file, "bench starts", "Starts") if markdown_file else None
    plan = Plan(rounds, seconds)
    compare(
        run,
        plan,
        against=against,
        json_file=json_file,
        folder=folder,
        page=page,
        zookeeper="embedded",
    )
