"""The verdict as a table for a terminal."""

from __future__ import annotations

from rich.table import Table

from highwater.verdict.verdict import Verdict

COLOURS = {
    "passed": "green",
    "idle": "dim",
    "violated": "bold red",
    "void": "yellow",
    "unknown": "yellow",
    "valid": "bold green",
    "invalid": "bold red",
}


def verdict_table(verdict: Verdict) -> Table:
    """Each check: what it examined, what it found."""
    colour = COLOURS[verdict.verdict]
    table = Table(
        title=f"[{colour}]{verdict.verdict}[/]  (checked by {verdict.engine})", title_justify="left"
    )
    table.add_column("check", no_wrap=True)
    table.add_column("name")
    table.add_column("examined", justify="right")
    table.add_column("violations", justify="right")
    table.add_column("expected", justify="right")
    table.add_column("counted", justify="right")
    table.add_column("outcome")
    for id_, check in verdict.checks.items():
        numbers = (check.examined, check.violations, check.expected, check.counted)
        colour = COLOURS[check.status]
        table.add_row(id_, check.name, *(f"{n:,}" for n in numbers), f"[{colour}]{check.status}[/]")
    return table


def example_lines(verdict: Verdict, limit: int = 3) -> list[str]:
    """`C4: orders-0 offset 17, ...` for the checks that did not pass."""
    return [
        f"{id_}: {example}"
        for id_, check in verdict.checks.items()
        if check.status not in ("passed", "idle")
        for example in check.examples[:limit]
    ]
