"""Transactions under faults: whole or not at all, ended in bounded time, and zombies fenced."""

from __future__ import annotations

import pytest

from highwater.simulation.options import Options
from highwater.simulation.seed_run import simulate


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
