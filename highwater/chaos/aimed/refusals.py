"""Verbs that refuse what a copy writes: once for good, once with others behind it.

    refuse_output   a Produce request to the output gets an error that no client tries again; an
                    application that commits past it has lost it, without any death
    reorder_output  a Produce request with others behind it, in flight on the same connection, gets
                    an error after which every client tries again; the second attempt comes late,
                    unless the producer is idempotent

`reorder_output` holds the answer to an earlier request, so that the client has several in flight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from highwater.chaos.aimed.app_stage import CLOSED, HIT, LOOK_S, NOT_RUN, WORKS_S, AppStage, Probe
from highwater.chaos.aimed.windows import AHEAD
from highwater.cluster.faults.done import Done
from highwater.cluster.faults.fault_model import Fault
from highwater.cluster.links.link_rules import Action, Rule, Side
from highwater.kafka.errors import ErrorCode
from highwater.verdict.headline import counted

REFUSED: Final = "refused"
REORDERED: Final = "reordered"
BEHIND_IT: Final = 3
"""How many later requests are sent before the client learns that one was refused."""
HOLD_S: Final = 3.0
COMMITS_S: Final = 5.0
"""How long to wait for a commit past the refused output."""
SETTLES_S: Final = 1.5
"""How long an output must be missing after the commit past it before that counts."""


async def refuse_output(stage: AppStage, fault: Fault) -> Done:
    await stage.wait_for_work()
    copy = stage.target(fault)
    aim, began = stage.aims[copy], trio.current_time()
    rule = Rule(Action.ANSWER, "Produce", topic=stage.output, error=ErrorCode.INVALID_RECORD)
    aim.doors.links.add(rule)
    stage.excuse(copy)
    refused = await _until(lambda: rule.matched > 0, WORKS_S)
    aim.doors.links.release(rule)
    if not refused:
        return _ended(stage, REFUSED, copy, NOT_RUN, f"nothing was written by {copy}")
    stage.excuse(copy)
    at = trio.current_time()
    await _until(lambda: any(commit > at for commit in aim.wire.committed), COMMITS_S)
    await trio.sleep(aim.wire.hold_s(commits=True) + SETTLES_S)
    partitions = [p for p, owner in stage.owners.items() if owner == copy]
    late = trio.current_time() - SETTLES_S
    ids = stage.windows.within(AHEAD, partitions, max(began, stage.last_death))
    ids = {id_: since for id_, since in ids.items() if since <= late}
    stage.last_death = trio.current_time()  # later strikes must not count this loss as theirs
    if ids:
        told = f"{counted(len(ids), 'input')} committed although the output had been refused"
        return _ended(stage, REFUSED, copy, HIT, told, at, ids)
    return _ended(
        stage, REFUSED, copy, CLOSED, "an output was refused, and nothing was committed past it", at
    )


async def reorder_output(stage: AppStage, fault: Fault) -> Done:
    copy = stage.target(fault)
    wire, links = stage.aims[copy].wire, stage.aims[copy].doors.links
    before = wire.produced
    if not await _until(lambda: wire.produced > before, WORKS_S):
        return _ended(stage, REORDERED, copy, NOT_RUN, f"nothing was written by {copy}")
    leader, _ = wire.last_place
    held = links.add(Rule(Action.HOLD, "Produce", Side.RESPONSE, source=leader, limit=0))
    refused = Rule(
        Action.ANSWER,
        "Produce",
        target=leader,
        topic=stage.output,
        error=ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
    behind = 0
    try:
        if not await _until(lambda: held.matched > 0, HOLD_S):
            told = f"{copy} writes too seldom to {leader}"
            return _ended(stage, REORDERED, copy, NOT_RUN, told)
        links.add(refused)
        if await _until(lambda: refused.matched > 0, HOLD_S):
            place = wire.last_place
            sent = wire.sent[place]
            await _until(lambda: wire.sent[place] - sent >= BEHIND_IT, HOLD_S)
            behind = wire.sent[place] - sent
    finally:
        links.release(refused)
        links.release(held)
    if behind:
        told = f"a request was refused once, with {behind} behind it"
        return _ended(stage, REORDERED, copy, HIT, told)
    told = "an answer was held, and no two more requests for one partition were sent meanwhile"
    return _ended(stage, REORDERED, copy, CLOSED, told)


async def _until(there: Callable[[], bool], within_s: float) -> bool:
    with trio.move_on_after(within_s):
        while not there():
            await trio.sleep(LOOK_S)
    return there()


def _ended(
    stage: AppStage,
    window: str,
    copy: str,
    outcome: str,
    told: str,
    at: float | None = None,
    ids: dict[str, float] | None = None,
) -> Done:
    now = trio.current_time() if at is None else at
    stage.probes.append(Probe(window, copy, outcome, told, now, ids or {}))
    return Done(copy, f"{outcome}: {told}")
