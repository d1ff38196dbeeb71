"""Verbs that strike an application in its window: `kill` and `pause` with `when`, and
`lose_unreplicated` at its output.

    when      messages of one copy that it holds             it strikes when
    ahead     Produce to the output                          an input stays ahead
    behind    OffsetCommit, TxnOffsetCommit, EndTxn          an input stays behind
    ending    EndTxn's answer                                one is held

If the target is a broker, such as the group's coordinator, the messages of some working copy are
held, and the broker is struck; then the messages go on, but the broker no longer answers.

Theory of operation.  A probe opens a window and keeps it open: it holds these messages, on this
copy's doors alone, until some input has been in the window for longer than the watchers may be
late.  Then it strikes, and the held messages never arrive.  If no input shows up before a commit
was due, it lets the messages go and tries again.  So a probe ends as

    hit       the copy was struck with n inputs in the window
    closed    the messages were held over a commit that was due, and the window stayed empty: this
              application does not open it
    not run   the copy did nothing that could be held, in words

A dead copy's member is made to leave its group at once; else the others would wait for the end of
its session.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

import trio

from highwater.chaos.aimed.app_stage import (
    CLOSED,
    HIT,
    LOOK_S,
    NOT_RUN,
    WORKS_S,
    AppStage,
    Probe,
)
from highwater.chaos.aimed.windows import AHEAD, BEHIND
from highwater.cluster.faults import verbs, workload_verbs
from highwater.cluster.faults.done import Done
from highwater.cluster.faults.fault_model import Fault
from highwater.cluster.faults.scene import ANY_COPY
from highwater.cluster.interface import broker
from highwater.cluster.links.link_rules import Action, Rule, Side
from highwater.kafka.types import TopicPartition
from highwater.verdict.headline import counted

ENDING: Final = "ending"
MOVED: Final = "moved"
"""The window of a probe that strikes a broker while a copy's messages are held."""
LOSS: Final = "unreplicated"
WHEN: Final = (AHEAD, BEHIND, ENDING)
PENDING_S: Final = 2.0
"""How long to wait for a copy's write before the followers are cut off; and then, for the next
leaders to write something."""
LOSS_TRIES: Final = 3
TAKES_OVER_S: Final = 6.0
"""The most time that another copy has to take over from one that stands still.  It needs longer if
a transaction of the paused copy has offsets pending (KIP-447)."""
OPENS_S: Final = 1.5
"""How long a held message keeps a window open at least, because watchers may be late."""
SETTLED_S: Final = 0.3
"""How long an input must be in a window before it counts, because watchers may be late."""
LATE_S: Final = 2.0
"""How long an output may still show up after a copy's death; if it does not, the input counts as
lost.  On a busy machine the watchers can be later than SETTLED_S allows for."""
_HELD: Final = {
    AHEAD: (("Produce",), ("Produce",)),
    # second attempt: AddPartitionsToTxn may be stuck behind a held TxnOffsetCommit, and so the
    # output
    BEHIND: (("OffsetCommit", "TxnOffsetCommit", "EndTxn"), ("OffsetCommit", "EndTxn")),
    ENDING: (("EndTxn",), ("EndTxn",)),
}
"""Window -> the APIs that are held in the first attempt, and in the second."""


_Effect = Callable[[AppStage, Fault], Awaitable[Done]]


def aimed(plain: _Effect) -> _Effect:
    """The verb; with `when` in its entry, it strikes at that moment in the application's work."""

    async def verb(stage: AppStage, fault: Fault) -> Done:
        if "when" in fault.params:
            return await _Strike(stage, fault, plain).run()
        done = await plain(stage, fault)
        if fault.name == "kill" and done.target in stage.aims:
            await stage.buries(done.target)
        return done

    return verb


