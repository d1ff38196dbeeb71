"""`highwater bench control-plane`, `connections`, `overload`, `purgatory`, `steps`: the request
path.
"""

from __future__ import annotations

from pathlib import Path

import click

from highwater.cli.bench_options import dir_option, json_option, say, working, write_json
from highwater.cli.bench_steps import steps


@click.command("control-plane")
@click.option("--connections", default=600, show_default=True, type=click.IntRange(510))
@click.option("--batch-kib", default=1024, show_default=True, type=click.IntRange(1, 1024))
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1))
@click.option(
    "--arm",
    "arms",
    type=click.Choice(["separate", "shared"]),
    multiple=True,
    help="May be given more than once.  [default: both]",
)
@click.option(
    "--plot", "plot_file", type=click.Path(path_type=Path, dir_okay=False), help="An SVG file."
)
@json_option
@dir_option
def control_plane(
    connections: int,
    batch_kib: int,
    rounds: int,
    arms: tuple[str, ...],
    plot_file: Path | None,
    json_file: Path | None,
    folder: Path | None,
) -> None:
    """A full request queue: how long until LeaderAndIsr and a topic's deletion take effect.

    \b
    Example:
      highwater bench control-plane --plot control-plane.svg --json control-plane.json
    """
    import trio

    from highwater.bench import control_plane as bench

    names = {"separate": bench.SEPARATE, "shared": bench.SHARED}
    chosen = tuple(names[arm] for arm in arms) or bench.ARMS
    plan = bench.Plan(connections, batch_kib * 1024, rounds, chosen)
    with working(folder) as work:
        found = trio.run(bench.run, plan, work, say)
        click.echo(bench.table(found))
        apart = bench.times_apart(found)
        if apart is not None:
            click.echo(f"shared and separate are {apart:.1f} times apart at p99")
        write_json(json_file, {arm: f.as_json() for arm, f in found.items()})
        if plot_file is not None:
            plot_file.write_text(bench.plot(found))


@click.command()
@click.option("--idle", default=4900, show_default=True, type=click.IntRange(1))
@click.option("--busy", default=100, show_default=True, type=click.IntRange(1))
@click.option("--rate", default=500.0, show_default=True, help="Requests a second in all.")
@click.option("--seconds", default=20.0, show_default=True, help="Measured time of each load.")
@json_option
@dir_option
def connections(
    idle: int, busy: int, rate: float, seconds: float, json_file: Path | None, folder: Path | None
) -> None:
    """Thousands of idle connections: the memory of one, and what they cost the busy ones.

    \b
    Example:
      highwater bench connections --json connections.json
    """
    import trio

    from highwater.bench.connections import Plan, run, table

    plan = Plan(idle=idle, busy=busy, rate=rate, seconds=seconds)
    with working(folder) as work:
        found = trio.run(run, plan, work, say)
        click.echo(table(found))
        write_json(json_file, found.as_json())


@click.command()
@click.option("--seconds", default=30.0, show_default=True, help="The overload lasts so long.")
@click.option("--minutes", type=float, help="Instead of --seconds.")
@click.option("--times", default=3.0, show_default=True, help="Of what the broker can serve.")
@click.option("--bound-mib", default=128, show_default=True, help="queued.max.request.bytes")
@json_option
@dir_option
def overload(
    seconds: float,
    minutes: float | None,
    times: float,
    bound_mib: int,
    json_file: Path | None,
    folder: Path | None,
) -> None:
    """More than a broker can serve; exit code 1 where memory, data or service do not hold.

    \b
    Example:
      highwater bench overload --minutes 10 --json overload.json
    """
    import trio

    from highwater.bench.overload import Plan, run, table

    lasts = seconds if minutes is None else minutes * 60
    plan = Plan(seconds=lasts, times=times, bound_mib=bound_mib)
    with working(folder) as work:
        found = trio.run(run, plan, work, say)
        click.echo(table(found))
        write_json(json_file, found.as_json())
    if not found.holds:
        raise SystemExit(1)


@click.command()
@click.option(
    "--pending",
    "sizes",
    type=click.IntRange(1000),
    multiple=True,
    help="May be given more than once.  [default: 1000, 10000, 100000, 1000000]",
)
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@json_option
def purgatory(sizes: tuple[int, ...], rounds: int, json_file: Path | None) -> None:
    """A million delayed operations: the cost of inserting, completing and expiring one.

    \b
    Example:
      highwater bench purgatory --json purgatory.json
    """
    from highwater.bench.purgatory import SIZES, run, table

    found = run(sizes or SIZES, rounds, say)
    click.echo(table(found))
    write_json(json_file, [f.as_json() for f in found])


COMMANDS = (control_plane, connections, overload, purgatory, steps)
