"""`highwater bench sim`: the speed of the simulation, and of the pure machines alone."""

from __future__ import annotations

from pathlib import Path

import click

from highwater.cli.bench_options import json_option, say, show_rows
from highwater.cli.sim import SeedRange


@click.command()
@click.option("--seeds", type=SeedRange(), default="0..9", show_default=True, metavar="A..B")
@click.option(
    "--rounds",
    default=3,
    show_default=True,
    type=click.IntRange(1),
    help="Of each seed and machine; the best of a seed counts.",
)
@click.option("--seconds", default=30.0, show_default=True, help="Virtual, of load and faults.")
@json_option
def sim(seeds: range, rounds: int, seconds: float, json_file: Path | None) -> None:
    """Virtual seconds a second of one core, and steps a second of the pure machines.

    \b
    Example:
      highwater bench sim --json sim.json
    """
    from highwater.bench.simulation import Broken, Plan, run

    plan = Plan(seeds, rounds, seconds)
    try:
        rows = run(plan, say)
    except Broken as broken:
        raise click.ClickException(
            f"{broken}; `highwater sim --replay` shows it, and its speed can wait"
        ) from broken
    show_rows(rows, "-", json_file)
