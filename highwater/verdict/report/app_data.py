"""The page's data on a run of `highwater chaos --app`: what was fed, and what came out.

The application writes no history: its traffic is counted by the harness (`traffic.jsonl`), and its
verdict is a contract's.  Everything else is drawn as for other runs.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any, Final

from highwater.verdict.report.data import (
    BINS,
    Flow,
    Rates,
    ReportData,
    faults_of,
    json_lines,
    members_spans,
)
from highwater.verdict.tables import RunUnreadable

ABOUT: Final = "app.json"
TRAFFIC: Final = "traffic.jsonl"
_COUNTS: Final = ("acknowledged", "came", "again")


def is_app(run: Path) -> bool:
    return (run / ABOUT).is_file()


def gather(run: Path) -> ReportData:
    """Raises RunUnreadable where the run did not come to its verdict."""
    verdict_file = run / "verdict.json"
    if not verdict_file.is_file():
        raise RunUnreadable(f"{run} holds no verdict.json: the run did not come to its end")
    about: dict[str, Any] = json.loads((run / ABOUT).read_text(encoding="utf-8"))
    judged: dict[str, Any] = json.loads(verdict_file.read_text(encoding="utf-8"))
    traffic = json_lines(run / TRAFFIC)
    origin = int(traffic[0]["t_ns"]) if traffic else 0
    seconds = max((int(traffic[-1]["t_ns"]) - origin) / 1e9, 0.001) if traffic else 1.0
    last = traffic[-1] if traffic else dict.fromkeys(("sent", *_COUNTS), 0)
    topics = {about["input"], about["output"]}
    spans = members_spans(run, origin, seconds)
    for rows in (spans["leaders"], spans["isrs"]):
        for name in [n for n in rows if n.rpartition("-")[0] not in topics]:
            del rows[name]  # a partition of __consumer_offsets: too many rows for a reader
    operations = {
        f"sent to {about['input']}": last["sent"],
        "acknowledged": last["acknowledged"],
        "of unknown outcome": last["sent"] - last["acknowledged"],
        f"came out in {about['output']}": last["came"],
        "came out again": last["again"],
    }
    of_run = {"seed": about["seed"], "runtime": about["runtime"], "spark": None}
    return ReportData(
        info=about,
        verdict={**judged, **of_run, "operations": operations, "expected_losses": None, "seen": {}},
        seconds=seconds,
        rates=Rates(seconds=seconds / BINS),
        faults=faults_of(run, origin),
        losses=[],
        final_read_at=None,
        gap=None,
        clients=[],
        flow=_flow(traffic, origin, seconds, about["input"], about["output"]),
        **spans,
    )


def _flow(lines: list[dict[str, Any]], origin: int, seconds: float, source: str, to: str) -> Flow:
    """Records a second, from lines that count from the beginning: what a line adds is spread over
    the bins since the line before it."""
    flow = Flow(source, to, seconds / BINS)
    for before, line in itertools.pairwise(lines):
        first, last = (
            min(int((int(each["t_ns"]) - origin) / 1e9 / flow.seconds), BINS - 1)
            for each in (before, line)
        )
        for name in _COUNTS:
            values: list[float] = getattr(flow, name)
            added = (line[name] - before[name]) / flow.seconds / (last - first + 1)
            for at in range(first, last + 1):
                values[at] += added
    return flow
