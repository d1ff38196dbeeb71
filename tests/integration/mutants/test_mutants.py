"""Each mutant is flagged on its schedule, and the clean build is valid there: one run of each.

`python -m tests.integration.mutants --runs 5` runs more of them and prints a table.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.mutants.runs import CASES, Case, run
from tests.simulation.mutation import mutated_tree

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.id}-{case.schedule}")


@each_case
def test_the_mutant_is_flagged_by_what_clients_see(case: Case, tmp_path: Path) -> None:
    with mutated_tree(case.mutant) as source:
        outcome = run(case.schedule, source, tmp_path / "run", seed=1)
    assert outcome.verdict == "invalid", outcome
    assert outcome.flagged_by(case.checks), outcome


@each_case
def test_the_clean_build_is_valid_on_the_same_schedule(case: Case, tmp_path: Path) -> None:
    with mutated_tree(None) as source:
        outcome = run(case.schedule, source, tmp_path / "run", seed=1)
    assert outcome.verdict == "valid", outcome
