"""Many runs of each mutant and of the clean build, and the table of them.

    python -m tests.integration.mutants [--runs 5] [--out DIR] [ID ...]

Each run is judged as in the tests: a mutant must be flagged by a check that its case names, the
clean build must be valid.  Folders of runs with the right outcome are removed, others are kept and
named.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from tests.integration.mutants.runs import CASES, Case, Outcome, run
from tests.simulation.mutation import mutated_tree

HEAD = (
    "| mutant | what is broken | schedule | flagged | by (runs, violations in each) "
    "| clean valid | void, mutant / clean | seconds a run, mutant / clean |\n"
    "|---|---|---|---|---|---|---|---|"
)


@click.command()
@click.option("--runs", default=5, show_default=True, help="Runs of each mutant, and clean ones.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the runs' folders are made.  [default: a new temporary folder]",
)
@click.argument("ids", nargs=-1, type=int)
def main(runs: int, out: Path | None, ids: tuple[int, ...]) -> None:
    folder = out or Path(tempfile.mkdtemp(prefix="highwater-mutants-"))
    rows: list[str] = []
    wrong = 0
    for case in CASES:
        if ids and case.id not in ids:
            continue
        mutated = _series(case, True, runs, folder)
        clean = _series(case, False, runs, folder)
        row, missed = _row(case, mutated, clean)
        rows.append(row)
        wrong += missed
    click.echo("\n".join([HEAD, *rows]))
    sys.exit(1 if wrong else 0)


def _is_flagged(outcome: Outcome, case: Case) -> bool:
    return outcome.verdict == "invalid" and bool(outcome.flagged_by(case.checks))


def _series(case: Case, mutated: bool, runs: int, folder: Path) -> list[Outcome]:
    outcomes = []
    with mutated_tree(case.mutant if mutated else None) as source:
        for seed in range(1, runs + 1):
            name = f"{case.id}-{'mutant' if mutated else 'clean'}-{seed}"
            outcome = run(case.schedule, source, folder / name, seed)
            good = _is_flagged(outcome, case) if mutated else outcome.verdict == "valid"
            if good:
                shutil.rmtree(outcome.folder)
            where = "" if good else f"  NOT AS IT SHOULD BE, kept in {outcome.folder}"
            click.echo(
                f"{name}: {outcome.verdict} {outcome.violations} {outcome.seconds:.0f} s{where}",
                err=True,
            )
            outcomes.append(outcome)
    return outcomes


def _row(case: Case, mutated: Sequence[Outcome], clean: Sequence[Outcome]) -> tuple[str, int]:
    """A row of the table, and the number of runs with a wrong outcome."""
    flagged = sum(_is_flagged(o, case) for o in mutated)
    valid = sum(o.verdict == "valid" for o in clean)
    by = Counter(check for o in mutated for check in o.flagged_by(case.checks))
    found = "; ".join(
        f"{check} ({by[check]}: {', '.join(str(o.violations.get(check, 0)) for o in mutated)})"
        for check in case.checks
        if by[check]
    )
    cells = (
        case.id, case.mutant.what, case.schedule, f"{flagged} of {len(mutated)}",
        found or "nothing", f"{valid} of {len(clean)}", f"{_void(mutated)} / {_void(clean)}",
        f"{_mean_s(mutated):.0f} / {_mean_s(clean):.0f}",
    )  # fmt: skip
    missed = len(mutated) - flagged + len(clean) - valid
    return f"| {' | '.join(map(str, cells))} |", missed


def _void(outcomes: Sequence[Outcome]) -> int:
    return sum(o.verdict == "void" for o in outcomes)


def _mean_s(outcomes: Sequence[Outcome]) -> float:
    return sum(o.seconds for o in outcomes) / max(len(outcomes), 1)


if __name__ == "__main__":
    main()
