"""`highwater bench produce` with each protocol of clients, tiny: the command, not the figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from highwater.bench import produce
from highwater.bench.figures.sides import Side
from highwater.bench.load import Load
from highwater.cluster.processes.programs import Highwater

pytestmark = [pytest.mark.integration, pytest.mark.rare, pytest.mark.timeout(120)]


class NoWarmMemory:
    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> NoWarmMemory:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def fill(self) -> None:
        pass


async def test_each_protocol_has_a_row_and_the_load_speaks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[Load] = []

    def load(**given: Any) -> Load:
        loads.append(Load(**given))
        return loads[-1]

    monkeypatch.setattr(produce, "Load", load)
    monkeypatch.setattr(produce, "WarmMemory", NoWarmMemory)
    plan = produce.Plan(
        batches=(16 * produce.KIB,), securities=produce.SECURITIES, brokers=1, rounds=1,
        measure_mb=2, starts=1, idle_s=0,
    )  # fmt: skip
    side = Side("Highwater", Highwater(), tmp_path)
    rows = await produce.run(plan, [side], lambda _: None)
    assert [load.settings.get("security.protocol") for load in loads] == [None, "SSL", "SASL_SSL"]
    assert len({load.bootstrap for load in loads}) == 3
    what = "produce acks=all, 1 brokers, RF 1"
    assert [row.what for row in rows[:3]] == [
        f"{what}{protocol}, 16 KiB batches" for protocol in ("", ", SSL", ", SASL_SSL")
    ]
    assert all(min(row.ours) > 0 for row in rows)
    assert len(side.ready_s) == 1