class _Strike:
    """One probe: a fault that strikes in a window."""

    def __init__(self, stage: AppStage, fault: Fault, verb: _Effect) -> None:
        self.stage = stage
        self.verb = verb
        self.window = str(fault.params["when"])
        self.struck_member = stage.target(fault)
        self.fault = replace(fault, target=self.struck_member)
        self.at_broker = self.struck_member not in stage.aims
        (self.name,) = stage.targets(ANY_COPY) if self.at_broker else (self.struck_member,)
        self.aim = stage.aims[self.name]
        self.rules: list[Rule] = []
        self.struck = 0.0

    async def run(self) -> Done:
        try:
            return await self._probe()
        except BaseException:
            self._let_go()
            raise

    async def _probe(self) -> Done:
        held = 0
        if (why := await self._works()) is not None:
            return self._ended(NOT_RUN, why)
        for apis in _HELD[self.window]:
            hold_s = self._hold_s()
            self._hold(apis)
            ids = await self._opens(hold_s)
            if ids is not None:
                return await self._strike(ids)
            held += sum(rule.matched for rule in self.rules)
            self._let_go()
            await self._commits_again()
        if not held:
            what = " nor ".join(_HELD[self.window][0])
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
        """Waits until the copy has committed since its start; gives the reason if it does not."""
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

    def _hold(self, apis: Sequence[str]) -> None:
        side = Side.RESPONSE if self.window == ENDING else Side.REQUEST
        topic = self.stage.output if self.window == AHEAD else ""
        self.rules = [
            self.aim.doors.links.add(Rule(Action.HOLD, api, side, topic=topic, limit=0))
            for api in apis
        ]

    def _let_go(self) -> None:
        for rule in self.rules:
            self.aim.doors.links.release(rule)

    async def _opens(self, within_s: float) -> dict[str, float] | None:
        """Waits until ids stay in the window, and returns them; None if none did while messages
        were held for long enough to see some."""
        began = trio.current_time()
        until = began + within_s
        held: float | None = None
        while (now := trio.current_time()) < until or (held and now < held + OPENS_S):
            if held is None and any(rule.matched for rule in self.rules):
                held = now
            if self.window == ENDING:
                if held is not None:
                    return {}
            else:
                ids = self.stage.window_of(self.window, self.name)
                if self.window == AHEAD:  # an earlier death may have lost earlier inputs
                    ids = {id_: since for id_, since in ids.items() if since >= began}
                if any(since <= now - SETTLED_S for since in ids.values()):
                    return ids
            await trio.sleep(LOOK_S)
        return None

    async def _commits_again(self) -> None:
        """Waits for a commit, so that the copy has caught up before the next attempt."""
        wire, now = self.aim.wire, trio.current_time()
        with trio.move_on_after(2 * (wire.interval_s or 1.0) + 1.0):
            while not any(at > now for at in wire.committed):
                await trio.sleep(LOOK_S)

    # --- the strike

    async def _strike(self, ids: dict[str, float]) -> Done:
        self.struck = trio.current_time()
        done = await self.verb(self.stage, self.fault)
        if self.at_broker:
            self._let_go()
            return self._ended(HIT, self._what_was_hit(ids), done, ids)
        if self.fault.name == "pause":
            return await self._pauses(done, ids)
        self.aim.doors.drop(*self.rules)
        await self.stage.buries(self.name)
        if self.window == AHEAD:  # an output that shows up now was stored before the strike
            with trio.move_on_after(LATE_S):
                while self.stage.windows.still(AHEAD, ids):
                    await trio.sleep(LOOK_S)
            still = self.stage.windows.still(AHEAD, ids)
            ids = {id_: since for id_, since in ids.items() if id_ in still}
            if not ids:
                told = "it was struck, and what was seen as its window came late"
                return self._ended(CLOSED, told, done)
        return self._ended(HIT, self._what_was_hit(ids), done, ids)

    async def _pauses(self, done: Done, ids: dict[str, float]) -> Done:
        """Waits until another copy has taken over.  The held messages arrive late: when the paused
        copy is resumed."""
        await self.stage.buries(self.name)
        taken = await self._taken_over()
        wake = done.undo
        assert wake is not None

        async def undo() -> str | None:
            self._let_go()
            self.stage.excuse(self.name)
            return await wake()

        done.undo = undo
        told = f"{self._what_was_hit(ids)}; {'another took over' if taken else 'none took over'}"
        return self._ended(HIT, told, done, ids)

    async def _taken_over(self) -> bool:
        """Whether another copy commits in this one's partitions within TAKES_OVER_S."""
        own = [p for p, name in self.stage.owners.items() if name == self.name]
        with trio.move_on_after(TAKES_OVER_S if len(self.stage.aims) > 1 else 0):
            while not any(self.stage.owners[p] != self.name for p in own):
                await trio.sleep(LOOK_S)
            return True
        return False

    def _what_was_hit(self, ids: dict[str, float]) -> str:
        of = f"of {self.name} " if self.at_broker else ""
        if self.window == ENDING:
            return f"a transaction {of}had been ended, and its answer did not come"
        count = counted(len(ids), "input")
        if self.window == AHEAD:
            return f"{count} had been committed, and the output was not stored"
        only = self.stage.windows.only_stored(ids)
        told = f"{count} {of}had an output that was stored, and had not been committed"
        return f"{told}; {only} of them in an open transaction" if only else told

    def _ended(
        self,
        outcome: str,
        told: str,
        done: Done | None = None,
        ids: dict[str, float] | None = None,
    ) -> Done:
        at = self.struck or trio.current_time()
        window = MOVED if self.at_broker else self.window
        self.stage.probes.append(Probe(window, self.struck_member, outcome, told, at, ids or {}))
        done = done or Done(self.struck_member)
        done.effect = f"{outcome}: {told}"
        return done


