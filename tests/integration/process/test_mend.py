"""A run mends the cluster at its end, when a fault's own start took too long."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, cast

import pytest

from highwater.cluster.ask import brokers_known
from highwater.cluster.faults.fault_model import Fault
from highwater.cluster.faults.stage import Stage
from highwater.cluster.faults.verb_table import VERBS
from highwater.cluster.processes.process_cluster import process_cluster
from highwater.cluster.processes.process_settings import Settings

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


async def test_a_member_that_is_on_its_way_is_waited_for(tmp_path: Path) -> None:
    async with process_cluster(Settings(tmp_path / "cluster", brokers=1)) as cluster:
        nobody = cast("Any", None)
        stage = Stage(cluster, nobody, random.Random(1))
        await cluster.kill("broker-1")
        stage.down.add("broker-1")
        await cluster.start("broker-1", ready=False)
        done = await VERBS["start_all"].carry_out(stage, Fault("start_all"))
        assert done.effect is not None
        assert done.effect.startswith("all serve after")
        assert stage.down == set()
        assert await brokers_known(cluster.address(1)) == {1}
