"""A slice of `scripts/long fuzz`: requests of every API, with few rights and with all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.robustness.rig import ZooKeeper
from tests.long.fuzz import requests

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.mark.parametrize(("secured", "count"), [(True, 500), (False, 250)], ids=["guarded", "open"])
def test_the_broker_lives_on_and_loses_nothing(
    zookeeper: ZooKeeper, tmp_path: Path, secured: bool, count: int
) -> None:
    assert "requests in" in requests(tmp_path / "broker", zookeeper, count, secured=secured)
