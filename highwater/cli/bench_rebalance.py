"""`highwater bench rebalance`: how long a consumer group needs to find itself again."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option("--members", default=8, show_default=True, type=click.IntRange(3, 50))
@click.option("--partitions", default=24, show_default=True, type=click.IntRange(1, 500))
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option(
    "--against",
    type=click.Choice(["apache"]),
    help="Measure this in turn; `apache` is fetched by Maven the first time.",
)
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the brokers' data goes while it runs.  [default: a temporary folder]",
)
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
    import trio

    from highwater.chaos.bench.rebalance import Plan, run
    from highwater.cli.bench import show_rows, two_sides

    plan = Plan(members, partitions, rounds)
    with two_sides(against, folder) as sides:
        rows = trio.run(run, plan, sides, lambda line: click.echo(line, err=True))
        show_rows(rows, sides, json_file)
