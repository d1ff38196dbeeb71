"""The commands made of the table of benchmarks: options, files, exit codes, rows by their names."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from highwater.bench.benchmark import Benchmark, option
from highwater.bench.everything import all_rows
from highwater.bench.figures.rows import Row, Table
from highwater.bench.figures.sides import BenchFailed, Sides
from highwater.bench.table import BENCHMARKS
from highwater.cli.bench.bench_group import bench, command_of


@dataclass(frozen=True, slots=True)
class Options:
    rounds: int = option(3, "Of each side.", least=1)
    sizes: tuple[int, ...] = option((16, 128), flag="--size-kib", least=1)
    swap: bool = option(False)
    backoff_ms: int | None = option(None, least=0)


async def _run(options: Options, sides: Sides) -> Table:
    if options.swap:
        raise BenchFailed("nothing moved")
    assert sides.theirs == ""
    return Table([Row(f"size {size}", "ms", (float(options.rounds),)) for size in options.sizes])


ROW = Benchmark(
    "toy", "A toy.", ("toy --rounds 1",), _run, Options, against=(),
    section=lambda options, _: (f"toy {options.rounds}", "## Toy"),
    problem=lambda found: "too slow" if len(found.rows) > 2 else "",
)  # fmt: skip


def called(words: str) -> Any:
    return CliRunner().invoke(command_of(ROW), words.split(), prog_name="toy")


def test_the_fields_are_the_options_and_the_files_are_written(tmp_path: Path) -> None:
    file, page = tmp_path / "out.json", tmp_path / "page.md"
    done = called(f"--rounds 2 --json {file} --markdown {page} --dir {tmp_path}")
    assert done.exit_code == 0, done.output
    assert [row["what"] for row in json.loads(file.read_text())["rows"]] == [
        "size 16, ms", "size 128, ms"
    ]  # fmt: skip
    assert page.read_text().startswith("<!-- toy 2 -->\n## Toy\n\n`highwater ")
    assert "| size 16, ms | 2.00 |" in page.read_text()
    assert not list(tmp_path.glob("highwater-bench-*"))


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("--rounds 0", 2, "0 is not in the range x>=1"),
        ("--size-kib 1 --size-kib 2 --size-kib 3", 1, "too slow"),
        ("--swap", 1, "nothing moved"),
        ("--help", 0, "highwater bench toy --rounds 1"),
        ("--against apache", 2, "--against"),
    ],
)
def test_exit_codes_mean_something(words: str, code: int, said: str) -> None:
    done = called(words)
    assert done.exit_code == code
    assert said in done.output


@pytest.mark.parametrize("row", BENCHMARKS, ids=lambda row: row.name)
def test_without_words_a_command_has_the_defaults_of_its_fields(row: Benchmark) -> None:
    command = bench.commands[row.name]
    given = command.make_context(row.name, []).params
    names = [field.name for field in dataclasses.fields(row.options)]
    assert row.options(**{name: given[name] for name in names}) == row.options()
    assert all(example.startswith(row.name) or row.name == "all" for example in row.examples)


def test_rows_of_all_are_measured_by_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seen: list[tuple[str, ...]] = []

    async def run(options: all_rows.Options, _: Sides) -> Table:
        seen.append(options.rows)
        return Table([])

    replaced = dataclasses.replace(BENCHMARKS[0], run=run, problem=None)
    monkeypatch.setitem(bench.commands, "all", command_of(replaced))
    words = ["one-in-flight", "produce-16k", "--quick"]
    assert CliRunner().invoke(bench, words).exit_code == 0
    assert seen == [("one-in-flight", "produce-16k")]
    refused = CliRunner().invoke(bench, ["one-in-flight", "nothing"])
    assert (refused.exit_code, len(seen)) == (2, 1)
    assert "'nothing' is not one of" in refused.output
    assert isinstance(bench.get_command(click.Context(bench), "start"), click.Command)
