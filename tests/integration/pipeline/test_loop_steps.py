"""No step of a loaded broker's loop takes longer than 20 ms: small runs of `bench steps`.

A step that does too much does so on each of three brokers, under every such load.  A machine that
is slow for a moment makes any step long that runs just then, and the probe of the machine does not
see every such moment: it has missed ten milliseconds.  So the load is run twice, and no step may be
too long in both.  A fast machine may report none above 2 ms; `run` fails where the loop is not
watched.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from highwater.bench.figures.sides import Side, Sides
from highwater.bench.longest_steps import Options, run
from highwater.cluster.processes.programs import Highwater

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.mark.parametrize("load", ["batches-128", "creation"])
async def test_no_step_is_longer_than_20_ms(load: str, tmp_path: Path) -> None:
    options = Options((load,), 3, 150)
    said: list[str] = []
    sides = Sides([Side("Highwater", Highwater(), tmp_path, zookeeper="embedded")], said.append)
    runs = [await run(options, sides, warm=False) for _ in range(2)]
    in_both = set.intersection(*(set(found.too_long()) for found in runs))
    told = json.dumps([found.as_json() for found in runs], indent=1)
    assert in_both == set(), "\n".join([*said, told])
