"""Transactions under faults: whole or not at all, ended in bounded time, and zombies fenced."""

from __future__ import annotations

import pytest

from highwater.simulation.seed_run import Options, simulate


@pytest.mark.parametrize("seed", range(2))
def test_transactions_stay_whole(seed: int) -> None:
    outcome = simulate(seed, Options(seconds=10, transactions=True))
    assert outcome.violation is None, str(outcome.violation)
    seen = outcome.operations
    assert seen["txn committed"] >= 3
    assert seen["txn aborted"]
    assert seen["txn offsets"]
    assert seen["txn polled"]
    assert seen["txn producers lost"], "some were fenced"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 104))
def test_with_power_losses(seed: int) -> None:
    options = Options(transactions=True, power_loss=seed % 2 == 0, flush=seed % 2 == 1)
    outcome = simulate(seed, options)
    assert outcome.violation is None, str(outcome.violation)
    assert outcome.operations["txn committed"]
