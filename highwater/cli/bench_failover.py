"""`highwater bench failover` and `highwater bench control`: what clients see of a broker's death,
and what many partitions cost the controller."""

from __future__ import annotations

from pathlib import Path

import click

_against = click.option(
    "--against",
    type=click.Choice(["apache"]),
    help="Measure this in turn; `apache` is fetched by Maven the first time.",
)
_json = click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False))
_dir = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the brokers' data goes while it runs.  [default: a temporary folder]",
)


@click.command()
@click.option("--kills", default=30, show_default=True, type=click.IntRange(1), help="Of ours.")
@click.option(
    "--their-kills", default=5, show_default=True, type=click.IntRange(1), help="Of the other."
)
@click.option(
    "--client",
    "clients",
    type=click.Choice(["kafka-python", "librdkafka", "java"]),
    multiple=True,
    help="May be given more than once; all write at the same time.  [default: all three]",
)
@click.option("--swap", is_flag=True, help="Move the leader, and kill nobody.")
@click.option("--no-controller", is_flag=True, help="Leave out the kills of the controller.")
@_against
@_json
@_dir
def failover(
    kills: int,
    their_kills: int,
    clients: tuple[str, ...],
    swap: bool,
    no_controller: bool,
    against: str | None,
    json_file: Path | None,
    folder: Path | None,
) -> None:
    """Kill leaders under load: how long until the next write is acknowledged.

    \b
    Examples:
      highwater bench failover --against apache --json failover.json
      highwater bench failover --swap --kills 10
    """
    import trio

    from highwater.chaos.bench.failover import CONTROLLER, LEADER, SWAP, Plan, run
    from highwater.chaos.bench.writes import CLIENTS
    from highwater.cli.bench import show_rows, two_sides

    kinds = (SWAP,) if swap else (LEADER,) if no_controller else (LEADER, CONTROLLER)
    plan = Plan(kills, their_kills, clients or CLIENTS, kinds)
    with two_sides(against, folder) as sides:
        rows = trio.run(run, plan, sides, lambda line: click.echo(line, err=True))
        show_rows(rows, sides, json_file)


@click.command()
@click.option("--create", default=1000, show_default=True, type=click.IntRange(1, 20_000))
@click.option(
    "--failover",
    "in_all",
    default=3000,
    show_default=True,
    type=click.IntRange(0, 20_000),
    help="Partitions there are when the controller is killed.",
)
@click.option("--replicas", default=3, show_default=True, type=click.IntRange(1, 3))
@click.option("--rounds", default=1, show_default=True, type=click.IntRange(1))
@_against
@_json
@_dir
def control(
    create: int,
    in_all: int,
    replicas: int,
    rounds: int,
    against: str | None,
    json_file: Path | None,
    folder: Path | None,
) -> None:
    """Create many partitions in one request, then kill the controller: time and CPU.

    \b
    Example:
      highwater bench control --against apache --json control.json
    """
    import trio

    from highwater.chaos.bench.control import Plan, run
    from highwater.cli.bench import show_rows, two_sides

    plan = Plan(create, in_all, replicas, rounds=rounds)
    with two_sides(against, folder) as sides:
        rows = trio.run(run, plan, sides, lambda line: click.echo(line, err=True))
        show_rows(rows, sides, json_file)
