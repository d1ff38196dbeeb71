"""The log of a long run: one JSON line a seed, so that an interrupted run can go on.

The first line has the options and the commit; a run that goes on at another commit adds another
such line.  A run that is split over several machines, or by Spark, has several such files, or one
that is their concatenation: all must have the same options, and a seed counts once.  `page`
renders the options and all counts; docs/simulation.md keeps its first row:

    python -m highwater.simulation.run_log run.jsonl [more.jsonl ...]
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from highwater.simulation.faults.random_faults import WEIGHTS
from highwater.simulation.options import Options
from highwater.simulation.seed_outcome import Outcome
from highwater.simulation.seeds import Summary, as_arguments

_ROOT = Path(__file__).resolve().parents[2]


class LogProblem(Exception):
    """A log cannot be used; the message says why, and how to go on."""


def asked(options: Options) -> dict[str, Any]:
    """The options that must be equal for two runs to be comparable."""
    values = asdict(options)
    del values["trace"], values["coverage"]
    return values


def _usual() -> dict[str, Any]:
    """The default options, as they would be read from JSON."""
    return cast("dict[str, Any]", json.loads(json.dumps(asked(Options()))))


def commit() -> str:
    """The source tree's commit, with + where files differ from it; "unknown" without git."""
    answers = []
    for command in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "-uno"]):
        done = subprocess.run(
            ["git", *command], cwd=_ROOT, capture_output=True, text=True, check=False
        )
        if done.returncode:
            return "unknown"
        answers.append(done.stdout.strip())
    return answers[0] + ("+" if answers[1] else "")


class RunLog:
    """Appends to a log; `done` are the seeds that the file has already."""

    def __init__(self, path: Path, options: Options) -> None:
        self._path = path
        self.done: list[Outcome] = []
        if path.exists() and path.stat().st_size:
            head, self.done = read([path])
            if head["asked"] != json.loads(json.dumps(asked(options))):
                raise LogProblem(
                    f"{path} was made with other options ({head['asked']}): name another file"
                )
            _cut_torn_line(path)
            if commit() in head["commits"]:
                return
        self._write({"asked": asked(options), "commit": commit(), "started": _now()})

    def add(self, outcome: Outcome) -> None:
        self._write(outcome.as_dict())

    def _write(self, line: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def read(paths: Iterable[Path]) -> tuple[dict[str, Any], list[Outcome]]:
    """The options of the run, and every seed's outcome once."""
    head: dict[str, Any] = {}
    found: dict[int, Outcome] = {}
    for path in paths:
        for line in _lines(path):
            if "seed" in line:
                outcome = Outcome.from_dict(line)
                found.setdefault(outcome.seed, outcome)
                continue
            line["asked"] = _usual() | line["asked"]  # an older line may lack a newer option
            if head and head["asked"] != line["asked"]:
                raise LogProblem(f"{path} was made with other options than the files before it")
            commits = dict.fromkeys([*head.get("commits", []), line["commit"]])
            head = {**line, **head, "commits": list(commits)}
    if not head:
        raise LogProblem("nothing was run: the files hold no line of a run")
    return head, [found[seed] for seed in sorted(found)]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(text)
        except ValueError:
            continue  # torn when the run was interrupted


def _cut_torn_line(path: Path) -> None:
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    if end < len(data):
        with path.open("r+b") as file:
            file.truncate(end)


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"


# -- the page -------------------------------------------------------------------------------------


ROW = (
    "begun", "commits", "`highwater sim` …", "seeds", "broken", "virtual time",
    "steps, checks", "pairs of kinds of faults at once", "losses as expected", "never happened",
)  # fmt: skip


def _row(head: dict[str, Any], outcomes: list[Outcome], summary: Summary) -> tuple[str, ...]:
    first, last = outcomes[0].seed, outcomes[-1].seed
    missing = last - first + 1 - len(outcomes)
    given = " ".join([f"--seeds {first}..{last}", *as_arguments(Options(**head["asked"]))])
    kinds = len(WEIGHTS)
    return (
        head["started"].split()[0],
        ", ".join(head["commits"]),
        f"`{given}`",
        f"{len(outcomes):,}" + (f", {missing} missing" if missing else ""),
        f"**{len(summary.broken)}**",
        f"{summary.virtual_seconds:,.0f} s in {summary.simulated_seconds / 3600:.1f} core hours",
        f"{summary.steps:,}, {summary.checks:,}",
        f"{len(summary.pairs)} of {kinds * (kinds + 1) // 2}, {summary.pairs.total():,} times",
        f"{summary.expected_losses:,}",
        ", ".join(summary.never()) or "nothing of what is counted",
    )


def page(paths: Iterable[Path]) -> str:
    """The run as Markdown: its row, the seeds that break a rule, and all counts."""
    head, outcomes = read(paths)
    summary = Summary()
    for outcome in outcomes:
        summary.add(outcome)
    row = _row(head, outcomes, summary)
    lines = [f"| {' | '.join(line)} |" for line in (ROW, ("---",) * len(ROW), row)]
    lines.append("")
    lines += [f"- seed {o.seed}: {o.violation}; `{o.replay}`" for o in summary.broken]
    for title, counts in (
        ("Faults, and what was held", summary.faults),
        ("Faults that found nothing to break", summary.skipped),
        ("Seen in the cluster", summary.seen),
        ("Operations of clients", summary.operations),
        ("Errors that clients met", summary.errors),
    ):
        lines += ["", f"| {title} | times |", "|---|---|"]
        lines += [f"| {name} | {count} |" for name, count in sorted(counts.items())]
    lines += ["", "Two faults at once, and how often:", ""]
    lines += [", ".join(f"{pair} {count}" for pair, count in sorted(summary.pairs.items()))]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit((__doc__ or "").strip())
    sys.stdout.write(page(Path(name) for name in sys.argv[1:]))
