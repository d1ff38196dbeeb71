"""What the commands of benchmarks have in common: the folder, the sides, pages, and options that
are made of a benchmark's fields."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from highwater.cli.error_lines import clear_errors
from highwater.cli.places import OutputFile, OutputFolder
from highwater.cli.sim import SeedRange

if TYPE_CHECKING:
    from highwater.bench.benchmark import Benchmark
    from highwater.bench.figures.sides import Sides

_OTHERS = {
    "apache": "`apache` is Apache Kafka, fetched by Maven the first time.",
    "apache:4.2.0": "`apache:4.2.0` is that release, in KRaft mode.",
    "zookeeper": "`zookeeper` is Highwater on ZooKeeper's own server, and Highwater itself then has"
    " the embedded one.",
}


def options_of(row: Benchmark) -> list[click.Parameter]:
    """The options of a benchmark's command: those of its own, and those of all."""
    options = [option_of(field) for field in dataclasses.fields(row.options)]
    if row.against:
        said = "  ".join(_OTHERS[other] for other in row.against)
        said = f"Measure this in turn.  {said}"
        options.append(click.Option(["--against"], type=click.Choice(row.against), help=said))
    files = {
        "--json": "Write the figures there too.",
        "--page": "Write a page with plots, too.",
        "--markdown": "Put the table into this page, in place of what this command put there"
        " before.",
    }
    has = [option.name for option in options] + ["page_file"] * (row.page is None)
    for flag, said in files.items():
        name = f"{flag.removeprefix('--')}_file"
        if name not in has:
            options.append(click.Option([flag, name], type=OutputFile(), help=said))
    said = "Where the brokers' data goes while it runs.  [default: a temporary folder]"
    return [*options, click.Option(["--dir", "folder"], type=OutputFolder(), help=said)]


def option_of(field: dataclasses.Field[Any]) -> click.Option:
    """The option that a benchmark's field is (`benchmark.option`)."""
    default, given = field.default, field.metadata
    one = default[0] if isinstance(default, tuple) else default
    kind: Any = click.FLOAT if isinstance(one, float) else click.INT
    if given["of"]:
        kind = click.Choice(given["of"])
    elif isinstance(one, Path):
        kind = OutputFile()
    elif isinstance(one, range):
        kind, default = SeedRange(), f"{one[0]}..{one[-1]}"
    elif given["least"] is not None:
        span = click.FloatRange if isinstance(one, float) else click.IntRange
        kind = span(given["least"], given["most"])
    flag = given["flag"] or f"--{field.name.replace('_', '-')}"
    several = isinstance(default, tuple)
    said = given["text"] + "  It may be given more than once." * several
    if isinstance(default, bool):
        return click.Option([flag, field.name], is_flag=True, help=said)
    return click.Option(
        [flag, field.name],
        type=kind,
        default=default,
        multiple=several,
        show_default="all" if default == given["of"] else default is not None,
        help=said.strip(),
    )


@contextmanager
def sides_of(folder: Path | None, against: str | None, zookeeper: str) -> Iterator[Sides]:
    """Highwater, with such a ZooKeeper, and what it is measured against."""
    from highwater.bench.figures.sides import ON_JAVAS, Side, Sides
    from highwater.cluster.processes import apache
    from highwater.cluster.processes.programs import ApacheKafka, Highwater

    with working(folder) as work:
        own = "embedded" if against == "zookeeper" else zookeeper
        sides = [Side("Highwater", Highwater(), work / "ours", zookeeper=own)]
        if against == "zookeeper":
            sides.append(Side(ON_JAVAS, Highwater(), work / "theirs"))
        if against == "apache":
            sides.append(Side(f"Apache Kafka {apache.VERSION}", apache.program(), work / "theirs"))
        if against == "apache:4.2.0":
            home = apache.home("4.2.0")
            later = ApacheKafka(home, jvm=apache.SERVER_JVM, version="4.2.0", kraft=True)
            sides.append(Side("Apache Kafka 4.2.0", later, work / "theirs", zookeeper=""))
        yield Sides(sides, say)


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


def measured_here() -> str:
    """The command as it was typed, without the files that it writes; the day, the machine, and the
    clone's commit."""
    from highwater.bench.everything.all_rows import commit

    typed = re.sub(r" --(markdown|json|dir|page)[ =]\S+", "", " ".join(sys.argv[1:]))
    day = time.strftime("%Y-%m-%d")
    return f"`highwater {typed}`, {day}, on {os.cpu_count()} cores, commit {commit()}"


def put_into(file: Path | None, name: str, text: str) -> None:
    """The text becomes the page's section of this name; nothing where there is no page."""
    from highwater.bench.figures.markdown import put

    if file is not None:
        before = file.read_text() if file.exists() else ""
        file.write_text(put(before, name, text))


def write_json(json_file: Path | None, found: object) -> None:
    if json_file is not None:
        json_file.write_text(json.dumps(found, indent=1) + "\n")


def say(line: str) -> None:
    click.echo(line, err=True)
