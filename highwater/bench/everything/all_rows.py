"""Runs the rows one after the other, and keeps each result in a file as soon as it is there.

A run that was interrupted goes on where it ended: results of the same machine and size are kept,
each with its commit, which the table tells.  A row that fails is noted with its reason, and the
others go on.  When the time is up, the rows that are left say so.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import trio

from highwater.bench.everything.measures import Measure, Result
from highwater.bench.everything.turns import Plan, Turns
from highwater.bench.figures.sides import Side, Sides
from highwater.child_processes import StartError
from highwater.cluster.interface import ClusterError
from highwater.kafka.wire.compiled import compiled

LOOK_S = 1.0
_FAILURES = (StartError, ClusterError, OSError, trio.TooSlowError)


VALIDATION = "highwater.produce.validation"


@dataclass(slots=True)
class Kept:
    """The results so far, and what they were measured on; `file` None keeps them in memory."""

    file: Path | None
    about: dict[str, Any]
    results: dict[str, Result] = field(default_factory=dict)

    @staticmethod
    def load(file: Path | None, about: dict[str, Any]) -> Kept:
        """What the file has; StartError where it is none, or of other settings."""
        kept = Kept(file, about)
        if file is None or not file.exists():
            return kept
        try:
            found = json.loads(file.read_text())
            before = {name: found["about"].get(name) for name in about}
            of = str(before.pop("commit", ""))
            before.pop("build", None)
            results = {n: Result.of_json(n, r, of) for n, r in found["results"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StartError(
                f"{file} is not a file of `highwater bench all` ({error}): name another, or "
                "remove it"
            ) from error
        differs = [f"{name} {was}" for name, was in before.items() if was != about[name]]
        if results and differs:
            raise StartError(
                f"{file} has figures of other settings ({', '.join(differs)}), which do not "
                "belong in one table with these: give the options of then, or name another file "
                "with --json"
            )
        kept.results = results
        return kept

    def add(self, result: Result) -> None:
        self.results[result.name] = result
        self.save()

    def save(self) -> None:
        if self.file is None:
            return
        found = {name: result.as_json() for name, result in self.results.items()}
        part = self.file.with_name(self.file.name + ".part")
        part.write_text(json.dumps({"about": self.about, "results": found}, indent=1) + "\n")
        part.replace(self.file)


def about(size: str, sides: Sequence[Side]) -> dict[str, Any]:
    """The settings that all results of one table share, but for earlier ones' commit and build."""
    validation = sides[0].properties.get(VALIDATION, "full")
    return {
        "size": size,
        "sides": [side.name for side in sides],
        "commit": commit(),
        "build": f"{'compiled' if compiled() else 'pure'}, {validation}",
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "python": platform.python_version(),
    }


def commit() -> str:
    """The short name of the clone's commit, with a `+` where files differ; "" elsewhere."""
    here = Path(__file__).parent
    try:
        done = [
            subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True)
            for words in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "-uno"])
        ]
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done[0].stdout.strip() + "+" * bool(done[1].stdout.strip())


async def run(
    measures: Sequence[Measure],
    plan: Plan,
    sides: Sides,
    kept: Kept,
    *,
    full: bool,
    minutes: float,
) -> None:
    """Measures what `kept` lacks, and adds it there."""
    ends = time.monotonic() + minutes * 60
    async with AsyncExitStack() as stack:
        turns = Turns(plan, sides, stack)
        for measure in measures:
            known = kept.results.get(measure.name)
            if known is not None and known.measured:
                sides.progress(f"{measure.name}: kept from {known.date}, commit {known.commit}")
                continue
            result = await _one(measure, turns, _reason(measure, full, ends, minutes))
            result.commit, result.build = kept.about["commit"], kept.about["build"]
            kept.add(result)


def _reason(measure: Measure, full: bool, ends: float, minutes: float) -> str:
    if measure.full and not full:
        return "only with --full"
    if time.monotonic() > ends:
        return f"the {minutes:g} minutes were over; the same command again measures it"
    return ""


async def _one(measure: Measure, turns: Turns, reason: str) -> Result:
    result = Result(measure.name, time.strftime("%Y-%m-%d %H:%M"), reason=reason)
    if reason:
        return result
    result.busy = await _others()
    before, began = os.getloadavg()[0], time.monotonic()
    if not result.quiet:
        turns.progress(
            f"{measure.name}: others use {result.busy:.0%} of the CPUs, load {before:.1f}: only "
            "the ratio says something, if anything does"
        )
    turns.progress(f"{measure.name}: some {measure.minutes:g} minutes")
    try:
        result.samples = await measure.samples(turns)
    except _FAILURES as error:
        result.reason = f"failed: {error}"
        turns.progress(f"{measure.name}: {result.reason}")
    result.seconds = time.monotonic() - began
    result.load = (before, os.getloadavg()[0])
    return result


async def _others() -> float:
    """The share of the CPUs in use while this command and its clusters have nothing to do."""
    psutil.cpu_percent()
    await trio.sleep(LOOK_S)
    return psutil.cpu_percent() / 100
