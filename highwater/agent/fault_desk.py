"""The faults that callers begin and end, by number.

A fault that lasts stays open until it is ended: by its number, by its own time (`for`), by `mend`,
or because something else undid it (a killed broker that was started).  A fault whose effect is not
seen is an error: a test that goes on without it would prove nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import trio

from highwater.agent.errors import ControlError, control_error
from highwater.agent.event_feed import Events, wall_clock
from highwater.child_processes import StartError
from highwater.cluster.faults.done import Done
from highwater.cluster.faults.fault_model import Fault, ScheduleError
from highwater.cluster.faults.scene import Scene
from highwater.cluster.faults.schedule_form import check_one, parse_one
from highwater.cluster.faults.stage import Led, Stage
from highwater.cluster.faults.targets import APART
from highwater.cluster.faults.verb_table import FAULTS
from highwater.cluster.interface import ClusterError

FELT_S = 5.0
"""How long a call that ends a cut or a hold waits for it to meet some traffic first."""
REMEMBERED = 1000
"""How many faults are remembered by number; open ones are never forgotten."""


@dataclass(slots=True)
class Fired:
    """A fault that was carried out."""

    number: int
    fault: Fault
    done: Done
    t_ns: int
    at: str
    before: Led
    """The partitions as they were when it began."""
    ended: str | None = None
    """The wall-clock time of its end; None while it lasts."""
    ending: bool = False
    timer: trio.CancelScope = field(default_factory=trio.CancelScope)

    @property
    def open(self) -> bool:
        done = self.done
        return self.ended is None and done.undo is not None and done.holds is not None

    def __str__(self) -> str:
        return f"{self.fault.name} {self.done.target}".strip()

    def as_json(self) -> dict[str, Any]:
        told = {
            "id": self.number,
            "name": self.fault.name,
            "target": self.done.target,
            "effect": self.done.effect,
            "t_ns": self.t_ns,
            "at": self.at,
        }
        if self.done.felt is not None and self.ended is None:
            told["met"] = self.done.felt()
        return told if self.ended is None else {**told, "ended": self.ended}


class FaultDesk:
    def __init__(self, stage: Stage, events: Events, nursery: trio.Nursery) -> None:
        self.stage = stage
        self.fired: dict[int, Fired] = {}
        self._last = 0
        self._events = events
        self._nursery = nursery

    def open(self) -> list[Fired]:
        """The faults that last now; first marks those as ended that something else has undone."""
        for fired in self.fired.values():
            holds = fired.done.holds
            if fired.open and not fired.ending and holds is not None and not holds():
                self._over(fired, "ended by something else")
        return [fired for fired in self.fired.values() if fired.open]

    async def fire(self, entry: dict[str, Any]) -> Fired:
        """Carries out one entry, as in a schedule; returns when its effect is seen."""
        fault = await self._checked(entry)
        before = dict(self.stage.zookeeper.partitions)
        t_ns, at = time.monotonic_ns(), wall_clock()
        try:
            done = await FAULTS[fault.name].carry_out(self.stage, fault)
        except KeyError as error:
            raise ControlError("refused", f"{fault.name}: no partition {error.args[0]}") from error
        except (ClusterError, StartError, OSError) as error:
            known = control_error(error)
            raise ControlError(known.kind, f"{fault.name}: {known.message}") from error
        self._last += 1
        fired = Fired(self._last, fault, done, t_ns, at, before)
        if done.effect is None and not done.effect_at_undo:
            await self._undo_unseen(fired)
        self._remember(fired)
        if fault.label:
            self.stage.names[fault.label] = [m for m in done.target.split(",") if m]
        if done.undo is None or done.holds is None:
            fired.ended = wall_clock()
        self._events.add(f"{fired}: {done.effect or 'begun'}")
        if fault.lasts is not None and fired.open:
            self._nursery.start_soon(self._end_later, fired, fault.lasts)
        self.open()
        return fired

    def _remember(self, fired: Fired) -> None:
        self.fired[fired.number] = fired
        over = [number for number, earlier in self.fired.items() if not earlier.open]
        for number in over[: max(0, len(self.fired) - REMEMBERED)]:
            del self.fired[number]

    async def _checked(self, entry: dict[str, Any]) -> Fault:
        fault = parse_one(entry, "fault", FAULTS)
        if fault.at is not None or fault.after:
            raise ControlError("bad_request", f"{fault.name}: 'at' and 'after' are a schedule's")
        await self.stage.zookeeper.catch_up()
        topics: dict[str, int] = {}
        for tp in self.stage.zookeeper.replicas:
            topics[tp.topic] = topics.get(tp.topic, 0) + 1
        stage = self.stage
        scene = Scene(
            stage.cluster.brokers, topics, list(stage.names), list(stage.rules),
            controllers=[m for m in stage.cluster.members() if APART.match(m)],
            lacks=stage.cluster.lacks,
        )  # fmt: skip
        try:
            check_one(fault, scene)
        except ScheduleError as error:
            raise ControlError("bad_request", f"{fault.name}: {error}") from None
        return fault

    async def _undo_unseen(self, fired: Fired) -> None:
        if fired.done.undo is not None:
            await fired.done.undo()
        raise ControlError("failed", f"{fired}: no visible effect")

    def get(self, number: int) -> Fired:
        """The fault of this number; ControlError where there was none."""
        now = self.open()
        if number not in self.fired:
            known = ", ".join(str(fired.number) for fired in now) or "none"
            raise ControlError("not_found", f"no fault {number}; open now: {known}")
        return self.fired[number]

    async def end(self, number: int) -> Fired:
        """Undoes a fault; ControlError where it is over, or where no effect was seen."""
        fired = self.get(number)
        if fired not in self.open():
            raise ControlError("refused", f"fault {number} ({fired}) ended at {fired.ended}")
        if fired.ending:
            raise ControlError("refused", f"fault {number} ({fired}) is ending already")
        fired.timer.cancel()
        await self._end(fired, FELT_S)
        return fired

    async def _end_later(self, fired: Fired, lasts_s: float) -> None:
        with fired.timer:
            await trio.sleep(lasts_s)
        if fired.timer.cancelled_caught or fired not in self.open() or fired.ending:
            return
        try:
            await self._end(fired, 0)  # its time is fixed: it ends whether it met traffic or not
        except ControlError as error:
            self._events.add(error.message)

    async def _end(self, fired: Fired, felt_s: float) -> None:
        done = fired.done
        assert done.undo is not None
        fired.ending = True
        if done.felt is not None:
            await _until(done.felt, felt_s)
        try:
            effect = await done.undo()
        except (ClusterError, StartError, OSError) as error:
            fired.ending = False
            raise ControlError("failed", f"the end of {fired}: {error}") from error
        fired.ended = wall_clock()
        if effect is None:
            word = "it met no traffic" if done.felt is not None else "its end had no visible effect"
            raise ControlError("failed", f"{fired}: {word}")
        if done.effect_at_undo:
            done.effect = effect
        self._events.add(f"{done.undo_name} {done.target}: {effect}")

    def _over(self, fired: Fired, why: str) -> None:
        fired.ended = wall_clock()
        fired.timer.cancel()
        self._events.add(f"{fired}: {why}")

    async def mend(self) -> None:
        """Ends every fault, heals every link, and starts every member that is down."""
        cluster = self.stage.cluster
        for fired in reversed(self.open()):
            self._over(fired, "ended by mend")
        if cluster.links is not None:
            cluster.links.heal_all()
        if cluster.hosts is not None:
            cluster.hosts.mend()
        for member in cluster.members():
            if cluster.paused(member):
                await cluster.resume(member)
        async with trio.open_nursery() as nursery:
            for member in cluster.members():
                if not cluster.running(member):
                    nursery.start_soon(self._bring_back, member)
        self.stage.down.clear()
        self.stage.stopped_by_pause.clear()
        self._events.add("mended")

    async def _bring_back(self, member: str) -> None:
        try:
            await self.stage.cluster.start(member)
        except ClusterError:
            if not self.stage.cluster.running(member):
                raise
            await self.stage.cluster.wait_ready(member)  # something else started it meanwhile


async def _until(condition: Callable[[], object], within_s: float) -> None:
    with trio.move_on_after(within_s):
        while not condition():
            await trio.sleep(0.02)
