"""Named courses of events, each a small program to read: see `stage`, and docs/simulation.md."""

from __future__ import annotations

from highwater.chaos.simulated.scenarios import (
    agreement,
    control,
    groups,
    leaders,
    log_starts,
    stops,
    truncation,
)
from highwater.chaos.simulated.scenarios.stage import Played, Scenario, play

ALL: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        *truncation.SCENARIOS,
        *leaders.SCENARIOS,
        *log_starts.SCENARIOS,
        *control.SCENARIOS,
        *groups.SCENARIOS,
        *stops.SCENARIOS,
        *agreement.SCENARIOS,
    )
}

__all__ = ["ALL", "Played", "Scenario", "play"]
