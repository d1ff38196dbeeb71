"""The run as one picture: operations, faults, leaders, the ISR, the controller, drawn on one axis
of time.

Plain SVG in the page: no script, no library, nothing fetched.  Colours are classes of the page's
style sheet, so the picture follows a light or dark setting; a mark's meaning is in its <title>.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from highwater.verdict.headline import MENDING
from highwater.verdict.report.data import BINS, Fault, Flow, ReportData, Span

WIDTH, LEFT, RIGHT = 1180, 150, 12
PLOT = WIDTH - LEFT - RIGHT
RATE_HEIGHT, READ_HEIGHT, LATENCY_HEIGHT, ROW_HEIGHT, GAP = 120, 44, 50, 15, 16
FLOW_HEIGHT = 80
LETTER = 5.6
"""The usual width of a letter."""
MOST_LABELS = 8
"""Rows of faults' labels; the table below the picture has all."""


class Canvas:
    """Collects shapes from the top down; `y` is where the next panel begins."""

    def __init__(self, seconds: float) -> None:
        self.shapes: list[str] = []
        self.seconds = seconds
        self.y = 8.0

    def x(self, seconds: float) -> float:
        return LEFT + PLOT * min(max(seconds / self.seconds, 0.0), 1.0)

    def add(self, shape: str) -> None:
        self.shapes.append(shape)

    def rect(
        self, x: float, y: float, width: float, height: float, kind: str, title: str = ""
    ) -> None:
        inner = f"<title>{escape(title)}</title>" if title else ""
        self.add(
            f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.7):.1f}" '
            f'height="{height:.1f}">{inner}</rect>'
        )

    def text(self, x: float, y: float, text: str, kind: str = "label", anchor: str = "end") -> None:
        self.add(
            f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
            f"{escape(text)}</text>"
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str, title: str = "") -> None:
        inner = f"<title>{escape(title)}</title>" if title else ""
        self.add(
            f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}">'
            f"{inner}</line>"
        )


def draw(data: ReportData) -> str:
    """The <svg> element."""
    canvas = Canvas(data.seconds)
    data.faults.sort(key=lambda fault: fault.at)
    _label_faults(canvas, data)
    top = canvas.y
    if data.flow is not None:
        _flow(canvas, data.flow)
    else:
        _rates(canvas, data)
        _reads(canvas, data)
        _latency(canvas, data)
    brokers = broker_numbers(data)
    for name, spans in data.leaders.items():
        isr = data.isrs.get(name, [])
        _row(canvas, f"leader {name}", spans, lambda state: broker_class(state, brokers))
        _isr_strip(canvas, isr)
    if data.controllers:
        _row(canvas, "controller", data.controllers, lambda state: broker_class(state, brokers))
    for member in data.members():
        _row(canvas, f"{member} process", data.processes.get(member, []), str)
        if member in data.registrations:
            spans = data.registrations[member]
            kind = {True: "registered", False: "unregistered"}
            _row(canvas, "in ZooKeeper", spans, kind.__getitem__, height=ROW_HEIGHT - 2)
        canvas.y += 3
    _faults(canvas, data, top)
    _axis(canvas, top)
    height = canvas.y + (40 if _anomaly(canvas, data, top) else 24)
    body = "\n".join(canvas.shapes)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="timeline">\n{body}\n</svg>'
    )


def _rates(canvas: Canvas, data: ReportData) -> None:
    rates = data.rates
    kinds: Sequence[tuple[str, list[float], str]] = (
        ("acked", rates.acked, "acknowledged, acks=all"),
        ("unsafe", rates.unsafe, "acknowledged where a loss is allowed"),
        ("unknown", rates.unknown, "outcome unknown"),
        ("failed", rates.failed, "failed for certain"),
    )
    stacked = [sum(values[i] for _, values, _ in kinds) for i in range(BINS)]
    highest = _nice(max([*stacked, 1.0]))
    base = canvas.y + RATE_HEIGHT
    width = PLOT / BINS
    for i in range(BINS):
        y = base
        for kind, values, meaning in kinds:
            if values[i] > 0:
                height = RATE_HEIGHT * values[i] / highest
                y -= height
                at = i * data.rates.seconds
                title = f"{at:.1f} s: {values[i]:,.0f} sends/s {meaning}"
                canvas.rect(LEFT + i * width, y, width - 0.4, height, kind, title)
    canvas.text(LEFT - 8, canvas.y + 10, f"sent: {highest:,.0f} /s")
    canvas.text(LEFT - 8, base, "0")
    for loss in data.losses:
        kind = "expected-loss" if loss.expected else "loss"
        x = canvas.x(loss.at)
        what = "expected loss" if loss.expected else "LOST"
        canvas.line(x, base + 1, x, base + 8, kind, f"{what}: {loss.text}")
    if data.gap is not None and data.gap[1] > 0.5:
        begin, length = data.gap
        y = canvas.y + 4
        canvas.line(canvas.x(begin), y, canvas.x(begin + length), y, "gap", "longest gap")
        canvas.text(
            canvas.x(begin + length / 2), y + 12, f"no ack for {length:.1f} s", "note", "middle"
        )
    canvas.line(LEFT, base, WIDTH - RIGHT, base, "axis")
    canvas.y = base + GAP


