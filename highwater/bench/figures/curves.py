"""Curves as one offline page of HTML and SVG: figures over time, or over something that grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT, LEFT, BELOW = 900, 180, 70, 24
COLOURS = ("#3572a5", "#cc7a29", "#2b8a4b", "#8a5ab0")
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Series:
    """One plot: curves of (x, value) by name; a name that is empty is not shown."""

    title: str
    curves: Mapping[str, Points]


def page(title: str, sentence: str, series: Sequence[Series], *, steps: bool = False) -> str:
    """The whole page: nothing is fetched, and no script runs.  x is seconds on one axis for all
    plots; with `steps` it is what grows in each plot, and its values stand at even distances."""
    end = max((x for one in series for points in one.curves.values() for x, _ in points), default=1)
    plots = "\n".join(
        f"<h2>{escape(one.title)}</h2>\n{_plot(one, None if steps else end)}" for one in series
    )
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>
<style>:root {{ color-scheme: light dark; }} body {{ font: 15px/1.5 system-ui, sans-serif;
  margin: 0 auto; max-width: 1000px; padding: 24px; }} svg {{ display: block; width: 100%; }}
  svg text {{ fill: currentColor; font: 12px system-ui, sans-serif; }}
  h2 {{ font-size: 1em; margin: 1.5em 0 0; }}</style></head><body>
<h1>{escape(title)}</h1><p>{escape(sentence)}</p>
{plots}
</body></html>
"""


def _plot(series: Series, end: float | None) -> str:
    xs = sorted({x for points in series.curves.values() for x, _ in points})
    top = max((y for points in series.curves.values() for _, y in points), default=1) or 1

    def across(x: float) -> float:
        share = xs.index(x) / max(1, len(xs) - 1) if end is None else x / end
        return LEFT + (WIDTH - LEFT) * share

    def place(point: tuple[float, float]) -> str:
        return f"{across(point[0]):.1f},{HEIGHT - (HEIGHT - 12) * point[1] / top:.1f}"

    parts = [
        f'<text x="{LEFT - 6}" y="16" text-anchor="end">{top:,.0f}</text>',
        f'<text x="{LEFT - 6}" y="{HEIGHT}" text-anchor="end">0</text>',
        f'<path d="M{LEFT},12V{HEIGHT}H{WIDTH}" fill="none" stroke="currentColor" opacity=".4"/>',
    ]
    ticks = [(across(x), f"{x:g}") for x in xs] if end is None else [(WIDTH, f"{end:,.0f} s")]
    for x, label in ticks:
        anchor = "start" if x == LEFT else "end" if x == WIDTH else "middle"
        parts.append(
            f'<text x="{x:.1f}" y="{HEIGHT + 16}" text-anchor="{anchor}">{escape(label)}</text>'
        )
    for number, (name, points) in enumerate(sorted(series.curves.items())):
        colour = COLOURS[number % len(COLOURS)]
        line = " ".join(map(place, points))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}"/>')
        parts.append(
            f'<text x="{LEFT + 8 + 90 * number}" y="10" style="fill:{colour}">{escape(name)}</text>'
        )
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT + BELOW}">{"".join(parts)}</svg>'
