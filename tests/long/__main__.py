"""Runs a long job, or goes on with it: `scripts/long NAME`."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import click

from highwater.simulation.run_log import commit
from tests.long.jobs import JOBS, Step, broken

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "long.md"
FOLDER = ROOT / "artifacts" / "long"


def run_step(step: Step, folder: Path) -> int:
    """The exit code of the command; what it prints goes into a file of the step's name."""
    with (folder / f"{step.name}.txt").open("a") as output:
        return subprocess.run(step.command, cwd=ROOT, stdout=output, stderr=output).returncode


def told(steps: list[Step], failed: list[str], folder: Path) -> str:
    """The result in a sentence: of commands that keep no log, the last line of the last one."""
    if not steps[-1].log:
        printed = (folder / f"{steps[-1].name}.txt").read_text().splitlines()
        ended = f"FAILED {', '.join(failed)}: " if failed else ""
        return f"{ended}{printed[-1] if printed else 'nothing was printed'}"
    logs = [step.log for step in steps if step.log is not None and step.log.exists()]
    seeds = sum(broken(log)[0] for log in logs)
    found = [line for log in logs for line in broken(log)[1]]
    sentence = f"{len(steps) - len(failed)} of {len(steps)} commands ended well"
    if logs:
        sentence += f"; {seeds:,} seeds, {len(found)} broken"
    return sentence + "".join(f"; {line}" for line in found)


def keep(name: str, commits: str, result: str) -> None:
    """The job's row of docs/long.md, in place of the one before."""
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    row = f"| `scripts/long {name}` | {JOBS[name].what} | {day} | {commits} | {result} |"
    text = PAGE.read_text()
    known = re.compile(rf"^\| `scripts/long {re.escape(name)}` \|.*$", re.MULTILINE)
    PAGE.write_text(known.sub(lambda _: row, text) if known.search(text) else f"{text}{row}\n")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name", required=False)
@click.option("--slice", "a_slice", is_flag=True, help="Two minutes of it; docs stay as they are.")
@click.option(
    "--only", metavar="TEXT", default="", help="The steps whose names begin so; others wait."
)
@click.option("--again", is_flag=True, help="From the start, not from where it was cut off.")
def main(name: str | None, a_slice: bool, only: str, again: bool) -> None:
    """Runs one of the long jobs, or goes on with it where it was cut off, and keeps its result in
    docs/long.md.  Without NAME, lists them.

    \b
    Example:
      scripts/long pairs
      scripts/long targets --only 2.4.0
    """
    if name is None:
        for key, job in JOBS.items():
            click.echo(f"{key:15} {job.what}")
        return
    if name not in JOBS:
        raise click.UsageError(f"there is no job {name}; use one of {', '.join(JOBS)}")
    folder = FOLDER / (f"{name}-slice" if a_slice else name)
    folder.mkdir(parents=True, exist_ok=True)
    ended, begun = folder / "ended", folder / "commits"
    if again or a_slice:
        shutil.rmtree(folder)
        folder.mkdir()
    with begun.open("a") as commits:
        commits.write(f"{commit()}\n")
    steps, failed = list(JOBS[name].steps(folder, a_slice)), []
    wanted = [step for step in steps if step.name.startswith(only)]
    if not wanted:
        raise click.UsageError(f"no step of {name} begins with {only!r}")
    done = set(ended.read_text().split()) if ended.exists() else set()
    ran = False
    for number, step in enumerate(wanted, 1):
        if step.name in done and not (ran and step.sums):
            continue
        ran = True
        started = time.monotonic()
        code = run_step(step, folder)
        took = f"{time.monotonic() - started:.0f} s"
        click.echo(f"{number} of {len(wanted)}  {step.name}: exit code {code}, {took}")
        if code:
            failed.append(step.name)
            continue
        with ended.open("a") as names:
            names.write(f"{step.name}\n")
    result = told(wanted, failed, folder)
    click.echo(f"{result}; what was printed is in {folder}")
    if not (a_slice or only):
        keep(name, ", ".join(dict.fromkeys(begun.read_text().split())), result)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
