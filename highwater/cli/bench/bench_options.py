"""The common part of the benchmarks' commands: options, the two sides, and the output of rows."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from highwater.cli.error_lines import clear_errors
from highwater.cli.places import OutputFile, OutputFolder

if TYPE_CHECKING:
    from highwater.bench.figures.rows import Row
    from highwater.bench.figures.sides import Progress, Side

F = TypeVar("F", bound=Callable[..., Any])
P = TypeVar("P")

json_option = click.option(
    "--json",
    "json_file",
    type=OutputFile(),
    help="Write the figures there too.",
)
dir_option = click.option(
    "--dir",
    "folder",
    type=OutputFolder(),
    help="Where the brokers' data goes while it runs.  [default: a temporary folder]",
)
_against_option = click.option(
    "--against",
    type=click.Choice(["apache", "zookeeper"]),
    help="Measure this in turn.  `apache` is fetched by Maven the first time; `zookeeper` is"
    " Highwater on ZooKeeper's own server, and Highwater itself then has the embedded one.",
)


markdown_option = click.option(
    "--markdown",
    "markdown_file",
    type=OutputFile(),
    help="Put the table into this page, in place of what this command put there before.",
)


def comparing(function: F) -> F:
    """The options of a benchmark that measures two sides: --against, --json, --dir."""
    return _against_option(json_option(dir_option(function)))


def compare(
    run: Callable[[P, Sequence[Side], Progress], Awaitable[list[Row]]],
    plan: P,
    *,
    against: str | None,
    json_file: Path | None,
    folder: Path | None,
    page: Page | None = None,
    zookeeper: str = "java",
) -> list[Row]:
    """Runs a plan on Highwater and on the other side, and shows its rows.

    `zookeeper`: Highwater's, where it is not what is compared."""
    import trio

    from highwater.bench.figures.sides import Side
    from highwater.cluster.processes import apache
    from highwater.cluster.processes.programs import Highwater

    with working(folder) as work:
        own = "embedded" if against == "zookeeper" else zookeeper
        sides = [Side("Highwater", Highwater(), work / "ours", zookeeper=own)]
        if against == "zookeeper":
            sides.append(Side("on ZooKeeper's own server", Highwater(), work / "theirs"))
        if against == "apache":
            sides.append(Side(f"Apache Kafka {apache.VERSION}", apache.program(), work / "theirs"))
        rows = trio.run(run, plan, sides, say)
        theirs = sides[1].name if len(sides) > 1 else "-"
        show_rows(rows, theirs, json_file)
        if page is not None:
            page.put(rows, theirs)
        return rows


@dataclass(frozen=True, slots=True)
class Page:
    """A page of docs/, and this command's section of it."""

    file: Path
    name: str
    title: str

    def put(self, rows: Sequence[Row], theirs: str) -> None:
        from highwater.bench.figures.markdown import put, section

        command = as_typed()
        where = f"{time.strftime('%Y-%m-%d')}, on {os.cpu_count()} cores"
        before = self.file.read_text() if self.file.exists() else ""
        text = section(self.title, command, where, rows, theirs)
        self.file.write_text(put(before, self.name, text))


def as_typed() -> str:
    """This command, without the files that it writes."""
    command = " ".join(["highwater", *sys.argv[1:]])
    return re.sub(r" --(markdown|json|dir|page)[ =]\S+", "", command)


@contextmanager
def working(folder: Path | None) -> Iterator[Path]:
    """A folder that is deleted at the end, or stays for inspection where the benchmark failed; user
    errors become one line.
    """
    with clear_errors():
        try:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
            work = Path(tempfile.mkdtemp(prefix="highwater-bench-", dir=folder))
        except OSError as error:
            raise click.UsageError(f"--dir {folder}: {error.strerror}") from error
        keep = False
        try:
            yield work
        except Exception:
            keep = any(work.iterdir())
            if keep:
                say(f"what it left is kept, to be looked at and removed: {work}")
            raise
        finally:
            if not keep:
                shutil.rmtree(work, ignore_errors=True)


def show_rows(rows: Sequence[Row], theirs: str, json_file: Path | None) -> None:
    from highwater.bench.figures.rows import table

    click.echo(table(rows, theirs))
    write_json(json_file, {"rows": [r.as_json() for r in rows]})


def write_json(json_file: Path | None, found: object) -> None:
    if json_file is not None:
        json_file.write_text(json.dumps(found, indent=1) + "\n")


def say(line: str) -> None:
    click.echo(line, err=True)
