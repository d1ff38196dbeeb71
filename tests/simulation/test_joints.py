"""Events that are staged to meet: each joint plays to its end, and no promise breaks by it."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace

import pytest
import trio

from highwater.simulation.cluster import Shape
from highwater.simulation.faults.joints import JOINTS, Joints
from highwater.simulation.faults.staged_faults import Fault, StagedFaults
from highwater.simulation.options import Options
from highwater.simulation.scenarios.script import TP, Scenario, Stage, play
from highwater.simulation.seed_run import simulate
from highwater.simulation.seeds import replay_command
from highwater.simulation.workloads.plain_client import Failed


async def traffic(stage: Stage) -> None:
    """Only where records come is a follower that stands still behind."""
    while True:
        with suppress(Failed):
            await stage.send("meanwhile", acks=1)
        await trio.sleep(0.05)


@pytest.mark.parametrize("name", [name for name, joint in JOINTS.items() if joint.topic is None])
def test_a_joint_plays_to_its_end(name: str) -> None:
    async def course(stage: Stage) -> None:
        await stage.start(1, 2, 3, controller=3)
        for number in range(5):
            await stage.send(f"before-{number}")
        done: Counter[str] = Counter()
        random = stage.cluster.kernel.random("staged")
        staged = StagedFaults(stage.cluster, stage.client, [TP], random, done)
        players = Joints(stage.cluster, stage.client, [TP], staged)
        stage.nursery.start_soon(traffic, stage)
        await players.play(Fault(0.0, name, "any", 0.0), stage.cluster.nodes[1])
        await stage.whole()
        await stage.insist(lambda: stage.send("after"))
        sent = [value for value in await stage.values() if value != "meanwhile"]
        assert sent == [*(f"before-{n}" for n in range(5)), "after"]

    played = play(Scenario(name, "a joint", Shape(session_timeout_ms=3000, lag_ms=1500), course))
    assert played.ok, (played.problem, played.violation, played.last_events)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", range(2))
def test_nothing_breaks_where_events_meet(seed: int) -> None:
    outcome = simulate(seed, Options(seconds=20.0, pace=0.5, transactions=True, joints=True))
    assert outcome.violation is None, str(outcome.violation)
    assert sum(outcome.faults[name] for name in JOINTS) >= 2
    assert outcome.operations["acked"] > 50


def test_other_seeds_stay_what_they_are() -> None:
    """The rest of a seed's plan does not depend on whether there are joints."""
    short = Options(seconds=8.0, pace=0.3, sql=False)
    plain = simulate(5, short).schedule
    staged = simulate(5, replace(short, joints=True)).schedule
    assert len(staged) > len(plain) > 0
    assert [fault for fault in staged if fault.kind not in JOINTS] == plain
    assert "--joints --trace" in replay_command(5, replace(short, joints=True))
