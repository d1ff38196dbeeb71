"""A slice of `scripts/long floods`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.robustness.rig import ZooKeeper
from tests.long.floods import flood

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def test_floods_of_connections_that_never_become_clients(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    told = flood(tmp_path / "broker", zookeeper, 60, 0.5)
    assert "all there" in told
