"""Rows of a benchmark: medians of both sides, and a ratio, above 1 where Highwater is better."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    what: str
    unit: str
    ours: tuple[float, ...]
    theirs: tuple[float, ...] = ()
    """Empty where there is no other side."""
    smaller_is_better: bool = False

    @property
    def ratio(self) -> float | None:
        if not self.theirs:
            return None
        ours, theirs = statistics.median(self.ours), statistics.median(self.theirs)
        above, below = (theirs, ours) if self.smaller_is_better else (ours, theirs)
        return above / below if below else None

    def as_json(self) -> dict[str, Any]:
        ratio = self.ratio
        return {
            "what": f"{self.what}, {self.unit}",
            "ours": round(statistics.median(self.ours), 2),
            "theirs": round(statistics.median(self.theirs), 2) if self.theirs else None,
            "ratio": round(ratio, 2) if ratio is not None else None,
            "samples": {"ours": _rounded(self.ours), "theirs": _rounded(self.theirs)},
        }


def _rounded(samples: Sequence[float]) -> list[float]:
    return [round(sample, 2) for sample in samples]


def table(rows: Sequence[Row], theirs: str) -> str:
    """The rows as aligned text: median (least to greatest) of each side, and the ratio."""
    lines = [("", "Highwater", theirs, "ratio")]
    for row in rows:
        ratio = row.ratio
        lines.append(
            (
                f"{row.what} ({row.unit})",
                _spread(row.ours),
                _spread(row.theirs),
                f"{ratio:.2f}" if ratio is not None else "-",
            )
        )
    return aligned(lines)


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


def _spread(samples: Sequence[float]) -> str:
    if not samples:
        return "-"
    middle = f"{statistics.median(samples):.1f}"
    return middle if len(samples) == 1 else f"{middle} ({min(samples):.1f}-{max(samples):.1f})"


def percentile(times: Sequence[float], share: float) -> float:
    """
    >>> percentile([4.0, 1.0, 3.0, 2.0], 0.5)
    3.0
    """
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
