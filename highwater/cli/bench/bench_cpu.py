"""`highwater bench cpu`: where the brokers' CPU time goes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from highwater.cli.bench.bench_options import (
    as_typed,
    dir_option,
    json_option,
    markdown_option,
    say,
    working,
    write_json,
)

LOADS = ("one", "16k", "128k", "1m", "idempotent", "read")


@click.command()
@click.option(
    "--load",
    "loads",
    type=click.Choice(LOADS),
    multiple=True,
    help="May be given more than once.  [default: all of them]",
)
@click.option(
    "--seconds", default=8.0, show_default=True, type=click.FloatRange(1), help="Of each load."
)
@click.option("--brokers", default=3, show_default=True, type=click.IntRange(1, 9))
@markdown_option
@json_option
@dir_option
def cpu(
    loads: tuple[str, ...],
    seconds: float,
    brokers: int,
    markdown_file: Path | None,
    json_file: Path | None,
    folder: Path | None,
) -> None:
    """Show where the brokers' CPU time of a batch goes: receive and send, parse, write, replicate.

    Needs py-spy (pip install 'path/to/highwater[profile]'), and the right to look at processes.

    \b
    Examples:
      highwater bench cpu --load one --load 128k
      highwater bench cpu --brokers 1
      highwater bench cpu --markdown docs/scaling.md
    """
    import trio

    from highwater.bench import cpu_parts
    from highwater.bench.everything.all_rows import commit
    from highwater.bench.figures.markdown import put
    from highwater.bench.figures.sides import Side
    from highwater.cluster.processes.programs import Highwater

    plan = cpu_parts.Plan(loads or LOADS, seconds, max(1, int(seconds * 500)), brokers)
    with working(folder) as work:
        side = Side("Highwater", Highwater(), work / "ours")
        found = trio.run(cpu_parts.run, plan, side, say)
    shown = cpu_parts.table(found, brokers)
    click.echo(f"{shown}\n{cpu_parts.hottest(found)}")
    write_json(json_file, {"loads": [f.as_json() for f in found]})
    if markdown_file is not None:
        where = f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, commit {commit()}"
        alone = f" --brokers {brokers}" if brokers != 3 else ""
        text = f"`{as_typed()}`, {where}.\n\n{shown}"
        before = markdown_file.read_text() if markdown_file.exists() else ""
        markdown_file.write_text(put(before, f"bench cpu{alone}", text))
