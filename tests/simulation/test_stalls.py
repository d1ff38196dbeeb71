"""The machine stands still now and then, for brokers, ZooKeeper and clients at once: every timer of
that time is late, and due with everything that others sent; no promise breaks."""

from __future__ import annotations

import pytest

from highwater.simulation.options import Options
from highwater.simulation.seed_run import simulate
from highwater.simulation.seeds import replay_command

STALLED = Options(seconds=15.0, pace=0.3, groups=True, transactions=True, stalls=True)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", range(2))
def test_nothing_breaks_where_all_stand_still(seed: int) -> None:
    outcome = simulate(seed, STALLED)
    assert outcome.violation is None, str(outcome.violation)
    assert outcome.faults["stand still"] >= 2
    assert outcome.operations["acked"] > 50


def test_other_seeds_stay_what_they_are() -> None:
    """The rest of a seed's plan does not depend on whether there are stalls."""
    plain = simulate(5, Options(seconds=8.0, pace=0.3, sql=False)).schedule
    stalled = simulate(5, Options(seconds=8.0, pace=0.3, sql=False, stalls=True)).schedule
    assert len(stalled) > len(plain) > 0
    assert [fault for fault in stalled if fault.kind != "stand still"] == plain
    assert "--stalls --trace" in replay_command(5, STALLED)
