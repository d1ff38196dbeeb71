"""`highwater bench all` without clusters: what is kept, what the table and the page say."""

from __future__ import annotations

import html.parser
import json
from pathlib import Path

import pytest

from highwater.bench.everything import page
from highwater.bench.everything.all_rows import Kept, measured
from highwater.bench.everything.comparison import MEASURES, NAMES
from highwater.bench.everything.measures import Measure
from highwater.bench.everything.turns import QUICK, Turns, flat
from highwater.bench.figures.rows import Line, Samples
from highwater.bench.figures.sides import BenchFailed, Sides
from highwater.bench.table import BENCHMARKS
from highwater.child_processes import StartError

FAST = Line("fast", "a rate", "MB/s", 2, more_is_better=True)
SLOW = Line("slow", "a time", "ms", 1 / 0.9)
ABOUT = {
    "size": "quick",
    "commit": "abc",
    "build": "pure, full",
    "sides": ["ours", "theirs"],
    "cores": 2,
}


async def _measured(_turns: Turns) -> Samples:
    return Samples(fast=[[30.0, 20.0, 10.0], [10.0, 10.0, 10.0]], slow=[[2.0], [1.0]])


async def _broken(_turns: Turns) -> Samples:
    raise BenchFailed("a record was not acknowledged")


GOOD = Measure("good", (FAST, SLOW), 1, run=_measured)
BAD = Measure("bad", (Line("bad", "a row that fails", "s", 1),), 1, run=_broken)
LONG = Measure("long", (Line("long", "a long row", "s", 1),), 60, run=_measured, full=True)
ALL = (GOOD, BAD, LONG)


async def _run(kept: Kept, minutes: float = 5) -> list[str]:
    said: list[str] = []
    sides = Sides((), said.append)
    await measured(ALL, QUICK, sides, kept, full=False, minutes=minutes)
    return said


@pytest.mark.thorough
async def test_each_row_is_kept_and_a_second_run_measures_what_is_left(tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    await _run(Kept.load(file, ABOUT))
    kept = Kept.load(file, ABOUT)
    assert kept.results["good"].samples["fast"][0] == [30.0, 20.0, 10.0]
    assert kept.results["bad"].reason == "failed: a record was not acknowledged"
    assert kept.results["long"].reason == "only with --full"
    said = await _run(kept)
    assert [line for line in said if "kept from" in line] == [
        f"good: kept from {kept.results['good'].date}, commit abc"
    ]


@pytest.mark.thorough
async def test_results_of_another_size_are_not_thrown_away(tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    await _run(Kept.load(file, ABOUT))
    before = file.read_text()
    with pytest.raises(StartError, match=r"other settings \(size \w+\).*--json"):
        Kept.load(file, {**ABOUT, "size": "full"})
    assert file.read_text() == before


@pytest.mark.thorough
async def test_the_table_tells_the_commit_of_each_row(tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    await _run(Kept.load(file, ABOUT))
    later = Kept.load(file, {**ABOUT, "commit": "def"})
    later.results.pop("bad")
    await _run(later)
    assert {n: r.commit for n, r in later.results.items()} == {
        "good": "abc", "bad": "def", "long": "def"
    }  # fmt: skip
    assert "abc | pure, full |" in page.markdown(ALL, later.results, "theirs").splitlines()[2]
    assert page.page(ALL, later.results, later.about, "theirs").count(" abc, pure, full</td>") == 2


async def test_no_row_begins_when_the_time_is_up() -> None:
    kept = Kept(None, ABOUT)
    await _run(kept, minutes=-1)
    assert "were over" in kept.results["good"].reason


def test_a_file_of_something_else_is_named(tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    file.write_text(json.dumps({"rows": []}))
    with pytest.raises(StartError, match=r"all\.json is not a file of `highwater bench all`"):
        Kept.load(file, ABOUT)


@pytest.mark.thorough
async def test_the_table_leaves_no_line_out() -> None:
    kept = Kept(None, ABOUT)
    await _run(kept)
    kept.results["good"].busy = 0.0
    table = page.text(ALL, kept.results).splitlines()
    assert "reached" in table[1]
    assert "short" in table[2]
    assert [line.split(":")[0] for line in table[-2:]] == ["not measured"] * 2
    for line in ("a rate", "a time", "a row that fails", "a long row"):
        assert any(line in row for row in table)


def test_ratios_are_above_one_where_ours_is_better() -> None:
    samples = Samples(fast=[[30, 20, 10], [10, 10, 10]], slow=[[2], [1]])
    fast, slow = FAST.row(samples), SLOW.row(samples)
    assert fast is not None
    assert slow is not None
    assert (fast.ratio, slow.ratio) == (2, 0.5)
    assert fast.by_pairs() == [3, 2, 1]


def test_a_side_is_warm_when_it_gets_no_faster() -> None:
    assert not flat([10, 20])
    assert not flat([10, 20, 23])
    assert not flat([10, 20, 30, 20])
    assert flat([10, 20, 21, 22])


class _Page(html.parser.HTMLParser):
    """Tags that are open, and addresses that a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [str(value) for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "line", "rect", "circle"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("meta", "line", "rect", "circle"):
            assert self.open.pop() == tag


@pytest.mark.thorough
async def test_the_page_is_whole_and_fetches_nothing() -> None:
    kept = Kept(None, ABOUT)
    await _run(kept)
    text = page.page(ALL, kept.results, ABOUT, "Apache <Kafka>")
    parsed = _Page()
    parsed.feed(text)
    assert parsed.open == []
    assert parsed.fetched == []
    assert "Apache &lt;Kafka&gt;" in text
    assert text.count('class="pair"') == 4
    assert "failed: a record was not acknowledged" in text


def test_names_of_rows_and_lines_are_unique_and_goals_are_ratios() -> None:
    lines = [line.name for measure in MEASURES for line in measure.lines]
    assert len(set(lines)) == len(lines)
    assert len(set(NAMES)) == len(NAMES)
    assert len({row.name for row in BENCHMARKS}) == len(BENCHMARKS)
    for measure in MEASURES:
        assert all(line.goal >= 1 for line in measure.lines)
