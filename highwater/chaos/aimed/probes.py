"""Verbs that strike an application in its window: `kill` and `pause` with `when`, and
`lose_unreplicated` at its output.

    when      what is held of one copy                       it strikes when
    ahead     Produce to the output                          an input stays ahead
    behind    OffsetCommit, TxnOffsetCommit, EndTxn          an input stays behind
    ending    EndTxn's answer                                one is held

Theory of operation.  A probe opens a window and keeps it open: it holds these messages, on this
copy's doors alone, until some input has been in the window for longer than the watchers may be
late.  Then it strikes, and what is held never arrives.  Where nothing shows up until a commit was
due, what is held is let go, and it is tried again.  So a probe ends as

    hit       the copy was struck with n inputs in the window
    closed    the messages were held over a commit that was due, and the window stayed empty: this
              application does not open it
    not run   the copy did nothing that could be held, in words

A dead copy's member leaves its group at once, or the others would wait for its session's end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import trio

from highwater.chaos.aimed.doors import Doors
from highwater.chaos.aimed.windows import AHEAD, BEHIND, Windows
from highwater.chaos.aimed.wire import CopyWire
from highwater.chaos.app_processes import AppCluster
from highwater.cluster.ask import ask
from highwater.cluster.faults import verb_table, verbs, workload_verbs
from highwater.cluster.faults.done import Done
from highwater.cluster.faults.fault_model import Fault
from highwater.cluster.faults.scene import ANY_COPY, Scene, Wrong
from highwater.cluster.faults.stage import Led
from highwater.cluster.faults.verb_row import Field, Verb
from highwater.cluster.faults.workload_verbs import ChaosStage
from highwater.cluster.interface import ClusterError, broker_number
from highwater.cluster.links.link_rules import Action, Rule, Side
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire import messages
from highwater.kafka.wire.codec import BadMessage
from highwater.verdict.headline import counted

ENDING: Final = "ending"
LOSS: Final = "unreplicated"
WHEN: Final = (AHEAD, BEHIND, ENDING)
HIT, CLOSED, NOT_RUN = "hit", "closed", "not run"
TRIES: Final = 2
WORKS_S: Final = 20.0
"""The most time that a copy has until it does what can be held."""
SETTLED_S: Final = 0.3
"""An input counts as in a window once it has been there for so long: watchers may be late."""
LOOK_S: Final = 0.02
_LEAVE_VERSION: Final = 3
_HELD: Final = {
    AHEAD: ("Produce",),
    BEHIND: ("OffsetCommit", "TxnOffsetCommit", "EndTxn"),
    ENDING: ("EndTxn",),
}


@dataclass(slots=True)
class Aim:
    """One copy, as it is aimed at."""

    wire: CopyWire
    doors: Doors


@dataclass(frozen=True, slots=True)
class Probe:
    """The end of one attempt to strike a copy in a window."""

    window: str
    target: str
    outcome: str
    told: str
    at: float = 0.0
    """When it ended, or struck, by trio's clock."""
    inputs: Mapping[str, float] = field(default_factory=dict)
    """The ids that were in the window at the strike, and since when."""


class OutputControl:
    """What `lose_unreplicated` asks of a workload: here the application is the workload."""

    def __init__(self, aims: dict[str, Aim]) -> None:
        self._aims = aims
        self.partition = 0
        """Of the output: the one whose leader is to be lost."""

    async def burst(self, rate: float) -> None:
        """The application writes at its own pace."""

    def acked_by(self, process_prefix: str) -> int:
        return sum(aim.wire.alone[self.partition] for aim in self._aims.values())


