"""Carries out a schedule, and writes down the visible effect of each fault.

Entries run one after the other; an entry with `for` is ended by a task of its own while the
schedule goes on.  At the end `mend` restores everything in any case: it resumes paused members,
heals links, and starts dead members.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import trio

from highwater.child_processes import StartError
from highwater.cluster.faults.done import Done
from highwater.cluster.faults.fault_model import Fault
from highwater.cluster.faults.verb_row import Verb
from highwater.cluster.faults.verb_table import VERBS
from highwater.cluster.faults.workload_verbs import ChaosStage
from highwater.cluster.interface import ClusterError
from highwater.verdict.history import LineLog

RETRY_S = 30.0
"""How long a verb is retried whose target does not exist yet."""
LAST_FAULT_S = 5.0
"""No random fault fires later than this before the end."""
FELT_S = 30.0
"""The extra time for a cut or a hold that has not met any traffic yet."""
LOOK_EVERY_S = 0.02
Progress = Callable[[str], None]


class Engine:
    def __init__(
        self, stage: ChaosStage, log: LineLog, progress: Progress, verbs: Mapping[str, Verb] = VERBS
    ) -> None:
        self.stage = stage
        self.log = log
        self.verbs = verbs
        self.progress = progress
        self.planned = 0
        self._zero_ns = time.monotonic_ns()
        self._open: list[tuple[Fault, Done, int]] = []
        self._ending = 0
        """How many undos are under way: one that starts a broker takes its time."""

    def _is_silent(self, fault: Fault) -> bool:
        """Whether an entry only arranges others: it is reported only if it fails."""
        return self.verbs[fault.name].only == "schedules"

    async def run(self, schedule: list[Fault], until_s: float) -> None:
        """Fires the schedule; returns when it and the ends of its faults are over, but not before
        `until_s`."""
        self._zero_ns = time.monotonic_ns()
        begun = trio.current_time()
        async with trio.open_nursery() as watching:
            watching.start_soon(self._watch_open)
            async with trio.open_nursery() as nursery:
                for fault in schedule:
                    if fault.optional and trio.current_time() > begun + until_s - LAST_FAULT_S:
                        break
                    self.planned += not self._is_silent(fault)
                    due = begun + fault.at if fault.at is not None else trio.current_time()
                    await trio.sleep_until(max(due, trio.current_time()) + fault.after)
                    await self._fire(fault, nursery)
            await trio.sleep_until(begun + until_s)
            watching.cancel_scope.cancel()

    async def _fire(self, fault: Fault, nursery: trio.Nursery) -> None:
        if fault.params.get("until") == "healthy":
            while self._ending or any(open_.lasts is not None for open_, _, _ in self._open):
                await trio.sleep(0.05)  # a fault that still lasts may show its effect only later
        t_ns = time.monotonic_ns()
        try:
            done = await self._attempt(fault)
        except (ClusterError, StartError, OSError, KeyError) as error:
            self._tell(fault, Done(fault.target), t_ns, error=str(error))
            return
        if fault.label:
            self.stage.names[fault.label] = [m for m in done.target.split(",") if m]
        if self._is_silent(fault) and done.effect is not None:
            return
        if not done.effect_at_undo:
            self._tell(fault, done, t_ns)
        else:
            self.progress(f"{fault.name} {done.target}: begun")
        if done.undo is None:
            return
        self._open.append((fault, done, t_ns))
        if fault.lasts is not None:
            nursery.start_soon(self._end_later, fault, done, t_ns)
        elif self.verbs[fault.name].mended_at_once:
            await self._end(fault, done, t_ns)

    async def _watch_open(self) -> None:
        """Reports when an open fault meets its first traffic, and ends one that a later entry has
        undone; runs until cancelled."""
        met: set[int] = set()
        while True:
            for fault, done, t_ns in list(self._open):
                if not done.effect_at_undo:
                    continue
                if done.felt is not None and t_ns not in met and done.felt():
                    met.add(t_ns)
                    self.progress(f"{fault.name} {done.target}: has met its first traffic")
                if done.holds is not None and not done.holds():
                    await self._end(fault, done, t_ns)
            await trio.sleep(LOOK_EVERY_S)

    async def _attempt(self, fault: Fault) -> Done:
        deadline = trio.current_time() + RETRY_S
        while True:
            try:
                return await self.verbs[fault.name].carry_out(self.stage, fault)
            except (ClusterError, KeyError):
                if trio.current_time() > deadline:
                    raise
                await trio.sleep(0.2)

    async def _end_later(self, fault: Fault, done: Done, t_ns: int) -> None:
        assert fault.lasts is not None
        await trio.sleep(fault.lasts)
        if done.felt is not None:
            with trio.move_on_after(FELT_S):
                while not done.felt():
                    await trio.sleep(0.05)
        await self._end(fault, done, t_ns)

    async def _end(self, fault: Fault, done: Done, t_ns: int) -> None:
        entry = (fault, done, t_ns)
        if entry not in self._open or done.undo is None:
            return
        self._open.remove(entry)
        now_ns = time.monotonic_ns()
        self._ending += 1
        try:
            effect = await done.undo()
        except (ClusterError, StartError, OSError) as error:
            self._tell(Fault(done.undo_name), Done(done.target), now_ns, error=str(error))
            return
        finally:
            self._ending -= 1
        if done.effect_at_undo:
            done.effect = effect
            self._tell(fault, done, t_ns)
            effect = effect and "ended"
        self._tell(Fault(done.undo_name), Done(done.target, effect), now_ns)

    def _tell(self, fault: Fault, done: Done, t_ns: int, error: str | None = None) -> None:
        line: dict[str, Any] = {
            "name": fault.name,
            "target": done.target,
            "t": round((t_ns - self._zero_ns) / 1e9, 3),
            "t_ns": t_ns,
            "params": fault.params,
            "effect": done.effect,
        }
        if error is not None:
            line["error"] = error
        self.log.write(**line)
        saw = done.effect or f"NO VISIBLE EFFECT{': ' + error if error else ''}"
        self.progress(f"{fault.name} {done.target}: {saw}")

    async def mend(self) -> None:
        """Ends open faults, and starts members that are down."""
        for fault, done, t_ns in list(self._open):
            if done.undo_name not in ("start", "start_all"):  # members start all at once, below
                await self._end(fault, done, t_ns)
        if self.stage.cluster.links is not None:
            self.stage.cluster.links.heal_all()
        for member in sorted(self.stage.stopped_by_pause):
            await self.stage.cluster.resume(member)
        self.stage.stopped_by_pause.clear()
        if self.stage.down:
            t_ns = time.monotonic_ns()
            done = await VERBS["start_all"].carry_out(self.stage, Fault("start_all"))
            self._tell(Fault("start_all"), done, t_ns)
        self._open.clear()
