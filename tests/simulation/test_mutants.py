"""The mutants of the regression list are found, each by a rule that it breaks."""

from __future__ import annotations

import pytest

from tests.simulation.mutation import Mutant, all_mutants, mutated, simulate
from tests.simulation.pinned import Pinned, by_units, pinned, play


@pytest.mark.parametrize("mutant", all_mutants(), ids=lambda mutant: mutant.name)
def test_every_mutant_fits_the_source(mutant: Mutant) -> None:
    assert mutant.changes
    for file, source in mutated(mutant).items():
        compile(source, file, "exec")


PACE = 0.3
"""Clients that are this calm make a seed three times as fast, and find each of them as well."""
LONG = {38, 117, 119, 120, 122, 132, 136, 137, 138, 140, 141, 143, 151}
"""Each of these takes more than five seconds of a core."""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(mutant, marks=pytest.mark.rare if mutant.id in LONG else ())
        for mutant in all_mutants()
        if mutant.ci
    ],
    ids=lambda mutant: mutant.name,
)
def test_the_mutant_is_found(mutant: Mutant) -> None:
    found = simulate(mutant, mutant.ci, pace=PACE)["violations"]
    assert found, f"{mutant.name} was not found in seeds {mutant.ci}"
    assert found[0]["rule"] in mutant.rules, found[0]


def test_the_page_has_a_row_for_each() -> None:
    rows, searched = pinned(), [m for m in all_mutants() if not m.equivalent and not m.scenario]
    assert not {m.id for m in searched if m.what not in rows.keys() | by_units()}
    first = next(mutant.what for mutant in searched if mutant.id == 1)
    assert rows[first] == Pinned(0, 1, rows[first].seconds)
    assert Pinned(1060, 6, 1.0).budget == "1055..1114"


@pytest.mark.rare
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mutant", all_mutants(), ids=lambda mutant: mutant.name)
def test_its_row_holds(mutant: Mutant) -> None:
    """Within three times the seeds that it took."""
    row = play(mutant, pinned().get(mutant.what))
    assert mutant.equivalent or row["rules"], f"{mutant.name} is lost: scripts/long mutants-pin"
