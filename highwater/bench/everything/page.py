"""The table as text and as Markdown, and one offline page with plots: plain HTML and SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from highwater.bench.everything.measures import (
    Measure,
    Result,
    verdict,
)
from highwater.bench.figures.rows import Line, Row, aligned, piped, spread

WIDTH, LEFT, RIGHT, HEIGHT = 900, 330, 90, 26
DECADES = (0.1, 100.0)
HEAD = ("", "Highwater", "theirs", "ratio", "goal", "", "load", "commit", "build")
_STYLE = """
:root { color-scheme: light dark; --bg: #fff; --fg: #1c2733; --dim: #6a7785; --line: #dde3e9;
  --good: #2b8a4b; --bad: #c8322b; --ours: #3572a5; --theirs: #cc7a29; }
@media (prefers-color-scheme: dark) { :root { --bg: #12171d; --fg: #dbe3ea; --dim: #8b98a5;
  --line: #2b3642; --good: #56c27b; --bad: #ff6b61; --ours: #6fa8d8; --theirs: #e0a060; } }
body { background: var(--bg); color: var(--fg); font: 15px/1.5 system-ui, sans-serif;
  margin: 0 auto; max-width: 1100px; padding: 24px; }
.dim { color: var(--dim); } td, th { border-bottom: 1px solid var(--line); padding: 3px 8px; }
table { border-collapse: collapse; width: 100%; } th { color: var(--dim); text-align: left; }
td.num { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.reached { color: var(--good); } .short, .busy { color: var(--bad); }
svg { display: block; font: 12px system-ui, sans-serif; width: 100%; }
svg text { fill: var(--fg); } svg .dim { fill: var(--dim); } svg .grid { stroke: var(--line); }
svg .one { stroke: var(--dim); } svg .goal { stroke: var(--fg); stroke-width: 2; }
svg .reached { fill: var(--good); } svg .short { fill: var(--bad); }
svg .pair { fill: var(--fg); opacity: .45; }
"""


def lines(
    measures: Sequence[Measure], results: dict[str, Result]
) -> Iterator[tuple[Line, Row | None, Result]]:
    """Every line of the table with its figures: none is left out."""
    for measure in measures:
        result = results.get(measure.name) or Result(measure.name, reason="not asked for")
        for line in measure.lines:
            yield line, line.row(result.samples), result


def text(measures: Sequence[Measure], results: dict[str, Result]) -> str:
    """The table as aligned text; what was not measured stands below with its reason."""
    found = list(lines(measures, results))
    rows = [HEAD, *(_cells(*each) for each in found)]
    missing = [f"not measured: {line.what}: {r.reason}" for line, row, r in found if row is None]
    busy = [r.name for r in results.values() if r.measured and not r.quiet]
    if busy:
        missing.append(f"the machine was not quiet before: {', '.join(busy)}")
    return "\n".join([aligned(rows), *missing])


def markdown(measures: Sequence[Measure], results: dict[str, Result], theirs: str) -> str:
    head = ("what", "Highwater", theirs, "ratio", "at least", "", "load", "commit", "build")
    found = list(lines(measures, results))
    out = [piped([head, *(_cells(*each) for each in found)]), ""]
    out += [f"- not measured: {e.what}: {r.reason}" for e, row, r in found if row is None]
    return "\n".join(out)


def _cells(line: Line, row: Row | None, result: Result) -> tuple[str, ...]:
    what = f"{line.what}, {line.unit}"
    goal = f"{line.goal:.2f}"
    if row is None:
        return (what, "not measured", "-", "-", goal, "-", "-", "-", "-")
    ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
    load = f"{result.load[0]:.1f}{'' if result.quiet else ' (busy)'}"
    found = (what, spread(row.ours), spread(row.theirs), ratio, goal, verdict(line, row), load)
    return (*found, result.commit or "-", result.build)


def page(
    measures: Sequence[Measure], results: dict[str, Result], about: dict[str, Any], theirs: str
) -> str:
    """The whole HTML page: nothing is fetched, and no script runs."""
    found = list(lines(measures, results))
    facts = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in about.items() if k != "sides")
    body = "\n".join(_table_row(*each) for each in found)
    head = ("what", "Highwater", theirs, "ratio", "at least", "", "load", "measured")
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Highwater and {escape(theirs)}</title><style>{_STYLE}</style></head><body>
<h1>Highwater and {escape(theirs)}</h1>
<p class="dim">{escape(facts)}. Above 1 Highwater is ahead. Dots: the ratio of each pair; bar: of
the medians; upright mark: what it should reach.</p>
{plot(found)}
<h2>Figures</h2>
<p class="dim">Medians (least to greatest). Machines are noisy: only ratios count.</p>
<table><tr>{"".join(f"<th>{escape(h)}</th>" for h in head)}</tr>
{body}</table></body></html>
"""


def _table_row(line: Line, row: Row | None, result: Result) -> str:
    cells = _cells(line, row, result)
    if row is None:
        reason = f'<td colspan="6">not measured: {escape(result.reason)}</td>'
        return f"<tr><td>{escape(cells[0])}</td>{reason}<td></td></tr>"
    out = [f"<td>{escape(cells[0])}</td>"]
    out += [f'<td class="num">{escape(cell)}</td>' for cell in cells[1:5]]
    out.append(f'<td class="{cells[5]}">{escape(cells[5])}</td>')
    out.append(f'<td class="num{"" if result.quiet else " busy"}">{escape(cells[6])}</td>')
    measured = f"{result.date} {result.commit}, {result.build}"
    out.append(f'<td class="dim">{escape(measured)}</td>')
    return f"<tr>{''.join(out)}</tr>"


def _x(ratio: float) -> float:
    low, high = (math.log10(n) for n in DECADES)
    share = (math.log10(min(max(ratio, DECADES[0]), DECADES[1])) - low) / (high - low)
    return LEFT + (WIDTH - LEFT - RIGHT) * share


def plot(found: Sequence[tuple[Line, Row | None, Result]]) -> str:
    """Ratios on one logarithmic axis, a line of the table each."""
    shapes: list[str] = []
    bottom = 20 + HEIGHT * len(found)
    for at in (0.1, 0.3, 1, 3, 10, 30, 100):
        kind = "one" if at == 1 else "grid"
        shapes.append(f'<line class="{kind}" x1="{_x(at):.1f}" x2="{_x(at):.1f}" y1="16"')
        shapes.append(f'y2="{bottom}"/>')
        shapes.append(f'<text class="dim" x="{_x(at):.1f}" y="11" text-anchor="middle">{at}</text>')
    for number, (line, row, result) in enumerate(found):
        shapes += _bar(20 + HEIGHT * number, line, row, result)
    inner = "\n".join(shapes)
    label = 'role="img" aria-label="ratios to the other side"'
    return f'<svg viewBox="0 0 {WIDTH} {bottom + 4}" {label}>\n{inner}\n</svg>'


def _bar(y: float, line: Line, row: Row | None, result: Result) -> list[str]:
    middle = y + HEIGHT / 2
    out = [
        f'<text x="{LEFT - 8}" y="{middle + 4}" text-anchor="end">{escape(line.what)}</text>',
        f'<line class="goal" x1="{_x(line.goal):.1f}" x2="{_x(line.goal):.1f}" y1="{y + 3}"'
        f' y2="{y + HEIGHT - 3}"><title>at least {line.goal:.2f}</title></line>',
    ]
    ratio = row.ratio if row is not None else None
    if row is None or ratio is None:
        why = result.reason or "nothing to compare with"
        out.append(
            f'<text class="dim" x="{WIDTH - RIGHT + 8}" y="{middle + 4}">not measured'
            f"<title>{escape(why)}</title></text>"
        )
        return out
    left, right = sorted((_x(1), _x(ratio)))
    out.append(
        f'<rect class="{verdict(line, row)}" x="{left:.1f}" y="{middle - 4}"'
        f' width="{max(right - left, 1):.1f}" height="8" rx="2"/>'
    )
    out += [
        f'<circle class="pair" cx="{_x(each):.1f}" cy="{middle}" r="2.5">'
        f"<title>{each:.2f}</title></circle>"
        for each in row.by_pairs()
    ]
    out.append(f'<text x="{WIDTH - RIGHT + 8}" y="{middle + 4}">{ratio:.2f}</text>')
    return out
