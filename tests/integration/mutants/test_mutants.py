"""Each mutant is flagged on its schedule, and the clean build is valid there: one run of each, some
of them `rare`.

A schedule takes some ten seconds.  If the machine stands still for one of them, the connection that
the schedule depends on ends.  The run then reports itself void: it has shown nothing of any build,
and is repeated.  Each void run is a warning in pytest's summary, with its number and its own
explanation.

`python -m tests.integration.mutants --runs 5` runs more of them and prints a table.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.integration.mutants.runs import CASES, Case, Outcome, run
from tests.simulation.mutation import mutated_tree

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]


def each_case(is_rare: Callable[[Case], bool]) -> pytest.MarkDecorator:
    def one(case: Case) -> ParameterSet:
        marks = pytest.mark.rare if is_rare(case) else ()
        return pytest.param(case, id=f"{case.id}-{case.schedule}", marks=marks)

    return pytest.mark.parametrize("case", [one(case) for case in CASES])


ATTEMPTS = 3


def arranged(
    case: Case, source: Path, folder: Path, one_run: Callable[..., Outcome] = run
) -> Outcome:
    """A run in which the schedule was carried out, or the last attempt."""
    for attempt in range(1, ATTEMPTS + 1):
        outcome = one_run(case.schedule, source, folder / f"run-{attempt}", seed=1)
        if outcome.verdict != "void":
            break
        said = "; ".join(outcome.notes)
        name = f"{case.id}-{case.schedule}"
        # A class of this file could not be told to pytest-xdist's controller, which does not import
        # tests: it takes a warning of an unknown module for the end of the worker.
        warnings.warn(f"{name}: void run {attempt} of {ATTEMPTS}: {said}", stacklevel=2)
    return outcome


@each_case(lambda case: case.rare)
def test_the_mutant_is_flagged_by_what_clients_see(case: Case, tmp_path: Path) -> None:
    with mutated_tree(case.mutant) as source:
        outcome = arranged(case, source, tmp_path)
    assert outcome.verdict == "invalid", outcome
    assert outcome.flagged_by(case.checks), outcome


@each_case(lambda case: case.clean_is_rare)
def test_the_clean_build_is_valid_on_the_same_schedule(case: Case, tmp_path: Path) -> None:
    with mutated_tree(None) as source:
        outcome = arranged(case, source, tmp_path)
    assert outcome.verdict == "valid", outcome


def test_void_runs_are_told_and_counted(tmp_path: Path) -> None:
    def void(*_: object, **__: object) -> Outcome:
        return Outcome("void", {}, ("void: cut met nobody",), 1.0, tmp_path)

    with pytest.warns(UserWarning, match="void run") as told:
        assert arranged(CASES[0], tmp_path, tmp_path, void).verdict == "void"
    name = f"{CASES[0].id}-{CASES[0].schedule}"
    assert {warning.category.__module__ for warning in told} == {"builtins"}
    assert [str(warning.message) for warning in told] == [
        f"{name}: void run {n} of {ATTEMPTS}: void: cut met nobody" for n in (1, 2, 3)
    ]
