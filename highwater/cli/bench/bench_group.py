"""`highwater bench`: speed and memory, compared with Apache Kafka on this machine.

Each row of the table of benchmarks is a command, whose options are the fields of its dataclass.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import click
import trio

from highwater.bench.benchmark import Benchmark
from highwater.bench.everything.comparison import NAMES
from highwater.bench.figures.markdown import section
from highwater.bench.table import BENCHMARKS
from highwater.cli.bench.bench_options import (
    measured_here,
    options_of,
    put_into,
    sides_of,
    write_json,
)


class BenchGroup(click.Group):
    """The benchmarks by name; the rows of `all` are among them, and several of these may follow one
    another."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or self.commands.get("all" * (cmd_name in NAMES))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in self.commands or args[0] not in NAMES:
            return super().resolve_command(ctx, args)
        rows = list(itertools.takewhile(lambda word: not word.startswith("-"), args))
        words = [f"--row={name}" for name in rows]
        return super().resolve_command(ctx, ["all", *words, *args[len(rows) :]])


@click.group(cls=BenchGroup)
def bench() -> None:
    """Measure, against Apache Kafka too.

    Each row of `all` is measured by its name alone, too; `bench all --help` says how.

    \b
    Examples:
      highwater bench all --against apache --page bench.html
      highwater bench one-in-flight produce-16k --against apache
      highwater bench failover --against apache --json failover.json
    """


def command_of(row: Benchmark) -> click.Command:
    """The command that measures a row of the table, and shows and keeps what it finds."""

    def measure(
        folder: Path | None,
        json_file: Path | None,
        markdown_file: Path | None,
        against: str | None = None,
        page_file: Path | None = None,
        **given: Any,
    ) -> None:
        if "json_file" in row.options.__slots__:
            given["json_file"] = json_file  # it is read, too
        try:
            options = row.options(**given)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        with sides_of(folder, against, row.zookeeper) as sides:
            found = trio.run(row.run, options, sides)
        click.echo(found.text())
        write_json(json_file, found.as_json())
        name, title = f"bench {row.name}", ""
        if row.section is not None:
            name, title = row.section(options, against)
        put_into(markdown_file, name, section(title, measured_here(), found.markdown()))
        if page_file is not None and row.page is not None:
            page_file.write_text(row.page(found, measured_here()))
        if row.problem is not None and (problem := row.problem(found)):
            click.echo(problem, err=True)
            raise SystemExit(1)

    examples = "\n".join(f"  highwater bench {example}" for example in row.examples)
    return click.Command(
        row.name,
        callback=measure,
        params=options_of(row),
        help=f"{row.help}\n\n\b\nExamples:\n{examples}",
    )


for benchmark in BENCHMARKS:
    bench.add_command(command_of(benchmark))