def _reads(canvas: Canvas, data: ReportData) -> None:
    rates = data.rates
    highest = _nice(max([*rates.polled, 1.0]))
    base = canvas.y + READ_HEIGHT
    width = PLOT / BINS
    for i, value in enumerate(rates.polled):
        if value > 0:
            height = READ_HEIGHT * value / highest
            title = f"{i * rates.seconds:.1f} s: {value:,.0f} records/s read"
            canvas.rect(LEFT + i * width, base - height, width - 0.4, height, "polled", title)
    canvas.text(LEFT - 8, canvas.y + 10, f"read: {highest:,.0f} /s")
    if data.final_read_at is not None:
        x = canvas.x(data.final_read_at)
        canvas.line(x, canvas.y, x, base, "grid", "the full read at the end begins")
        canvas.text(x - 3, base - 4, "full read", "label", "end")
    canvas.line(LEFT, base, WIDTH - RIGHT, base, "axis")
    canvas.y = base + GAP


def _flow(canvas: Canvas, flow: Flow) -> None:
    """An application's input, and below it, on the same scale, its output."""
    both = [a + b for a, b in zip(flow.came, flow.again, strict=True)]
    highest = _nice(max([*flow.acknowledged, *both, 1.0]))
    fed = [("acked", flow.acknowledged, f"inputs/s acknowledged in {flow.source}")]
    out = [
        ("polled", flow.came, f"outputs/s in {flow.target}"),
        ("unknown", flow.again, f"outputs/s in {flow.target} that had come before"),
    ]
    for name, kinds in (("fed", fed), ("came out", out)):
        base = canvas.y + FLOW_HEIGHT
        width = PLOT / BINS
        for i in range(BINS):
            y = base
            for kind, values, meaning in kinds:
                if values[i] > 0:
                    height = FLOW_HEIGHT * values[i] / highest
                    y -= height
                    title = f"{i * flow.seconds:.1f} s: {values[i]:,.0f} {meaning}"
                    canvas.rect(LEFT + i * width, y, width - 0.4, height, kind, title)
        canvas.text(LEFT - 8, canvas.y + 10, f"{name}: {highest:,.0f} /s")
        canvas.text(LEFT - 8, base, "0")
        canvas.line(LEFT, base, WIDTH - RIGHT, base, "axis")
        canvas.y = base + GAP


def _latency(canvas: Canvas, data: ReportData) -> None:
    known = [v for v in data.rates.latency_ms if v is not None]
    if not known:
        return
    low, high = 0.0, max(math.log10(max(max(known), 1.0)), 1.0)
    base = canvas.y + LATENCY_HEIGHT
    width = PLOT / BINS
    for i, value in enumerate(data.rates.latency_ms):
        if value is not None:
            height = LATENCY_HEIGHT * (math.log10(max(value, 1.0)) - low) / (high - low)
            title = f"{i * data.rates.seconds:.1f} s: p99 of acks {value:,.1f} ms"
            canvas.rect(LEFT + i * width, base - height, width - 0.4, height, "latency", title)
    canvas.text(LEFT - 8, canvas.y + 10, f"p99 ack {10**high:,.0f} ms")
    canvas.text(LEFT - 8, base, "1 ms (log)")
    canvas.line(LEFT, base, WIDTH - RIGHT, base, "axis")
    canvas.y = base + GAP


def _row(
    canvas: Canvas,
    name: str,
    spans: list[Span],
    kind_of: Callable[[Any], str],
    height: int = ROW_HEIGHT,
) -> None:
    canvas.text(LEFT - 8, canvas.y + height - 4, name)
    for span in spans:
        x, width = canvas.x(span.begin), canvas.x(span.end) - canvas.x(span.begin)
        title = f"{span.begin:.2f}-{span.end:.2f} s: {span.note}"
        canvas.rect(x, canvas.y, width, height - 3, kind_of(span.state), title)
        if width > 16 and isinstance(span.state, int) and not isinstance(span.state, bool):
            text = str(span.state) if span.state >= 0 else "none"
            canvas.text(x + 4, canvas.y + height - 5, text, "inside", "start")
    canvas.y += height


