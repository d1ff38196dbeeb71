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

from highwater.bench.benchmark import option
from highwater.bench.everything import page
from highwater.bench.everything.comparison import MEASURES, NAMES
from highwater.bench.everything.measures import Measure, Result
from highwater.bench.everything.turns import DEFAULT, FULL, QUICK, Plan, Turns
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
        if self.file is not None:
            part = self.file.with_name(self.file.name + ".part")
            part.write_text(json.dumps(self.as_json(), indent=1) + "\n")
            part.replace(self.file)

    def as_json(self) -> dict[str, Any]:
        found = {name: result.as_json() for name, result in self.results.items()}
        return {"about": self.about, "results": found}


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


@dataclass(frozen=True, slots=True)
class Options:
    rows: tuple[str, ...] = option(
        NAMES, "Measure this row alone, as `bench NAME` does.", flag="--row", of=NAMES
    )
    full: bool = option(False, "30 kills, and the restart of 10 GiB: some hours more.")
    quick: bool = option(False, "Tiny sizes: a test of the command, no measurement.")
    minutes: float = option(90.0, "No row begins after that.", least=0)
    json_file: Path = option(
        Path("bench-all.json"),
        "Each row's figures, as soon as they are there: the same command again goes on, also at a"
        " later commit, which the table tells.",
        flag="--json",
    )
    validation: str = option(
        "full", f"What Highwater checks of a produced batch ({VALIDATION}).", of=("full", "headers")
    )
    again: bool = option(False, "Measure again the rows that the file has already.")

    def __post_init__(self) -> None:
        if self.full and self.quick:
            raise ValueError("--full and --quick exclude each other")

    @property
    def size(self) -> str:
        return "full" if self.full else "quick" if self.quick else "default"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The rows that were asked for, and the results of all."""

    rows: Sequence[str]
    kept: Kept
    theirs: str

    def text(self) -> str:
        return page.text([m for m in MEASURES if m.name in self.rows], self.kept.results)

    def markdown(self) -> str:
        about = self.kept.about
        facts = f"{about['memory_gib']} GiB, Python {about['python']}; size {about['size']}"
        note = "medians (least to greatest of how many), and the ratio, above 1 where Highwater is"
        table = page.markdown(MEASURES, self.kept.results, self.theirs)
        return f"{facts}: {note} ahead.\n\n{table}"

    def html(self, _sentence: str) -> str:
        return page.page(MEASURES, self.kept.results, self.kept.about, self.theirs)

    def as_json(self) -> dict[str, Any]:
        return self.kept.as_json()

    def problem(self) -> str:
        failed = [r.name for r in self.kept.results.values() if r.reason.startswith("failed")]
        return f"failed: {', '.join(failed)}" if failed else ""


async def run(options: Options, sides: Sides) -> Comparison:
    sides.ours.properties = {VALIDATION: options.validation}
    kept = Kept.load(options.json_file, about(options.size, sides.sides))
    wanted = [measure for measure in MEASURES if measure.name in options.rows]
    for measure in wanted if options.again else ():
        kept.results.pop(measure.name, None)
    plan = {"full": FULL, "quick": QUICK, "default": DEFAULT}[options.size]
    full = options.full or options.quick
    await measured(wanted, plan, sides, kept, full=full, minutes=options.minutes)
    return Comparison(options.rows, kept, sides.theirs or "nothing")


async def measured(
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
    result.busy = round(await _others(), 3)
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
    result.seconds = round(time.monotonic() - began, 1)
    result.load = [round(load, 2) for load in (before, os.getloadavg()[0])]
    return result


async def _others() -> float:
    """The share of the CPUs in use while this command and its clusters have nothing to do."""
    psutil.cpu_percent()
    await trio.sleep(LOOK_S)
    return psutil.cpu_percent() / 100
