"""Each mutant is flagged on its schedule, and the clean build is valid there: one run of each.

What a schedule arranges takes some ten seconds, in which a machine that stands still for one of
them ends the connection that everything hangs on.  The run is void then, as it says itself: it has
shown nothing of any build, and is arranged anew.

`python -m tests.integration.mutants --runs 5` runs more of them and prints a table.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.mutants.runs import CASES, Case, Outcome, run
from tests.simulation.mutation import mutated_tree

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.id}-{case.schedule}")


ATTEMPTS = 3


def arranged(case: Case, source: Path, folder: Path) -> Outcome:
    """A run in which everything came about that the schedule asks for."""
    for attempt in range(ATTEMPTS):
        outcome = run(case.schedule, source, folder / f"run-{attempt}", seed=1)
        if outcome.verdict != "void":
            break
    return outcome


@each_case
def test_the_mutant_is_flagged_by_what_clients_see(case: Case, tmp_path: Path) -> None:
    with mutated_tree(case.mutant) as source:
        outcome = arranged(case, source, tmp_path)
    assert outcome.verdict == "invalid", outcome
    assert outcome.flagged_by(case.checks), outcome


@each_case
def test_the_clean_build_is_valid_on_the_same_schedule(case: Case, tmp_path: Path) -> None:
    with mutated_tree(None) as source:
        outcome = arranged(case, source, tmp_path)
    assert outcome.verdict == "valid", outcome
