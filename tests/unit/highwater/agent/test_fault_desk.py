"""The faults that are on, beside links without traffic: which ones can be ended, and when."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar, cast

import pytest
import trio
import trio.testing

from highwater.agent import fault_desk
from highwater.agent.errors import ControlError
from highwater.agent.event_feed import Events
from highwater.agent.fault_desk import FELT_S, FaultDesk
from highwater.cluster.faults.stage import Stage
from highwater.cluster.links.link_rules import Links

CUT = {"name": "cut", "from": "broker-1", "to": "broker-2", "one_way": True}


class Members:
    """Three brokers that do nothing but run."""

    brokers = (1, 2, 3)
    lacks: ClassVar[Mapping[str, str]] = {}
    hosts = None

    def __init__(self) -> None:
        self.links = Links()

    zookeeper_connect = "zookeeper:2181"

    def members(self) -> list[str]:
        return ["zookeeper", "broker-1", "broker-2", "broker-3"]

    def running(self, member: str) -> bool:
        return True

    def paused(self, member: str) -> bool:
        return False


class Znodes:
    """A cluster without topics."""

    def __init__(self) -> None:
        self.partitions: dict[Any, Any] = {}
        self.replicas: dict[Any, Any] = {}
        self.controller = 1

    async def catch_up(self) -> None:
        await trio.lowlevel.checkpoint()


@asynccontextmanager
async def a_desk() -> AsyncIterator[tuple[FaultDesk, Links]]:
    members = Members()
    stage = Stage(cast("Any", members), cast("Any", Znodes()), random.Random(1))
    async with trio.open_nursery() as nursery:
        yield FaultDesk(stage, Events(), nursery), members.links
        nursery.cancel_scope.cancel()


async def traffic(links: Links, after_s: float) -> None:
    await trio.sleep(after_s)
    await links.wait_open(("broker-1", "broker-2"))


async def test_an_end_waits_for_the_traffic_and_is_only_one(autojump_clock: object) -> None:
    async with a_desk() as (desk, links), trio.open_nursery() as nursery:
        fired = await desk.fire(CUT)
        nursery.start_soon(traffic, links, 3.0)
        began = trio.current_time()
        nursery.start_soon(desk.end, fired.number)
        await trio.testing.wait_all_tasks_blocked()
        assert [f.number for f in desk.open()] == [fired.number]
        assert fired.as_json()["met"] == 0
        with pytest.raises(ControlError, match="is ending already"):
            await desk.end(fired.number)
        while fired.ended is None:
            await trio.sleep(0.01)
        assert trio.current_time() - began == pytest.approx(3.0, abs=0.1)
        assert fired.done.effect == "stopped 1 streams and connection attempts"
        assert (links.cuts, desk.open()) == ([], [])


async def test_what_met_nobody_is_an_error_and_undone(autojump_clock: object) -> None:
    async with a_desk() as (desk, links):
        fired = await desk.fire(CUT)
        began = trio.current_time()
        with pytest.raises(ControlError, match="cut broker-1->broker-2: it met no traffic"):
            await desk.end(fired.number)
        assert trio.current_time() - began == pytest.approx(FELT_S, abs=0.1)
        assert links.cuts == []
        with pytest.raises(ControlError, match="ended at"):
            await desk.end(fired.number)


async def test_its_time_ends_a_fault_that_met_nobody(autojump_clock: object) -> None:
    async with a_desk() as (desk, links):
        fired = await desk.fire({**CUT, "for": 2})
        await trio.sleep(1.9)
        assert desk.open() == [fired]
        await trio.sleep(0.2)
        assert (desk.open(), links.cuts) == ([], [])


@pytest.mark.parametrize("undo", ["mend", "heal"])
async def test_what_something_else_took_back_is_over(undo: str, autojump_clock: object) -> None:
    async with a_desk() as (desk, links):
        fired = await desk.fire({**CUT, "for": 1000})
        if undo == "mend":
            await desk.mend()
        else:
            await desk.fire({"name": "heal"})
        assert (links.cuts, desk.open()) == ([], [])
        assert fired.timer.cancel_called
        with pytest.raises(ControlError, match=r"fault 1 \(cut .*\) ended at"):
            await desk.end(1)


async def test_only_so_many_are_remembered_and_those_that_are_on(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fault_desk, "REMEMBERED", 5)
    async with a_desk() as (desk, _):
        first = await desk.fire(CUT)
        for _ in range(10):
            await desk.fire({"name": "isolate", "target": "broker-3"})
            await desk.fire({"name": "heal"})
            first = first if first.open else await desk.fire(CUT)
        assert len(desk.fired) <= 7
        with pytest.raises(ControlError, match="no fault 1; open now: "):
            desk.get(1)
