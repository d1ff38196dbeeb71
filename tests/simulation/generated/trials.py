"""Runs each mutant of a sample, and keeps a row for it.

A mutant has at most 60 CPU seconds, its process's start included: first the seeds of the map that
run its statement, then further seeds with the same options.  The first broken rule ends it.

| verdict | meaning |
|---|---|
| found | a rule was broken; the row names it, and the command that replays that seed |
| hangs | a seed did not end: its CPU seconds, or a quarter of an hour, were over in the middle of |
| | a run that usually takes a small part of them. It counts as found: a person would see it |
| error | no rule was broken, but the harness itself ended with an exception; not found |
| survived | nothing of these |
| not reached | no seed of the map runs its statement; not found, and not run |

Rows are lines of JSON.  A row counts as long as its function has the same text, so a run that was
cut off goes on, and what has changed is run again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from highwater.simulation.run_log import commit
from tests.simulation.generated.maker import ROOT, Made
from tests.simulation.generated.reach import FURTHER as FIRST_FURTHER
from tests.simulation.generated.reach import Reach

CPU_S = 60
WALL_S = 900
FURTHER = 60
HANGS = 8
"""So many times the usual cost of a run, and five seconds more, is a hang."""

Row = dict[str, Any]
FOUND = ("found", "hangs")
UNFOUND = ("survived", "error")
"""Of those that a seed reaches."""


@dataclass
class Rows:
    """The rows of a file, by mutant; a later line replaces an earlier one."""

    path: Path
    rows: dict[str, Row] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Rows:
        lines = path.read_text().splitlines() if path.exists() else []
        rows = [json.loads(line) for line in lines if line.endswith("}")]
        return cls(path, {row["id"]: row for row in rows})

    def of(self, made: Made) -> Row | None:
        """Its row, unless its function has changed since."""
        row = self.rows.get(made.id)
        return row if row is not None and row["around"] == made.around else None

    def add(self, row: Row) -> None:
        self.rows[row["id"]] = row
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(f"\n{json.dumps(row)}")  # a line that was torn off stays alone


def try_out(made: Made, reach: Reach, cpu_s: int = CPU_S) -> Row:
    """The row of one mutant."""
    runs = reach.covering(made) + reach.further(made, FURTHER)
    row: Row = {
        "id": made.id, "around": made.around, "line": made.line, "room": made.room,
        "rule": made.rule, "source": made.source, "text": made.text, "commit": commit(),
        "covering": len(reach.covering(made)),
    }  # fmt: skip
    if not runs:
        return {**row, "verdict": "not reached"}
    source = made.applied((ROOT / made.file).read_bytes()).decode()
    request = {"sources": {made.file: source}, "marked": [], "cpu": cpu_s, "runs": runs}
    lines, timed_out, complaint = _trial(request)
    told = verdict(lines, runs, cpu_s=cpu_s, timed_out=timed_out, complaint=complaint)
    if told["verdict"] == "found" and told["seed"] >= FIRST_FURTHER:
        _insist_on_a_clean_run(next(run for run in runs if run["seed"] == told["seed"]))
    return {**row, **told}


def _insist_on_a_clean_run(run: Row) -> None:
    """The map's runs are known to be clean; any other seed has to be clean without the mutant."""
    lines, _, complaint = _trial({"sources": {}, "marked": [], "cpu": 0, "runs": [run]})
    if not lines or {"rule", "error"} & lines[-1].keys():
        raise RuntimeError(f"{run} fails without a mutant: {lines[-1:] or complaint}")


def verdict(
    lines: Sequence[Row], runs: Sequence[Row], *, cpu_s: int, timed_out: bool, complaint: str
) -> Row:
    """What the lines of a trial's process say."""
    ended = [line for line in lines if "end" in line]
    told: Row = {"runs": len(ended), "cpu": ended[-1]["used"] if ended else 0.0}
    broken = next((line for line in ended if "rule" in line), None)
    if broken is not None:
        seed = runs[broken["end"]]["seed"]
        named = {"by": broken["rule"], "what": broken["what"], "replay": broken["replay"]}
        return {**told, "verdict": "found", "seed": seed, **named}
    last = lines[-1] if lines else {}
    if "begin" in last:  # it did not end
        run = runs[last["begin"]]
        told["cpu"] = float(cpu_s)
        if timed_out or cpu_s - last["used"] > HANGS * run["cost"] + 5:
            return {**told, "verdict": "hangs", "what": f"seed {run['seed']} {run['options']}"}
    error = next((line["error"] for line in ended if "error" in line), "")
    if error or (not lines and complaint):
        return {**told, "verdict": "error", "what": error or complaint}
    return {**told, "verdict": "survived"}


def _trial(request: Row) -> tuple[list[Row], bool, str]:
    """The lines that the process told, whether it was ended by the clock, its last complaint."""
    command = [sys.executable, "-O", "-m", "tests.simulation.generated.trial"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    ) as process:  # fmt: skip
        timed_out = False
        try:
            out, complaint = process.communicate(json.dumps(request), timeout=WALL_S)
        except subprocess.TimeoutExpired:
            process.kill()
            out, complaint = process.communicate()
            timed_out = True
    lines = [json.loads(line) for line in out.splitlines() if line.endswith("}")]
    return lines, timed_out, complaint.strip()[-300:]


def left(chosen: Iterable[Made], rows: Rows) -> list[Made]:
    return [made for made in chosen if rows.of(made) is None]
