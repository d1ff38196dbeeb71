"""Brokers, ZooKeeper and clients stand still at once, and go on, at the latest when a run ends."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from highwater.chaos.faults.engine import Engine
from highwater.child_processes import Pid
from highwater.cluster.ask import brokers_known
from highwater.cluster.faults.schedule_form import parse
from highwater.cluster.faults.workload_verbs import ChaosStage
from highwater.cluster.processes.process_cluster import ProcessCluster, process_cluster
from highwater.cluster.processes.process_settings import Settings
from highwater.verdict.history import LineLog, read_lines

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def states(cluster: ProcessCluster, client: int) -> set[bool]:
    """Whether each process stands still."""
    stopped = psutil.Process(client).status() == psutil.STATUS_STOPPED
    return {stopped, *(cluster.paused(member) for member in cluster.members())}


async def test_all_stand_still_and_go_on(tmp_path: Path) -> None:
    client = subprocess.Popen(["sleep", "600"])
    try:
        async with process_cluster(Settings(tmp_path / "cluster", brokers=2)) as cluster:
            nobody = cast("Any", None)
            stage = ChaosStage(
                cluster, nobody, random.Random(1), deaths=nobody, workload=nobody, topics=[]
            )
            stage.clients = lambda: [Pid.of(client.pid)]
            engine = Engine(stage, LineLog(tmp_path / "faults.jsonl"), lambda _: None)
            await engine.run(parse([{"name": "stand_still", "for": 0.5}]), 0)
            assert states(cluster, client.pid) == {False}
            assert await brokers_known(cluster.address(1)) == {1, 2}
            await engine.run(parse([{"name": "stand_still"}]), 0)
            assert states(cluster, client.pid) == {True}
            await engine.mend()
            assert states(cluster, client.pid) == {False}
            assert await brokers_known(cluster.address(2)) == {1, 2}
            engine.log.close()
    finally:
        client.kill()
        client.wait()
    told = list(read_lines(tmp_path / "faults.jsonl"))
    assert [line["name"] for line in told] == ["stand_still", "go_on"] * 2
    assert [line["effect"] for line in told] == ["stand still", "run again"] * 2
    assert {line["target"] for line in told} == {"3 members and 1 clients"}
