"""`highwater bench rebalance`: the time that a consumer group needs to recover."""

from __future__ import annotations

from pathlib import Path

import click

from highwater.cli.bench_options import compare, comparing


@click.command()
@click.option("--members", default=8, show_default=True, type=click.IntRange(3, 50))
@click.option("--partitions", default=24, show_default=True, type=click.IntRange(1, 500))
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@comparing
def rebalance(
    members: int,
    partitions: int,
    rounds: int,
    against: str | None,
    json_file: Path | None,
    folder: Path | None,
) -> None:
    """How long a group needs after a leave, a crash, and its coordinator's death.

    \b
    Example:
      highwater bench rebalance --members 8 --against apache
    """
    from highwater.bench.rebalance import Plan, run

    plan = Plan(members, partitions, rounds)
    compare(run, plan, against=against, json_file=json_file, folder=folder)
