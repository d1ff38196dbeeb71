"""Figures go into their own section of a page, and touch nothing else there."""

from __future__ import annotations

from highwater.bench.figures.markdown import put, section
from highwater.bench.figures.rows import Row, Table

ROWS = [
    Row("a kill", "ms", (300.0, 200.0, 250.0), (1000.0,), smaller_is_better=True),
    Row("CPU", "s", (1.25,)),
]


def test_a_section_says_how_it_was_made() -> None:
    text = section("## Kills", "`highwater bench failover`", Table(ROWS, "Apache").markdown())
    assert text.splitlines() == [
        "## Kills",
        "",
        "`highwater bench failover`.",
        "",
        "Medians, with (least-greatest of how many samples), and the ratio, above 1 where",
        "Highwater is ahead.",
        "",
        "| what | Highwater | Apache | ratio |",
        "|---|---|---|---|",
        "| a kill, ms | 250 (200-300 of 3) | 1000 | 4.00 |",
        "| CPU, s | 1.25 | - | - |",
    ]


def test_without_another_side_there_are_two_columns() -> None:
    rows = [Row("errors", "", (0,)), Row("CPU", "s", (1.5, 2.5))]
    text = section("", "`highwater bench failover`", Table(rows).markdown())
    assert text.startswith("`highwater bench failover`.\n\nMedians, with")
    assert text.splitlines()[-4:] == [
        "| what | Highwater |", "|---|---|", "| errors | 0 |", "| CPU, s | 2.00 (1.50-2.50 of 2) |",
    ]  # fmt: skip


def test_a_section_is_replaced_where_it_stands() -> None:
    page = put(put("# Page\n\nText.\n", "one", "first"), "two", "second")
    assert page == (
        "# Page\n\nText.\n\n<!-- one -->\nfirst\n<!-- end of one -->\n\n"
        "<!-- two -->\nsecond\n<!-- end of two -->\n"
    )
    again = put(page, "one", r"new \1")
    assert again == page.replace("first", r"new \1")
    assert put(again, "one", "first") == page


def test_an_empty_page_gets_the_section_alone() -> None:
    assert put("", "one", "first") == "<!-- one -->\nfirst\n<!-- end of one -->\n"