@dataclass(slots=True, kw_only=True)
class AppStage(ChaosStage):
    workload: OutputControl
    apps: AppCluster
    windows: Windows
    output: str
    aims: dict[str, Aim]
    owners: dict[int, str]
    """Partition of the input -> the copy that committed there last."""
    probes: list[Probe] = field(default_factory=list)
    dead: set[tuple[str, str]] = field(default_factory=set)
    """(group, member id) of copies that were killed."""
    last_death: float = 0.0
    """Of a broker or a copy, by trio's clock."""

    @property
    def lossy_partition(self) -> TopicPartition:
        """The one to which most is written."""
        acknowledged = self.acknowledged()
        most = max(acknowledged, key=lambda p: acknowledged[p], default=0)
        return TopicPartition(self.output, most)

    def targets(self, text: str, others_than: list[str] | None = None) -> list[str]:
        if text.strip().lower() != ANY_COPY:
            return ChaosStage.targets(self, text, others_than)
        running = [name for name in self.apps.copies if self.apps.running(name)]
        works = [name for name in running if name in self.owners.values()] or running
        if not works:
            raise ClusterError("no copy of the application runs")
        return [self.rng.choice(works)]

    def acks(self) -> frozenset[int]:
        """What the copies' Produce requests asked for."""
        return frozenset(acks for aim in self.aims.values() for acks in aim.wire.acks)

    def acknowledged(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for aim in self.aims.values():
            for partition, times in aim.wire.acknowledged.items():
                found[partition] = found.get(partition, 0) + times
        return found

    async def buries(self, copy: str) -> None:
        """A killed copy's member leaves its groups; where it cannot, its session ends."""
        self.last_death = trio.current_time()
        wire = self.aims[copy].wire
        self.dead |= {(group, wire.member_id) for group in wire.groups if wire.member_id}
        await self.leave_groups()

    async def leave_groups(self) -> None:
        """LeaveGroup in the names of the dead, as removeMembersFromConsumerGroup of Java's Admin
        does; again, as a coordinator that takes over does not know that one has left."""
        for group, member_id in self.dead:
            identity = messages.LeaveGroupRequest.MemberIdentity(
                member_id=member_id, group_instance_id=None
            )
            request = messages.LeaveGroupRequest(group_id=group, members=[identity])
            with suppress(OSError, BadMessage, ClusterError, trio.BrokenResourceError):
                (coordinator,) = self.targets(f"coordinator of group {group}")
                address = self.apps.address(broker_number(coordinator))
                await ask(address, request, _LEAVE_VERSION)

    async def wait_for_work(self) -> None:
        """Until a copy has committed since the last one was started, for a time."""
        started = max(copy.started for copy in self.apps.copies.values())
        wires = [aim.wire for aim in self.aims.values()]
        with trio.move_on_after(WORKS_S):
            while any(w.committed for w in wires) and not any(
                w.committed and w.committed[-1] > started for w in wires
            ):
                await trio.sleep(LOOK_S)

    def window_of(self, window: str, copy: str) -> dict[str, float]:
        """The ids in a window, of the partitions that are this copy's, and since when each is.

        Those from before a death are left out: what it lost stays ahead for ever.
        """
        own = [p for p, name in self.owners.items() if name == copy]
        return self.windows.within(window, own, self.last_death)

    def died(self, number: int, led: Led) -> None:
        ChaosStage.died(self, number, led)
        self.last_death = trio.current_time()


_Effect = Callable[[AppStage, Fault], Awaitable[Done]]


def _aimed(plain: _Effect) -> _Effect:
    """The verb, at a moment of the application's own where the entry has a `when`."""

    async def verb(stage: AppStage, fault: Fault) -> Done:
        if "when" in fault.params:
            return await _Strike(stage, fault, plain).run()
        done = await plain(stage, fault)
        if fault.name == "kill" and done.target in stage.aims:
            await stage.buries(done.target)
        return done

    return verb


class _Strike:
    """One probe by a fault on a copy."""

    def __init__(self, stage: AppStage, fault: Fault, verb: _Effect) -> None:
        self.stage = stage
        self.verb = verb
        self.window = str(fault.params["when"])
        self.name = stage.target(fault)
        self.fault = replace(fault, target=self.name)
        if self.name not in stage.aims:
            raise ClusterError(f"{self.name} is no copy of the application: `when` needs one")
        self.aim = stage.aims[self.name]
        self.rules: list[Rule] = []
        self.struck = 0.0

    async def run(self) -> Done:
        held = 0
        if (why := await self._works()) is not None:
            return self._ended(NOT_RUN, why)
        for _ in range(TRIES):
            hold_s = self._hold_s()
            self._hold()
            ids = await self._opens(hold_s)
            if ids is not None:
                return await self._strike(ids)
            held += sum(rule.matched for rule in self.rules)
            self._let_go()
            await self._commits_again()
        if not held:
            what = " nor ".join(_HELD[self.window])
            return self._ended(NOT_RUN, f"no {what} came from {self.name}")
        interval_s = self.aim.wire.interval_s
        if interval_s is not None and hold_s < interval_s:
            return self._ended(
                NOT_RUN,
                f"{self.name} commits every {interval_s:.1f} s, and its messages may be held for "
                f"{hold_s:.1f} s",
            )
        return self._ended(
            CLOSED, f"{counted(held, 'message')} held over a commit that was due, and none came out"
        )

    # --- before

    async def _works(self) -> str | None:
        """Waits until the copy has committed since its start; why not, where it has not."""
        copy = self.stage.apps.copies[self.name]
        wire = self.aim.wire
        with trio.move_on_after(WORKS_S):
            while True:
                if self.window == BEHIND and self.stage.window_of(BEHIND, self.name):
                    return None
                if copy.running and any(at > copy.started for at in wire.committed):
                    none = self.window == ENDING and not wire.transactions
                    return f"{self.name} has ended no transaction" if none else None
                await trio.sleep(LOOK_S)
        if not copy.running:
            return f"{self.name} does not run"
        return f"no commit came from {self.name} within {WORKS_S:g} s"

    def _hold_s(self) -> float:
        return self.aim.wire.hold_s(commits=self.window != AHEAD)

    def _hold(self) -> None:
        side = Side.RESPONSE if self.window == ENDING else Side.REQUEST
        topic = self.stage.output if self.window == AHEAD else ""
        self.rules = [
            self.aim.doors.links.add(Rule(Action.HOLD, api, side, topic=topic, limit=0))
            for api in _HELD[self.window]
        ]

    def _let_go(self) -> None:
        for rule in self.rules:
            self.aim.doors.links.release(rule)

    async def _opens(self, within_s: float) -> dict[str, float] | None:
        """The ids that stay in the window; None where none did."""
        with trio.move_on_after(within_s):
            while True:
                if self.window == ENDING:
                    if any(rule.matched for rule in self.rules):
                        return {}
                else:
                    settled = trio.current_time() - SETTLED_S
                    ids = self.stage.window_of(self.window, self.name)
                    if any(since <= settled for since in ids.values()):
                        return ids
                await trio.sleep(LOOK_S)
        return None

    async def _commits_again(self) -> None:
        """What was late is made up for before the next attempt."""
        wire, now = self.aim.wire, trio.current_time()
        with trio.move_on_after(2 * (wire.interval_s or 1.0) + 1.0):
            while not any(at > now for at in wire.committed):
                await trio.sleep(LOOK_S)

    # --- the strike

    async def _strike(self, ids: dict[str, float]) -> Done:
        self.struck = trio.current_time()
        try:
            done = await self.verb(self.stage, self.fault)
        except BaseException:
            self._let_go()
            raise
        if self.fault.name == "pause":
            return self._pauses(done, ids)
        self.aim.doors.drop(*self.rules)
        await self.stage.buries(self.name)
        if self.window == AHEAD:  # an output that shows up now had been stored
            await trio.sleep(SETTLED_S)
            still = self.stage.windows.still(AHEAD, ids)
            ids = {id_: since for id_, since in ids.items() if id_ in still}
            if not ids:
                told = "it was struck, and what was seen as its window came late"
                return self._ended(CLOSED, told, done)
        return self._ended(HIT, self._what_was_hit(ids), done, ids)

    def _pauses(self, done: Done, ids: dict[str, float]) -> Done:
        """What is held arrives when it wakes: late, and perhaps in another's place."""
        wake = done.undo
        assert wake is not None

        async def undo() -> str | None:
            self._let_go()
            return await wake()

        done.undo = undo
        return self._ended(HIT, self._what_was_hit(ids), done, ids)

    def _what_was_hit(self, ids: dict[str, float]) -> str:
        count = counted(len(ids), "input")
        if self.window == ENDING:
            return "a transaction had been ended, and its answer did not come"
        if self.window == AHEAD:
            return f"{count} had been committed, and the output was not stored"
        only = self.stage.windows.only_stored(ids)
        told = f"{count} had an output that was stored, and had not been committed"
        return f"{told}; {only} of them in an open transaction" if only else told

    def _ended(
        self,
        outcome: str,
        told: str,
        done: Done | None = None,
        ids: dict[str, float] | None = None,
    ) -> Done:
        at = self.struck or trio.current_time()
        self.stage.probes.append(Probe(self.window, self.name, outcome, told, at, ids or {}))
        done = done or Done(self.name)
        done.effect = f"{outcome}: {told}"
        return done


async def lose_unreplicated(stage: AppStage, fault: Fault) -> Done:
    """Cuts the followers of an output's leader, waits for an output that it acknowledges alone, and
    kills it."""
    produced = sum(aim.wire.produced for aim in stage.aims.values())
    tp = stage.lossy_partition
    stage.workload.partition = tp.partition
    done = await workload_verbs.lose_once(stage, fault, tp)
    if done.effect is not None:
        probe = Probe(LOSS, done.target, HIT, f"{done.effect}, of {tp}")
    elif sum(aim.wire.produced for aim in stage.aims.values()) > produced:
        told = f"nothing was acknowledged by the leader of {tp} while its followers were cut off"
        probe = Probe(LOSS, done.target, CLOSED, told)
    else:
        probe = Probe(LOSS, done.target, NOT_RUN, f"nothing was written to {stage.output}")
    stage.probes.append(probe)
    done.effect = f"{probe.outcome}: {probe.told}"
    return done


async def wait(stage: AppStage, fault: Fault) -> Done:
    """A group in the middle of a rebalance shows nothing of the next fault."""
    done = await verbs.wait(stage, fault)
    if fault.params.get("until") == "healthy":
        await stage.leave_groups()
        await stage.wait_for_work()
    return done


def _check_copy(scene: Scene, fault: Fault) -> None:
    copies = (*scene.apps, ANY_COPY)
    if "when" in fault.params and fault.target not in copies and fault.target[:1] != "$":
        raise Wrong(f"when: {fault.target!r} is no copy; there are {', '.join(copies)}")


_WHEN = Field("when", "the moment of the application's at which to strike", choices=WHEN)
_PLAIN = verb_table.VERBS
VERBS: dict[str, Verb] = {
    **{name: row for name, row in _PLAIN.items() if name != "burst"},
    **{
        name: replace(_PLAIN[name], effect=_aimed(effect), fields=(_WHEN,), check=_check_copy)
        for name, effect in (("kill", verbs.kill), ("pause", verbs.pause))
    },
    "lose_unreplicated": replace(_PLAIN["lose_unreplicated"], effect=lose_unreplicated),
    "wait": replace(_PLAIN["wait"], effect=wait),
}
"""Those of schedules on an application."""
