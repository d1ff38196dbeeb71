"""`highwater bench failover` and `highwater bench control`: clients' view of a broker's death, and
the cost of many partitions to the controller."""

from __future__ import annotations

from pathlib import Path

import click

from highwater.cli.bench.bench_options import Page, compare, comparing, markdown_option
from highwater.cluster.client_files import PROTOCOLS


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
@click.option("--swap", is_flag=True, help="Move the leader, and kill no broker.")
@click.option(
    "--retry-backoff-ms",
    "backoff_ms",
    type=click.IntRange(0),
    help="The clients'.  [default: their own defaults, 100]",
)
@click.option(
    "--security",
    type=click.Choice(PROTOCOLS),
    default="plaintext",
    show_default=True,
    help="What clients speak, and brokers among themselves.",
)
@click.option("--no-controller", is_flag=True, help="Leave out the kills of the controller.")
@markdown_option
@comparing
def failover(
    kills: int,
    their_kills: int,
    clients: tuple[str, ...],
    swap: bool,
    backoff_ms: int | None,
    security: str,
    no_controller: bool,
    against: str | None,
    json_file: Path | None,
    folder: Path | None,
    markdown_file: Path | None,
) -> None:
    """Kill leaders under load: how long until the next write is acknowledged.

    \b
    Examples:
      highwater bench failover --against apache --json failover.json
      highwater bench failover --swap --kills 10 --retry-backoff-ms 10
      highwater bench failover --security sasl_ssl --kills 10
      highwater bench failover --against apache --markdown docs/failover.md
    """
    from highwater.bench.failover import CONTROLLER, LEADER, SWAP, Plan, run
    from highwater.bench.loads.writes import CLIENTS

    kinds = (SWAP,) if swap else (LEADER,) if no_controller else (LEADER, CONTROLLER)
    plan = Plan(
        kills, their_kills, clients or CLIENTS, kinds, backoff_ms=backoff_ms, security=security
    )
    name, title = ("swap", "A leader is moved") if swap else ("failover", "A leader is killed")
    if backoff_ms is not None:
        name, title = f"{name} with retry.backoff.ms", f"{title}, retry.backoff.ms={backoff_ms}"
    if security != "plaintext":
        name, title = f"{name} by {security}", f"{title}, {security.upper()}"
    page = Page(markdown_file, f"bench {name}", title) if markdown_file else None
    compare(run, plan, against=against, json_file=json_file, folder=folder, page=page)


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
@markdown_option
@comparing
def control(
    create: int,
    in_all: int,
    replicas: int,
    rounds: int,
    against: str | None,
    json_file: Path | None,
    folder: Path | None,
    markdown_file: Path | None,
) -> None:
    """Create many partitions in one request, then kill the controller: time and CPU.

    \b
    Examples:
      highwater bench control --against apache --json control.json
      highwater bench control --against apache --markdown docs/failover.md
    """
    from highwater.bench.control import Plan, run

    plan = Plan(create, in_all, replicas, rounds=rounds)
    name, title = "bench control", "Many partitions"
    if against == "zookeeper":
        name, title = f"{name} zookeeper", f"{title}, by ZooKeeper"
    page = Page(markdown_file, name, title) if markdown_file else None
    compare(run, plan, against=against, json_file=json_file, folder=folder, page=page)
