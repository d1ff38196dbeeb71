"""The verdict as a table in colours."""

from __future__ import annotations

from rich.table import Table

from highwater.verdict.plain_table import HEADERS, NUMBERS, Judged, rows, title

COLOURS = {
    "passed": "green",
    "idle": "dim",
    "violated": "bold red",
    "void": "yellow",
    "unknown": "yellow",
    "valid": "bold green",
    "invalid": "bold red",
}


def verdict_table(verdict: Judged) -> Table:
    """A row for each check: what it examined, and what it found."""
    word, by_whom = title(verdict)
    table = Table(title=f"[{COLOURS[word]}]{word}[/]  {by_whom}", title_justify="left")
    for header in HEADERS:
        right = header in NUMBERS
        table.add_column(header, justify="right" if right else "left", no_wrap=header != "found")
    for *cells, status in rows(verdict):
        table.add_row(*cells, f"[{COLOURS[status]}]{status}[/]")
    return table
