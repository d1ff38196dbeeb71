"""What the probes show about each promise that an application must keep.

A promise counts as examined once a probe for it was hit or closed: a kill at a random moment proves
little.  Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from highwater.chaos.aimed.app_stage import CLOSED, HIT, NOT_RUN, Probe
from highwater.chaos.aimed.probes import ENDING, LOSS, MOVED
from highwater.chaos.aimed.refusals import REFUSED, REORDERED
from highwater.chaos.aimed.windows import AHEAD, BEHIND
from highwater.verdict.headline import counted

NONE_LOST, NONE_REPEATED, IN_ORDER = "none lost", "none repeated", "in order"
PROBES = {
    NONE_LOST: (AHEAD, LOSS, REFUSED),
    NONE_REPEATED: (BEHIND, ENDING, MOVED),
    IN_ORDER: (REORDERED,),
}
_MOMENTS = {
    AHEAD: "between commit and output",
    LOSS: "with an output that its leader alone had acknowledged",
    BEHIND: "between output and commit",
    ENDING: "between a transaction's end and its answer",
    MOVED: "with a coordinator that died between output and commit",
    REFUSED: "with a commit past an output that had been refused",
    REORDERED: "with requests behind one that was refused once",
}


def demanded(*, exactly_once: bool, ordered: bool) -> list[str]:
    return [NONE_LOST, *[NONE_REPEATED] * exactly_once, *[IN_ORDER] * ordered]


def accounts(probes: Sequence[Probe], promises: Collection[str]) -> list[str]:
    """One line for each promise: what its probes did."""
    return [f"{promise}: {_account(probes, PROBES[promise])}" for promise in promises]


def _account(probes: Sequence[Probe], windows: Sequence[str]) -> str:
    told = []
    for window in windows:
        ends = [probe.outcome for probe in probes if probe.window == window]
        if hit := ends.count(HIT):
            told.append(f"struck {counted(hit, 'time')} {_MOMENTS[window]}")
        if closed := ends.count(CLOSED):
            told.append(f"{counted(closed, 'probe')} found no moment {_MOMENTS[window]}")
    if told:
        return ", ".join(told)
    why = [p.told for p in probes if p.window in windows and p.outcome == NOT_RUN]
    return f"not examined{': ' if why else ''}{'; '.join(dict.fromkeys(why))}"


def unexamined(probes: Sequence[Probe], promises: Collection[str]) -> list[str]:
    """The promises that no probe has tried."""
    tried = {probe.window for probe in probes if probe.outcome != NOT_RUN}
    return [promise for promise in promises if tried.isdisjoint(PROBES[promise])]
