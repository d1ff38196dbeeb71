"""The bench of the pure machines counts only steps that were done."""

from __future__ import annotations

import pytest

from highwater.bench.state_machines import WrongResult, controller_steps, partition_steps, recorded
from highwater.broker.replica.partition import Partition
from highwater.controller.rules.events import (
    BrokerChange,
    IsrChangeNotification,
    LeaderAndIsrAnswered,
)
from highwater.controller.rules.machine import Machine


def test_the_partition_makes_steps() -> None:
    assert partition_steps(250) > 0


def test_a_partition_that_commits_nothing_has_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "advance_high_watermark", lambda *_: False)
    with pytest.raises(WrongResult, match="not committed"):
        partition_steps(10)


def test_the_controller_is_told_all_that_happened() -> None:
    told, settings = recorded(6)
    assert told.count(BrokerChange()) == 2 * 6
    assert told.count(IsrChangeNotification()) >= 6
    assert sum(isinstance(event, LeaderAndIsrAnswered) for event in told) > 2 * 6
    assert controller_steps(told, settings) > 0


def test_a_controller_that_elects_nobody_has_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Machine.step

    def deaf(self: Machine, event: object, now_ms: int = 0) -> object:
        return [] if event == BrokerChange() else step(self, event, now_ms)  # type: ignore[arg-type]

    monkeypatch.setattr(Machine, "step", deaf)
    with pytest.raises(WrongResult, match="ended as"):
        recorded(6)
