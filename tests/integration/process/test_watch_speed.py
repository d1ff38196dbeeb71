"""A planted violation is named within seconds, while 5,000 records a second are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.long.watch import ALARM_S, measure

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.rare,  # scripts/long watch takes half an hour for the same
]
QUIET = 0.7
"""Of a core: where a process that asks for one gets less, seconds tell of the machine."""


def test_a_violation_is_named_within_seconds(tmp_path: Path) -> None:
    found = measure(tmp_path, 12.0, 5000.0, 2.5)
    assert found.all_named, (found.planted, found.alarms, (tmp_path / "watch.log").read_text())
    if found.share < QUIET:
        pytest.skip(f"each was named, and the machine is busy: {found.share:.0%} of a core")
    assert max(found.delays) <= ALARM_S, (found, (tmp_path / "watch.log").read_text())
