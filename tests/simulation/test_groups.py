"""A consumer group under faults: one owner in a generation, and commits that stay."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from highwater.simulation.options import Options
from highwater.simulation.rules.allowed_losses import Moment
from highwater.simulation.seed_run import simulate
from highwater.simulation.workloads.group_workload import Acked, Groups


@pytest.mark.parametrize("seed", range(2))
def test_commits_survive_and_late_ones_are_refused(seed: int) -> None:
    outcome = simulate(seed, Options(seconds=10, groups=True))
    assert outcome.violation is None, str(outcome.violation)
    seen = outcome.operations
    assert seen["group seats"] >= 5, "there were rebalances"
    assert seen["group commits"] >= 20
    assert seen["group answers"] >= 50
    assert seen["group late commits"], "a commit of an earlier generation was tried"


def test_commits_of_both_kinds_count_in_the_order_of_the_log() -> None:
    outcome = simulate(2, Options(seconds=10, pace=0.5, groups=True, transactions=True))
    assert outcome.violation is None, str(outcome.violation)
    for what in ("alone", "committed", "aborted", "looked at"):
        assert outcome.operations[f"mixed: {what}"] > 5, outcome.operations


def test_a_lost_commit_is_forgotten_once_though_two_had_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    none: Any = None
    groups = Groups(none, Counter(), Counter())
    groups.acked[2] = Acked(9, Moment(0, 0), Moment(0, 0))
    monkeypatch.setattr(groups, "lost", lambda *_: True)
    one, other = dict(groups.acked), dict(groups.acked)
    for known in (one, other):
        groups.answered(known, {2: 4}, fenced=False)
    assert not groups.acked
    assert groups.count["group commits lost as expected"] == 2
