"""The engine on links without traffic at first: the duration of a fault that has met none."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import trio
import trio.testing

from highwater.chaos.faults.engine import FELT_S, Engine
from highwater.cluster.faults.done import Done
from highwater.cluster.faults.fault_model import Fault
from highwater.cluster.faults.verb_table import VERBS
from highwater.cluster.faults.workload_verbs import ChaosStage
from highwater.cluster.links.link_rules import Action, Links, Message, Rule, Side
from highwater.verdict.history import LineLog, read_lines

CUT = Fault("cut", lasts=2.0, params={"from": "broker-1", "to": "broker-2"})
HOLD = Fault("hold", lasts=2.0, params={"from": "broker-1", "api": "Fetch", "side": "response"})
HOLD_OPEN = replace(HOLD, lasts=None)


class Members:
    """Three brokers that do nothing but run."""

    brokers = (1, 2, 3)

    def __init__(self) -> None:
        self.links = Links()

    def running(self, member: str) -> bool:
        return True


def a_stage(members: Members) -> ChaosStage:
    nobody = cast("Any", None)
    return ChaosStage(
        cast("Any", members),
        nobody,
        random.Random(1),
        deaths=nobody,
        workload=nobody,
        topics=[],
    )


async def outcome(fault: Fault, folder: Path, after_s: float) -> tuple[float, list[dict[str, Any]]]:
    """The duration of this fault's schedule, and its record, if traffic comes after so many
    seconds."""
    members = Members()
    stage = a_stage(members)
    engine = Engine(stage, LineLog(folder / "faults.jsonl"), lambda _: None)
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(come_along, members.links, after_s)
        await engine.run([fault], 0)
        took = trio.current_time() - began
        nursery.cancel_scope.cancel()
    engine.log.close()
    return took, list(read_lines(folder / "faults.jsonl"))


async def come_along(links: Links, after_s: float) -> None:
    await trio.sleep(after_s)
    links.rule_for(Message("broker-1", "broker-2", Side.RESPONSE, "Fetch"))
    await links.wait_open(("broker-1", "broker-2"))


@pytest.mark.parametrize("fault", [CUT, HOLD], ids=["cut", "hold"])
@pytest.mark.parametrize(("after_s", "lasts_s"), [(1.0, 2.0), (9.0, 9.0)])
async def test_a_fault_lasts_until_it_has_met_somebody(
    fault: Fault, after_s: float, lasts_s: float, tmp_path: Path, autojump_clock: object
) -> None:
    took, told = await outcome(fault, tmp_path, after_s)
    assert took == pytest.approx(lasts_s, abs=0.1)
    assert [line["name"] for line in told] == [fault.name, "heal" if fault is CUT else "release"]
    assert all(line["effect"] for line in told)


async def test_a_release_tells_what_a_connection_has_taken_along(autojump_clock: object) -> None:
    members = Members()
    stage = a_stage(members)
    shrink = Rule(Action.HOLD, "setData", matched=1)
    stage.rules["shrink"] = members.links.add(shrink)

    async def effect(**params: object) -> str | None:
        fault = Fault("release", params={"rule": "shrink", **params})
        return (await VERBS["release"].carry_out(stage, fault)).effect

    assert await effect(arrive=True) is None, "it has not come within five seconds"
    shrink.lost = 1
    assert await effect(arrive=True) is None
    assert await effect() == "released 1 messages, 1 of them gone with their connections"
    shrink.matched = 2
    shrink.arrived = 1
    told = "released 2 messages, 1 of them gone with their connections"
    assert await effect(arrive=True) == await effect() == told
    shrink.arrived, shrink.lost = 2, 0
    assert await effect(arrive=True) == "released 2 messages"
    drop = Rule(Action.DROP, "setData", matched=3)
    stage.rules["shrink"] = members.links.add(drop)
    assert await effect() == "released 3 messages"


@pytest.mark.parametrize("fault", [CUT, HOLD], ids=["cut", "hold"])
async def test_that_it_met_nobody_is_told(
    fault: Fault, tmp_path: Path, autojump_clock: object
) -> None:
    took, told = await outcome(fault, tmp_path, 1000)
    assert took == pytest.approx(2.0 + FELT_S, abs=0.1)
    assert not any(line["effect"] for line in told)


@pytest.mark.parametrize("lasts", [None, 4.0], ids=["released", "for"])
async def test_a_hold_tells_its_beginning_and_its_first_message_at_that_moment(
    lasts: float | None, tmp_path: Path, autojump_clock: object
) -> None:
    members, told = Members(), list[tuple[int, str]]()
    engine = Engine(
        a_stage(members),
        LineLog(tmp_path / "faults.jsonl"),
        lambda line: told.append((round(trio.current_time() - began), line)),
    )
    release = [Fault("release", after=4.0, params={"rule": "H"})] * (lasts is None)
    hold = replace(HOLD, lasts=lasts, label="H")
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(come_along, members.links, 2.0)
        await engine.run([replace(hold, after=1.0), *release], 20)
        await engine.mend()
    engine.log.close()
    subject = "hold Fetch response broker-1->*: "
    assert told[:2] == [(1, f"{subject}begun"), (2, f"{subject}has met its first traffic")]
    assert (5, f"{subject}held 1 messages") in [(at if lasts else 5, line) for at, line in told[2:]]
    assert max(at for at, _ in told) < 15, "nothing is left for the healing"


async def test_wait_healthy_waits_for_the_end_of_a_fault_that_is_under_way(
    tmp_path: Path, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker's start, the end of its kill, takes longer than the cluster looks whole."""
    happened: list[tuple[str, float]] = []

    async def kill(stage: ChaosStage, fault: Fault) -> Done:
        async def start() -> str:
            happened.append(("starting", trio.current_time() - began))
            await trio.sleep(5)
            happened.append(("started", trio.current_time() - began))
            return "runs"

        return Done("broker-1", "down", "start", start)

    async def wait(stage: ChaosStage, fault: Fault) -> Done:
        happened.append(("looks", trio.current_time() - began))
        return Done("", "healthy")

    for name, effect in (("kill", kill), ("wait", wait)):
        monkeypatch.setitem(VERBS, name, replace(VERBS[name], effect=effect))
    engine = Engine(a_stage(Members()), LineLog(tmp_path / "faults.jsonl"), lambda _: None)
    began = trio.current_time()
    healthy = Fault("wait", after=2.0, params={"until": "healthy"})
    with trio.fail_after(60):
        await engine.run([Fault("kill", "broker-1", lasts=1.0), healthy], 0)
    engine.log.close()
    assert [what for what, _ in happened] == ["starting", "started", "looks"], happened
    told = [line["name"] for line in read_lines(tmp_path / "faults.jsonl")]
    assert (engine.planned, told) == (1, ["kill", "start"]), "a wait is no fault"


async def test_what_a_schedule_leaves_open_ends_with_it_but_starts_come_together(
    tmp_path: Path, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller that was killed for a move is started at once, other members by `start_all`."""
    started: list[str] = []

    async def kill(stage: ChaosStage, fault: Fault) -> Done:
        async def start() -> str:
            started.append(fault.name)
            return "serves"

        return Done("broker-1", "down", "start", start)

    for name in ("kill", "move_controller"):
        monkeypatch.setitem(VERBS, name, replace(VERBS[name], effect=kill))
    members = Members()
    engine = Engine(a_stage(members), LineLog(tmp_path / "faults.jsonl"), lambda _: None)
    await engine.run([Fault("kill", "broker-1"), Fault("move_controller"), HOLD_OPEN], 0)
    await come_along(members.links, 0)
    await engine.mend()
    engine.log.close()
    told = [line["name"] for line in read_lines(tmp_path / "faults.jsonl")]
    assert told == ["kill", "move_controller", "start", "hold", "release"]
    assert started == ["move_controller"]
