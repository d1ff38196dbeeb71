"""`highwater bench flat`: whether a request's cost grows with what a broker holds."""

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
from highwater.cli.places import OutputFile


@click.command()
@click.option("--quick", is_flag=True, help="Tiny sizes: a test of the command, no measurement.")
@click.option("--page", "page_file", type=OutputFile(), help="Write a page with plots, too.")
@markdown_option
@json_option
@dir_option
def flat(
    quick: bool,
    page_file: Path | None,
    markdown_file: Path | None,
    json_file: Path | None,
    folder: Path | None,
) -> None:
    """Measure a request with 10 to 5,000 partitions, 1 to 5,000 connections, up to 10 GiB of log.

    One broker, RF 1; the disk needs 11 GiB.  Some ten minutes.

    \b
    Example:
      highwater bench flat --page flat.html --markdown docs/scaling.md
    """
    import trio

    from highwater.bench import flat as bench
    from highwater.bench.everything.all_rows import commit
    from highwater.bench.figures.markdown import put

    plan = bench.QUICK if quick else bench.Plan()
    with working(folder) as work:
        axes = trio.run(bench.run, plan, work, say)
    click.echo(bench.text(axes))
    write_json(json_file, bench.as_json(axes))
    where = f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, commit {commit()}"
    if page_file is not None:
        page_file.write_text(bench.html(axes, f"highwater bench flat, {where}."))
    if markdown_file is not None:
        text = f"`{as_typed()}`, {where}; medians.\n\n{bench.markdown(axes)}"
        before = markdown_file.read_text() if markdown_file.exists() else ""
        markdown_file.write_text(put(before, "bench flat", text))
