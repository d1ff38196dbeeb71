"""Figures of one side or of two: lines, their samples, and the table made of them.

A `Line` says what is measured.  A benchmark gives `Samples` by the names of its lines, and both
make `Row`s: medians of both sides, and a ratio, above 1 where Highwater is better.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    what: str
    unit: str
    ours: tuple[float, ...]
    theirs: tuple[float, ...] = ()
    """The other side's samples; empty if there is no other side."""
    smaller_is_better: bool = False
    column: str = ""
    """If not empty, all rows with the same `what` share a line of the table, a column each; they
    have no other side."""

    @property
    def ratio(self) -> float | None:
        if not self.theirs:
            return None
        return self._ratio(statistics.median(self.ours), statistics.median(self.theirs))

    def _ratio(self, ours: float, theirs: float) -> float | None:
        above, below = (theirs, ours) if self.smaller_is_better else (ours, theirs)
        return above / below if below else None

    def by_pairs(self) -> list[float]:
        """The ratio of each pair, in the order in which they were measured."""
        ratios = [self._ratio(*pair) for pair in zip(self.ours, self.theirs, strict=False)]
        return [ratio for ratio in ratios if ratio is not None]

    def as_json(self) -> dict[str, Any]:
        ratio = self.ratio
        return {
            "what": ", ".join(filter(None, (self.what, self.column, self.unit))),
            "ours": round(statistics.median(self.ours), 2),
            "theirs": round(statistics.median(self.theirs), 2) if self.theirs else None,
            "ratio": round(ratio, 2) if ratio is not None else None,
            "samples": {"ours": _rounded(self.ours), "theirs": _rounded(self.theirs)},
        }


class Samples(dict[str, list[list[float]]]):
    """Name of a line -> the samples of each side, Highwater's first."""

    def add(self, line: str, side: int, *values: float) -> None:
        sides = self.setdefault(line, [])
        while len(sides) <= side:
            sides.append([])
        sides[side].extend(values)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a table: a figure, and whether more of it is better."""

    name: str
    what: str
    unit: str
    goal: float = 1.0
    """The ratio that it should reach; above 1 Highwater is better."""
    more_is_better: bool = False
    column: str = ""

    def row(self, samples: Samples) -> Row | None:
        """The line's figures; None where it was not measured."""
        ours, *rest = samples.get(self.name) or [[]]
        if not ours:
            return None
        theirs = tuple(rest[0]) if rest else ()
        return Row(self.what, self.unit, tuple(ours), theirs, not self.more_is_better, self.column)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows side by side, or in columns; `theirs` names the other side, and is empty without it."""

    rows: Sequence[Row]
    theirs: str = ""

    def cells(self) -> list[tuple[str, ...]]:
        """The head, and the lines below it."""
        columns = list(dict.fromkeys(row.column for row in self.rows if row.column))
        if columns:
            lines: dict[str, dict[str, str]] = {}
            for row in self.rows:
                lines.setdefault(row.what, {})[row.column] = spread(row.ours)
            cells = [(what, *(by.get(c, "") for c in columns)) for what, by in lines.items()]
            return [("what", *columns), *cells]
        found = [
            (f"{row.what}, {row.unit}" if row.unit else row.what, spread(row.ours),
             spread(row.theirs), "-" if row.ratio is None else f"{row.ratio:.2f}")
            for row in self.rows
        ]  # fmt: skip
        head = ("what", "Highwater", self.theirs, "ratio")
        width = 4 if any(row.theirs for row in self.rows) else 2
        return [line[:width] for line in (head, *found)]

    def text(self) -> str:
        return aligned(self.cells())

    def markdown(self) -> str:
        ratio = any(row.theirs for row in self.rows)
        more = ", and the ratio, above 1 where\nHighwater is ahead" if ratio else ""
        note = f"Medians, with (least-greatest of how many samples){more}."
        return f"{note}\n\n{piped(self.cells())}"

    def as_json(self) -> dict[str, Any]:
        return {"rows": [row.as_json() for row in self.rows]}


def table_of(lines: Iterable[Line], samples: Samples, theirs: str = "") -> Table:
    """The table of those lines that were measured."""
    return Table([row for line in lines if (row := line.row(samples)) is not None], theirs)


def _rounded(samples: Sequence[float]) -> list[float]:
    return [round(sample, 2) for sample in samples]


def rows_text(head: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> str:
    """Rows that do not compare two sides, as aligned text."""
    return aligned([head, *(tuple(_cell(c) for c in row) for row in rows)])


def _cell(value: Any) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else str(value)


def aligned(lines: Sequence[tuple[str, ...]]) -> str:
    """Aligns columns: the first to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def piped(lines: Sequence[tuple[str, ...]]) -> str:
    """A table of Markdown; the first line is its head."""
    head, *rest = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([head, "|---" * len(lines[0]) + "|", *rest])


def spread(samples: Sequence[float]) -> str:
    """Median (least to greatest of how many), with as many digits as are meaningful.

    >>> spread([1.0, 2.0, 4.0]), spread([250.0]), spread([0]), spread([])
    ('2.00 (1.00-4.00 of 3)', '250', '0', '-')
    """
    if not samples:
        return "-"
    middle = statistics.median(samples)
    whole = middle >= 100 or all(isinstance(sample, int) for sample in samples)
    digits = 0 if whole else 1 if middle >= 10 else 2
    if len(samples) == 1:
        return f"{middle:.{digits}f}"
    around = f"{min(samples):.{digits}f}-{max(samples):.{digits}f} of {len(samples)}"
    return f"{middle:.{digits}f} ({around})"


def percentile(samples: Iterable[float], share: float) -> float:
    """The percentile of at least one sample, by nearest rank.

    >>> percentile([4.0, 1.0, 3.0, 2.0], 0.5)
    3.0
    """
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
