"""The verdict as text: the same cells on a terminal (report.table colours them) and from Spark's
job, which has the standard library alone."""

from __future__ import annotations

from typing import Final

from highwater.verdict.verdict import Verdict

HEADERS: Final = ("check", "name", "examined", "violations", "expected", "counted", "outcome")
NUMBERS: Final = frozenset(HEADERS[2:6])
"""Columns that stand on the right."""


def title(verdict: Verdict) -> tuple[str, str]:
    """The word, and by whom."""
    return verdict.verdict, f"(checked by {verdict.engine})"


def rows(verdict: Verdict) -> list[tuple[str, ...]]:
    """Each check: what it examined, what it found; cells in the order of HEADERS."""
    return [
        (
            id_,
            check.name,
            *(f"{n:,}" for n in (check.examined, check.violations)),
            *(f"{n:,}" for n in (check.expected, check.counted)),
            check.status,
        )
        for id_, check in verdict.checks.items()
    ]


def lines(verdict: Verdict) -> list[str]:
    """Title, headers and rows in columns, without colours."""
    cells = [HEADERS, *rows(verdict)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(HEADERS))]
    told = ["  ".join(title(verdict))]
    for row in cells:
        padded = (
            cell.rjust(width) if header in NUMBERS else cell.ljust(width)
            for cell, width, header in zip(row, widths, HEADERS, strict=True)
        )
        told.append("  ".join(padded).rstrip())
    return told


def example_lines(verdict: Verdict, limit: int = 3) -> list[str]:
    """`C4: orders-0 offset 17, ...` for the checks that did not pass."""
    return [
        f"{id_}: {example}"
        for id_, check in verdict.checks.items()
        if check.status not in ("passed", "idle")
        for example in check.examples[:limit]
    ]
