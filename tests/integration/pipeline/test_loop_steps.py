"""No step of a loaded broker's loop takes longer than 20 ms: a small run of `bench steps`."""

from __future__ import annotations

from pathlib import Path

import pytest

from highwater.chaos.bench.steps import Plan, as_json, run, too_long
from highwater.chaos.bench.steps_loads import Load

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]
RUNS = 3


@pytest.mark.parametrize("load", ["batches-128", "creation"])
async def test_no_step_is_longer_than_20_ms(load: str, tmp_path: Path) -> None:
    """A broker computes in each run what it computes in one; what a shared machine adds to a step,
    and no probe of it has seen, falls on another step in the next run.  So a step is too long that
    is too long in every one of three runs, and the first without any ends the search."""
    plan = Plan((load,), Load(seconds=3, partitions=150), warm=False)
    told = []
    suspects: set[str] | None = None
    for number in range(RUNS):
        found = await run(plan, tmp_path / str(number), lambda _: None)
        ((title, steps),) = found.items()
        assert steps, f"{title}: steps above 2 ms are told"
        told.append(as_json(found))
        suspects = set(too_long(found)) & (suspects if suspects is not None else set(steps))
        if not suspects:
            return
    pytest.fail(f"too long in each run: {sorted(suspects or ())}: {told}")
