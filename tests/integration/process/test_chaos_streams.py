"""`highwater chaos --app` on Kafka Streams: what a kill repeats, and that exactly once holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.process.app_runs import invoices, run_app

pytestmark = [
    pytest.mark.integration, pytest.mark.slow, pytest.mark.apache, pytest.mark.timeout(400),
]  # fmt: skip
KILL: list[dict[str, Any]] = [{"at": 1, "name": "kill", "target": "app", "for": 0.5}]


@pytest.mark.parametrize(
    "guarantee",
    [  # test_chaos_app has applications that are found wrong; `scripts/long streams` has both
        pytest.param("at_least_once", marks=pytest.mark.rare),
        "exactly_once_v2",
    ],
)
def test_a_killed_copy_repeats_only_what_was_allowed(guarantee: str, tmp_path: Path) -> None:
    options = ("--copies=1", "--duration=3", "--within=60", "--exactly-once")
    verdict = run_app(tmp_path, invoices(tmp_path, guarantee), *options, schedule=KILL)
    if guarantee == "exactly_once_v2":
        assert (verdict["verdict"], verdict["code"]) == ("valid", 0), verdict["said"]
        assert verdict["headline"].endswith("in invoices exactly once, in order, within 60 s")
        assert verdict["checks"]["K8"]["examined"] > 100
    else:
        assert (verdict["verdict"], verdict["code"]) == ("invalid", 1), verdict["said"]
        assert verdict["checks"]["K8"]["violations"] > 0
        assert "is output number 2 of id" in verdict["headline"]
        assert "invoices holds no transaction" in verdict["headline"]
        assert verdict["checks"]["K7"]["violations"] == 0, "at least once it is"
