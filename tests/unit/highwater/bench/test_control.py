"""`highwater bench control`: its steps, the span of many writes, and its bound beside Java's."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from highwater.bench.control import Options, too_slow
from highwater.bench.figures.rows import Row, Samples, Table, table_of
from highwater.bench.figures.sides import ON_JAVAS
from highwater.bench.isr_changes import span_ms


@pytest.mark.parametrize(
    ("create", "in_all", "steps", "killed"),
    [
        ((1000,), 3000, [1000, 2000, 0], 3000),
        ((1000, 10_000), 1000, [1000, 0, 10_000], 1000),
        ((1000, 10_000), 2000, [1000, 10_000, 0], 11_000),
        ((10,), 0, [10, 0], 10),
    ],
)
def test_the_controller_is_killed_once_there_are_so_many_partitions(
    create: tuple[int, ...], in_all: int, steps: list[int], killed: int
) -> None:
    options = Options(create, in_all)
    assert options.steps() == steps
    assert f"controller and leaders killed, {killed} partitions" in [
        line.what for line in options.lines()
    ]


def test_each_size_has_rows_of_its_own() -> None:
    options = Options((10, 20))
    samples = Samples({"whole 10": [[1.0], [2.0]], "whole 20": [[3.0], [4.0]]})
    rows = table_of(options.lines(), samples).rows
    assert [(row.what.split()[0], row.ours) for row in rows] == [("10", (1.0,)), ("20", (3.0,))]
    with pytest.raises(ValueError, match="each number once"):
        Options((10, 10))


@dataclass
class Stat:
    mtime: int


def test_the_span_is_from_the_first_write_to_the_last() -> None:
    assert span_ms([Stat(1_000_007), Stat(1_000_003), Stat(1_000_012)]) == 9.0
    assert span_ms([Stat(5)]) == 0.0


@pytest.mark.parametrize(("ours", "slow"), [(120.0, False), (121.0, True), (30.0, False)])
def test_too_slow_is_more_than_1_2_times_java_s(ours: float, slow: bool) -> None:
    row = Row("created", "s", (ours, 1.0, 900.0), (100.0, 1.0, 900.0), smaller_is_better=True)
    said = too_slow(Table([row], ON_JAVAS))
    assert said == f"more than 1.2 times as long as {ON_JAVAS}: created" * slow
    assert too_slow(Table([row], "Apache Kafka 3.9.2")) == ""
    assert too_slow(Table([Row("created", "s", (ours,), smaller_is_better=True)])) == ""
