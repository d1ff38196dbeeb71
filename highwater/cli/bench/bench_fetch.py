"""`highwater bench fetch-wait`: the cost of fetch.min.bytes where all data is there."""

from __future__ import annotations

from pathlib import Path

import click

from highwater.cli.bench.bench_options import Page, compare, comparing, markdown_option, write_json
from highwater.cli.error_lines import clear_errors


@click.command("fetch-wait")
@click.option(
    "--client",
    "clients",
    type=click.Choice(["segments", "java", "kcat", "librdkafka"]),
    multiple=True,
    help="May be given more than once.  [default: all, some ten minutes]",
)
@click.option(
    "--min-mib",
    "min_mib",
    type=click.IntRange(1, 50),
    multiple=True,
    help="fetch.min.bytes; may be given more than once.  [default: 1, 2, 5, 10]",
)
@click.option("--records", default=15_000, show_default=True, type=click.IntRange(1), help="1 KB.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1))
@markdown_option
@comparing
def fetch_wait(
    clients: tuple[str, ...],
    min_mib: tuple[int, ...],
    records: int,
    rounds: int,
    against: str | None,
    json_file: Path | None,
    folder: Path | None,
    markdown_file: Path | None,
) -> None:
    """Read a partition with fetch.min.bytes around max.partition.fetch.bytes.

    A table for each client; `segments` reads a log of many small ones by hand.  Exit code 1 where
    Highwater takes more than 1.5 times as long as the other, and more than 50 ms longer.

    \b
    Examples:
      highwater bench fetch-wait --client librdkafka --against apache
      highwater bench fetch-wait --against apache --markdown docs/bench.md
    """
    from highwater.bench.fetch_wait import CLIENTS, Plan, kcat_program, run, too_slow

    if "kcat" in (clients or CLIENTS):
        with clear_errors():
            kcat_program()  # fail now, not minutes later
    rows = []
    for client in clients or CLIENTS:
        plan = Plan(client, min_mib or (1, 2, 5, 10), records, rounds)
        title = f"fetch.min.bytes: {client}"
        name = f"bench fetch-wait {client}"
        page = Page(markdown_file, name, title) if markdown_file else None
        rows += compare(run, plan, against=against, json_file=None, folder=folder, page=page)
    write_json(json_file, {"rows": [row.as_json() for row in rows]})
    slow = too_slow(rows)
    if slow:
        click.echo(f"too slow: {'; '.join(slow)}", err=True)
        raise SystemExit(1)