def _isr_strip(canvas: Canvas, spans: list[Span]) -> None:
    """Draws the number of replicas in the ISR, under a partition's leaders."""
    largest = max((_size(s.state) for s in spans), default=0)
    for span in spans:
        missing = min(largest - _size(span.state), 3)
        x, width = canvas.x(span.begin), canvas.x(span.end) - canvas.x(span.begin)
        title = f"{span.begin:.2f}-{span.end:.2f} s: {span.note}"
        canvas.rect(x, canvas.y - 1, width, 4, f"isr-{missing}", title)
    if spans:
        canvas.y += 6


def _label_faults(canvas: Canvas, data: ReportData) -> None:
    """Labels stand above all panels, in rows in which they do not collide."""
    ends: list[float] = []
    left_out = 0
    for fault in data.faults:
        text, x = called(fault), canvas.x(fault.at)
        width = LETTER * len(text) + 8
        begin = min(x + 2, WIDTH - width)
        row = free_row(ends, begin, begin + width, MOST_LABELS)
        if row is None:
            left_out += 1
        else:
            mends = " mend" if fault.name in MENDING else ""
            canvas.text(begin, 12 + 12 * row, text, f"fault-label{mends}", "start")
    if left_out:
        canvas.text(LEFT - 8, 12, f"{left_out} more in the table", "label")
    canvas.y = 12.0 * len(ends) + 10


def called(fault: Fault) -> str:
    return f"{fault.name} {fault.target}".strip()


def free_row(ends: list[float], begin: float, end: float, most: int = 1000) -> int | None:
    """The first row that is free from `begin` on, which is taken up to `end` now; `ends` grows up
    to `most` rows."""
    for row, taken in enumerate(ends):
        if taken <= begin:
            ends[row] = end
            return row
    if len(ends) == most:
        return None
    ends.append(end)
    return len(ends) - 1


def _faults(canvas: Canvas, data: ReportData, top: float) -> None:
    """Draws lines through all panels."""
    for fault in data.faults:
        x = canvas.x(fault.at)
        mends = " mend" if fault.name in MENDING else ""
        kind = f"fault{mends}" if fault.effect is not None else "fault unseen"
        seen = f"effect: {fault.effect}" if fault.effect is not None else "NO VISIBLE EFFECT"
        title = f"{fault.at:.2f} s: {called(fault)}; {seen}"
        canvas.line(x, top - 4, x, canvas.y, kind, title)


def _anomaly(canvas: Canvas, data: ReportData, top: float) -> bool:
    """Marks when the first anomaly came to be; False where there is none."""
    extent = None if data.anomaly is None else data.anomaly.extent
    if extent is None:
        return False
    x, end = map(canvas.x, extent)
    title = f"the first anomaly, {extent[0]:.2f}-{extent[1]:.2f} s: its picture is below"
    canvas.rect(x - 2, top, max(end - x, 0) + 4, canvas.y - top, "window", title)
    late = x > WIDTH / 2
    text, anchor = ("the first anomaly ▲", "end") if late else ("▲ the first anomaly", "start")
    canvas.text(x + (4 if late else -4), canvas.y + 32, text, "note", anchor)
    return True


def _axis(canvas: Canvas, top: float) -> None:
    step = _nice(canvas.seconds / 10)
    at = 0.0
    while at <= canvas.seconds:
        x = canvas.x(at)
        canvas.line(x, top, x, canvas.y + 3, "grid")
        canvas.text(x, canvas.y + 16, f"{at:g} s", "label", "middle")
        at += step


def _nice(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    power: float = 10 ** math.floor(math.log10(value))
    return next(power * m for m in (1, 2, 5, 10) if power * m >= value)


def broker_numbers(data: ReportData) -> dict[Any, int]:
    states = {s.state for spans in data.leaders.values() for s in spans}
    states |= {s.state for s in data.controllers}
    known = sorted(s for s in states if isinstance(s, int) and s >= 0)
    return {broker: i % 6 for i, broker in enumerate(known)}


def broker_class(state: Any, numbers: dict[Any, int]) -> str:
    return f"broker-{numbers[state]}" if state in numbers else "nobody"


def _size(state: Any) -> int:
    return len(state) if isinstance(state, list) else 0
