"""Named courses of events, each a small program to read: see `script`, and docs/simulation.md."""

from __future__ import annotations

from highwater.simulation.scenarios import answered_changes as agreement
from highwater.simulation.scenarios import (
    compacted_logs,
    deleted_topics,
    late_markers,
    log_starts,
    stops,
    truncation,
    upgrades,
)
from highwater.simulation.scenarios import controllers as control
from highwater.simulation.scenarios import deposed_leaders as leaders
from highwater.simulation.scenarios import group_members as groups
from highwater.simulation.scenarios.script import Played, Scenario, play

ALL: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        *truncation.SCENARIOS,
        *compacted_logs.SCENARIOS,
        *leaders.SCENARIOS,
        *deleted_topics.SCENARIOS,
        *log_starts.SCENARIOS,
        *control.SCENARIOS,
        *groups.SCENARIOS,
        *stops.SCENARIOS,
        *late_markers.SCENARIOS,
        *agreement.SCENARIOS,
        *upgrades.SCENARIOS,
    )
}

__all__ = ["ALL", "Played", "Scenario", "play"]
