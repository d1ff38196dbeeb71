"""The mutants of the regression list are found, each by a rule that it breaks."""

from __future__ import annotations

import pytest

from tests.simulation.mutation import Mutant, all_mutants, mutated, simulate


@pytest.mark.parametrize("mutant", all_mutants(), ids=lambda mutant: mutant.name)
def test_every_mutant_fits_the_source(mutant: Mutant) -> None:
    assert mutant.changes
    for file, source in mutated(mutant).items():
        compile(source, file, "exec")


LONG = {
    38, 40, 83, 91, 97, 106, 108, 110, 112, 114, 115, 116, 117, 119, 120, 122, 132, 136, 137, 138,
    140, 141, 143, 151,
}  # fmt: skip
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
    found = simulate(mutant, mutant.ci)["violations"]
    assert found, f"{mutant.name} was not found in seeds {mutant.ci}"
    assert found[0]["rule"] in mutant.rules, found[0]
