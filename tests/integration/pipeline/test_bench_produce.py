"""`highwater bench produce` with each protocol of clients, tiny: the command, not the figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from highwater.bench import produce
from highwater.bench.figures.sides import Side, Sides
from highwater.bench.load import Load
from highwater.cluster.processes.programs import Highwater

pytestmark = [pytest.mark.integration, pytest.mark.rare, pytest.mark.timeout(120)]


async def test_each_protocol_has_a_row_and_the_load_speaks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[Load] = []

    def load(**given: Any) -> Load:
        loads.append(Load(**given))
        return loads[-1]

    monkeypatch.setattr(produce, "Load", load)
    monkeypatch.setattr(produce, "IDLE_S", 0)
    options = produce.Options(
        batches=(16,), securities=produce.SECURITIES, brokers=1, rounds=1, megabytes=2, starts=1
    )
    sides = Sides([Side("Highwater", Highwater(), tmp_path)], lambda _: None)
    rows = (await produce.run(options, sides)).rows
    assert [load.settings.get("security.protocol") for load in loads] == [None, "SSL", "SASL_SSL"]
    assert len({load.bootstrap for load in loads}) == 3
    what = "produce acks=all, 1 brokers, RF 1"
    assert [row.what for row in rows[:3]] == [
        f"{what}{protocol}, 16 KiB batches" for protocol in ("", ", SSL", ", SASL_SSL")
    ]
    assert all(min(row.ours) > 0 for row in rows)
    assert len(rows[-1].ours) == 1, "the time to ready is that of the first protocol"
