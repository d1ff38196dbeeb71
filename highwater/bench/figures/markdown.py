"""Figures in a page of docs/: each command replaces its own section there.

A section stands between two comments that name it.  The rest of the page stays as it is, and a new
section goes to the end.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence

from highwater.bench.figures.rows import Row


def section(title: str, command: str, where: str, rows: Sequence[Row], theirs: str) -> str:
    """A heading, the command behind the figures, and the table."""
    compared = any(row.theirs for row in rows)
    head = ["what", "Highwater", theirs, "ratio"] if compared else ["what", "Highwater"]
    ratio = ", and the ratio, above 1 where\nHighwater is ahead." if compared else "."
    lines = [
        f"## {title}",
        "",
        f"`{command}`, {where}:",
        f"medians, with (least-greatest of how many samples){ratio}",
        "",
        f"| {' | '.join(head)} |",
        "|---" * len(head) + "|",
        *(f"| {' | '.join(_cells(row)[: len(head)])} |" for row in rows),
    ]
    return "\n".join(lines)


def _cells(row: Row) -> list[str]:
    what = f"{row.what}, {row.unit}" if row.unit else row.what
    ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
    return [what, _spread(row.ours), _spread(row.theirs), ratio]


def _spread(samples: Sequence[float]) -> str:
    if not samples:
        return "-"
    digits = 0 if min(samples) >= 100 or all(isinstance(s, int) for s in samples) else 1
    middle = f"{statistics.median(samples):.{digits}f}"
    if len(samples) == 1:
        return middle
    return f"{middle} ({min(samples):.{digits}f}-{max(samples):.{digits}f} of {len(samples)})"


def put(page: str, name: str, text: str) -> str:
    """The page with this section in its new form."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    whole = f"{begin}\n{text}\n{end}"
    old = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if old.search(page):
        return old.sub(lambda _: whole, page, count=1)
    return f"{page.rstrip()}\n\n{whole}\n".lstrip()
