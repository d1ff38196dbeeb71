"""The first anomaly as a picture: a lane for each client, its acts as bars over real time, and who
led meanwhile.

A run's acts about one record may lie milliseconds apart and then a minute: so a pause without any
moment of the story is cut short, and its length stands at the cut.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from itertools import pairwise
from statistics import median
from typing import Final

from highwater.verdict.headline import MENDING
from highwater.verdict.report.anomaly import Act, Anomaly
from highwater.verdict.report.data import Fault, ReportData, Span
from highwater.verdict.report.timeline import (
    LEFT,
    LETTER,
    PLOT,
    RIGHT,
    WIDTH,
    Canvas,
    broker_class,
    broker_numbers,
    called,
    free_row,
)

LANE, BAR = 18, 12
LONG_PAUSE: Final = 6
"""A pause longer than so many usual ones is cut short, if it is also a quarter of the rest."""
LEAST_SHARE: Final = 1 / 90
"""Of the axis for two moments that follow each other, so that their order can be seen."""
TICKS_APART: Final = 74


class BrokenAxis(Canvas):
    """An axis of time whose long pauses are cut short."""

    def __init__(self, moments: list[float]) -> None:
        super().__init__(moments[-1] if moments else 1.0)
        self.moments = sorted(set(moments))
        gaps = [b - a for a, b in pairwise(self.moments)]
        rest = sum(gaps) - max(gaps, default=0.0)
        self.longest = max(LONG_PAUSE * median(gaps), rest / 4) if gaps else 0.0
        shown = [min(gap, self.longest) for gap in gaps]
        least = sum(shown) * LEAST_SHARE
        ends = [0.0]
        for width in shown:
            ends.append(ends[-1] + max(width, least))
        whole = ends[-1] or 1.0
        self.places = [LEFT + 12 + (PLOT - 24) * end / whole for end in ends]

    def x(self, seconds: float) -> float:
        index = bisect_right(self.moments, seconds) - 1
        if index < 0:
            return self.places[0]
        if index >= len(self.moments) - 1:
            return self.places[-1]
        begin, end = self.moments[index], self.moments[index + 1]
        share = (seconds - begin) / (end - begin)
        return self.places[index] + share * (self.places[index + 1] - self.places[index])

    def cuts(self) -> list[tuple[float, float]]:
        """The place and the length of each pause that is cut short."""
        spans = zip(pairwise(self.places), pairwise(self.moments), strict=True)
        return [((a + b) / 2, end - begin) for (a, b), (begin, end) in spans
                if end - begin > self.longest]  # fmt: skip


def draw(anomaly: Anomaly, data: ReportData) -> str:
    """The <svg> element; empty where the anomaly has no acts."""
    if not anomaly.acts:
        return ""
    first, last = min(a.begin for a in anomaly.acts), max(a.end for a in anomaly.acts)
    leaders = _within(data.leaders.get(anomaly.partition, []), first, last)
    faults = [fault for fault in data.faults if first <= fault.at <= _until(anomaly, leaders)]
    moments = [moment for act in anomaly.acts for moment in (act.begin, act.end)]
    moments += [span.begin for span in leaders if span.begin > first]
    moments += [fault.at for fault in faults]
    canvas = BrokenAxis(moments)
    _faults(canvas, faults)
    top = canvas.y
    _lanes(canvas, anomaly.acts)
    _leaders(canvas, leaders, data, last)
    for x, length in canvas.cuts():
        canvas.line(x, top, x, canvas.y, "cut", f"{length:.3f} s in which nothing of this happened")
        canvas.text(x, canvas.y + 26, f"⋯ {length:.1f} s ⋯", "label", "middle")
    for fault in faults:
        x, mends = canvas.x(fault.at), " mend" if fault.name in MENDING else ""
        canvas.line(x, top, x, canvas.y, f"fault{mends}", _said(fault))
    _ticks(canvas)
    body = "\n".join(canvas.shapes)
    return (
        f'<svg viewBox="0 0 {WIDTH} {canvas.y + 32:.0f}" role="img" '
        f'aria-label="the first anomaly">\n{body}\n</svg>'
    )


def _until(anomaly: Anomaly, leaders: list[Span]) -> float:
    """Faults may belong to the story up to here: until the leader has changed twice after the last
    act, as what one leader loses shows when the next one has come; the full read is no part."""
    acts = [act.end for act in anomaly.acts if not act.final]
    last = max(acts, default=0.0)
    changes = [span.begin for span in leaders if span.begin > last]
    return max([last, *changes[:2]])


def _within(spans: list[Span], first: float, last: float) -> list[Span]:
    return [span for span in spans if span.end >= first and span.begin <= last]


def _said(fault: Fault) -> str:
    return f"{fault.at:.2f} s: {called(fault)}"


def _faults(canvas: BrokenAxis, faults: list[Fault]) -> None:
    rows: list[float] = []
    for fault in faults:
        text, x = called(fault), canvas.x(fault.at)
        row = free_row(rows, x, x + LETTER * len(text) + 8) or 0
        mends = " mend" if fault.name in MENDING else ""
        canvas.text(x + 2, canvas.y + 8 + 12 * row, text, f"fault-label{mends}", "start")
    canvas.y += 12 * len(rows) + 4


def _lanes(canvas: BrokenAxis, acts: list[Act]) -> None:
    lanes: dict[str, list[Act]] = defaultdict(list)
    for act in acts:
        lanes[act.process].append(act)
    for process, its in lanes.items():
        rows: list[float] = []
        canvas.text(LEFT - 8, canvas.y + BAR, _short(process), "label")
        for act in its:
            x, width = canvas.x(act.begin), max(canvas.x(act.end) - canvas.x(act.begin), 3.0)
            room = LETTER * len(act.text) + 10
            inside = x + width + room > WIDTH - RIGHT  # no room behind the bar
            begin = x - room if inside else x
            row = free_row(rows, begin, x + width + (0 if inside else room)) or 0
            y = canvas.y + LANE * row
            title = f"{act.begin:.3f}-{act.end:.3f} s: {process} {act.text}"
            kind = _COLOURS.get(act.outcome) or ("acked" if act.kind == "send" else "polled")
            canvas.rect(x, y, width, BAR, kind if act.own else f"{kind} other", title)
            text = x - 4 if inside else x + width + 4
            about = "story-label" if act.own else "label"
            canvas.text(text, y + BAR - 2, act.text, about, "end" if inside else "start")
        canvas.y += LANE * len(rows) + 2
        canvas.line(LEFT, canvas.y - 2, WIDTH - RIGHT, canvas.y - 2, "grid")


_COLOURS: Final = {"fail": "failed", "info": "unknown"}


def _leaders(canvas: BrokenAxis, spans: list[Span], data: ReportData, last: float) -> None:
    if not spans:
        return
    canvas.text(LEFT - 8, canvas.y + BAR, "leader", "label")
    numbers = broker_numbers(data)
    for span in spans:
        x, end = canvas.x(span.begin), canvas.x(min(span.end, last))
        said = f"broker {span.state}" if isinstance(span.state, int) and span.state >= 0 else "none"
        title = f"{span.begin:.2f}-{span.end:.2f} s: {span.note}"
        canvas.rect(x, canvas.y, end - x, BAR, broker_class(span.state, numbers), title)
        if end - x > LETTER * len(said) + 6:
            canvas.text(x + 4, canvas.y + BAR - 3, said, "inside", "start")
    canvas.y += LANE


def _ticks(canvas: BrokenAxis) -> None:
    canvas.line(LEFT, canvas.y, WIDTH - RIGHT, canvas.y, "axis")
    before = -1e9
    for moment in canvas.moments:
        x = canvas.x(moment)
        if x - before >= TICKS_APART:
            canvas.line(x, canvas.y, x, canvas.y + 4, "axis")
            canvas.text(x, canvas.y + 15, f"{moment:.3f} s", "label", "middle")
            before = x


def _short(process: str) -> str:
    """The end of a name that is too long for the margin."""
    return process if len(process) <= 24 else f"…{process[-23:]}"
