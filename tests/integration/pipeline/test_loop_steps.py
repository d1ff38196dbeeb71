"""No step of a loaded broker's loop takes longer than 20 ms: a small run of `bench steps`."""

from __future__ import annotations

from pathlib import Path

import pytest

from highwater.chaos.bench.steps import Plan, as_json, run, too_long
from highwater.chaos.bench.steps_loads import Load

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.mark.parametrize("load", ["batches-128", "creation"])
async def test_no_step_is_longer_than_20_ms(load: str, tmp_path: Path) -> None:
    plan = Plan((load,), Load(seconds=3, partitions=150), warm=False)
    found = await run(plan, tmp_path, lambda _: None)
    ((title, steps),) = found.items()
    assert steps, f"{title}: steps above 2 ms are told"
    assert too_long(found) == [], as_json(found)
