"""`highwater bench steps`: the steps that keep a broker's loop."""

from __future__ import annotations

from pathlib import Path

import click

from highwater.cli.bench.bench_options import dir_option, json_option, say, working, write_json

_LOADS = (
    "batches-16", "batches-128", "cold", "metadata", "creation", "failover", "group", "cleaner",
    "recovery",
)  # fmt: skip


@click.command()
@click.option(
    "--load",
    "loads",
    type=click.Choice(_LOADS),
    multiple=True,
    help="May be given more than once.  [default: all, one after the other]",
)
@click.option("--seconds", default=8.0, show_default=True, help="About how long each lasts.")
@click.option("--partitions", default=1000, show_default=True, type=click.IntRange(1, 5000))
@click.option("--members", default=200, show_default=True, type=click.IntRange(1, 1000))
@click.option("--above-ms", default=10.0, show_default=True, help="Shorter steps are not listed.")
@json_option
@dir_option
def steps(
    loads: tuple[str, ...],
    seconds: float,
    partitions: int,
    members: int,
    above_ms: float,
    json_file: Path | None,
    folder: Path | None,
) -> None:
    """The steps that keep a broker's loop, by name; exit code 1 where one took more than 20 ms.

    \b
    Example:
      highwater bench steps --json steps.json
      highwater bench steps --load failover --load group
    """
    import trio

    from highwater.bench import longest_steps as bench
    from highwater.bench.loads.steps_loads import Load

    amounts = Load(seconds=seconds, partitions=partitions, members=members)
    plan = bench.Plan(loads or _LOADS, amounts, above_ms)
    with working(folder) as work:
        found = trio.run(bench.run, plan, work, say)
        click.echo(bench.table(plan, found))
        write_json(json_file, bench.as_json(found))
    too_long = bench.too_long(found)
    if too_long:
        click.echo(f"longer than 20 ms: {', '.join(too_long)}", err=True)
        raise SystemExit(1)
