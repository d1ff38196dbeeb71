"""Rows of a benchmark: the direction of a ratio, and the text of a row."""

from __future__ import annotations

import pytest

from highwater.bench.figures.memory import pss_of
from highwater.bench.figures.rows import Row, Table


def test_the_ratio_is_of_medians_and_above_one_where_ours_is_faster() -> None:
    row = Row("produce", "MB/s", ours=(300.0, 100.0, 200.0), theirs=(50.0, 100.0, 1000.0))
    assert row.ratio == 2.0


def test_where_smaller_is_better_the_ratio_turns_round() -> None:
    assert Row("memory", "MiB", (50.0,), (300.0,), smaller_is_better=True).ratio == 6.0


def test_json_has_the_four_keys_that_programs_read() -> None:
    row = Row("ready", "s", (2.0, 3.0), (8.0,), smaller_is_better=True).as_json()
    assert row["what"] == "ready, s"
    assert (row["ours"], row["theirs"], row["ratio"]) == (2.5, 8.0, 3.2)


def test_without_another_side_there_is_no_ratio() -> None:
    row = Row("ready", "s", (2.0,))
    assert row.ratio is None
    assert row.as_json()["theirs"] is None
    assert Table([row]).text().splitlines()[1].split() == ["ready,", "s", "2.00"]


def test_the_table_is_aligned() -> None:
    rows = [
        Row("a", "s", (1.0, 2.0, 3.0), (4.0,)),
        Row("a long one", "MB/s", (100.0,), (50.0,)),
    ]
    head, first, second = Table(rows, "Apache").text().splitlines()
    assert len({line.rindex(" ") for line in (first, second)}) == 1
    assert "2.00 (1.00-3.00 of 3)" in first
    assert head.split() == ["what", "Highwater", "Apache", "ratio"]


def test_pss_is_read_from_its_line() -> None:
    assert pss_of("55e0-7ff0 [rollup]\nRss:  9999 kB\nPss:   2048 kB\nPss_Anon: 1 kB\n") == 2.0
    with pytest.raises(ValueError, match="no Pss"):
        pss_of("Rss: 1 kB\n")