async def lose_unreplicated(stage: AppStage, fault: Fault) -> Done:
    """Cuts off the followers of an output's leader, waits until the leader acknowledges an output
    alone, and kills it; tries again if a follower had the output after all."""
    produced = stage.produced()
    for _ in range(LOSS_TRIES):
        tp, deaths = stage.lossy_partition, len(stage.deaths.deaths)
        await _writes_pending(stage, tp)
        try:
            done = await workload_verbs.lose_once(stage, fault, tp)
        finally:
            stage.workload.let_go()
        # the dead broker may have led other partitions of the output, too
        dead = [death for death in stage.deaths.deaths[deaths:] if death.tp.topic == stage.output]
        with trio.move_on_after(PENDING_S):  # until the next leaders have written something
            while done.effect is not None and not any(death.below for death in dead):
                stage.deaths.settle(stage.zookeeper.partitions)
                await trio.sleep(LOOK_S)
        hit = done.effect is not None and any(death.below for death in dead)
        if hit or not stage.acks() & {0, 1}:
            break
    if hit:
        probe = Probe(LOSS, done.target, HIT, f"{done.effect}, of {tp}")
    elif stage.acks() & {0, 1}:
        told = f"what the leader of {tp} acknowledged alone had been copied, or nothing was written"
        probe = Probe(LOSS, done.target, NOT_RUN, told)
    elif stage.produced() > produced:
        told = f"nothing was acknowledged by the leader of {tp} while its followers were cut off"
        probe = Probe(LOSS, done.target, CLOSED, told)
    else:
        probe = Probe(LOSS, done.target, NOT_RUN, f"nothing was written to {stage.output}")
    stage.probes.append(probe)
    done.effect = f"{probe.outcome}: {probe.told}"
    return done


async def _writes_pending(stage: AppStage, tp: TopicPartition) -> None:
    """Holds the copies' writes to the partition's leader until there is one; they go on when the
    followers are cut off.  After the cut no new input reaches the copies that they could write."""
    leader = broker(stage.zookeeper.partitions[tp].leader)
    rules = [
        (aim.doors, aim.doors.links.add(Rule(Action.HOLD, "Produce", target=leader, limit=0)))
        for aim in stage.aims.values()
    ]
    stage.workload.held = rules
    with trio.move_on_after(PENDING_S):
        while not any(rule.matched for _, rule in rules):
            await trio.sleep(LOOK_S)


async def wait(stage: AppStage, fault: Fault) -> Done:
    """As the verb of all runs, but "healthy" includes that the copies work again: a group in the
    middle of a rebalance would show nothing of the next fault."""
    done = await verbs.wait(stage, fault)
    if fault.params.get("until") == "healthy":
        await stage.wait_for_work()
    return done
