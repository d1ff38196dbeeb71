"""Explains a lost or repeated input by the probe that hit it: the mistake in a clause, and a story
of a few lines."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from highwater.chaos.aimed.app_stage import HIT, Probe
from highwater.chaos.aimed.probes import ENDING, LOSS, MOVED
from highwater.chaos.aimed.refusals import REFUSED, REORDERED
from highwater.chaos.aimed.windows import AHEAD, BEHIND
from highwater.verdict.headline import counted

LOST, REPEATED, DISORDERED = "K7", "K8", "K11"
RIGHT = {
    AHEAD: "a right application waits until its outputs are delivered, and commits then",
    BEHIND: "a right application writes outputs and offsets in one transaction "
    "(send_offsets_to_transaction), and its consumers read committed records",
    MOVED: "a right application writes outputs and offsets in one transaction "
    "(send_offsets_to_transaction), and commits again where nobody answered",
    ENDING: "a right application starts from the committed offsets after a restart",
    LOSS: "a right application writes with acks=all",
    REFUSED: "a right application looks at each delivery's error, and does not commit past it",
    REORDERED: "a right application leaves enable.idempotence on, or has one request in flight",
}
_MISTAKE = {
    AHEAD: "the application commits before its output is stored",
    BEHIND: "the application writes outputs and commits offsets in two steps",
    MOVED: "the application writes outputs and commits offsets in two steps",
    ENDING: "the application does again what its transaction had done",
    REFUSED: "the application commits past an output that was refused",
    REORDERED: "its producer is not idempotent, and what it sends again comes late",
}


@dataclass(frozen=True, slots=True)
class Story:
    clause: str
    """What is added to the headline."""
    lines: tuple[str, ...]
    subject: str = ""
    """Replaces the part of the headline before the clause; empty: that part stays."""


def plainest_loss(probes: Sequence[Probe], lost: Callable[[Collection[str]], set[str]]) -> str:
    """The id of a lost input that shows the plainest mistake; empty if no strike explains a loss.

    AHEAD comes first: an application that commits too early also commits past refused outputs, but
    not the other way round.  `lost`: returns those of some ids whose output is missing.
    """
    for window in (AHEAD, REFUSED):
        for probe in probes:
            if probe.window == window and probe.outcome == HIT and (ids := lost(probe.inputs)):
                return min(ids, key=lambda id_: (probe.inputs[id_], id_))
    return ""


def story_of(
    probes: Sequence[Probe], rule: str, id_: str, places: tuple[str, str, str], began: float
) -> Story | None:
    """The strike that explains what became of this input; None if none does.  `places`: the input's
    topic and partition, the output, and the group.  `began`: when the screen's clock began."""
    windows = {LOST: (AHEAD, REFUSED), REPEATED: (BEHIND, ENDING, MOVED)}.get(rule, ())
    for probe in probes:
        if probe.window in windows and probe.outcome == HIT and id_ in probe.inputs:
            return _story(probe, id_, places, began)
    return None


def _story(probe: Probe, id_: str, places: tuple[str, str, str], began: float) -> Story:
    place, output, group = places
    since, struck = probe.inputs[id_] - began, probe.at - began
    if probe.window == REFUSED:
        before = f"{struck:.1f} s: what {probe.target} writes is refused once (INVALID_RECORD)"
        death = f"{since:.1f} s: {group} has committed past id {id_} in {place} all the same"
        clause = f"; an error was injected: {_MISTAKE[REFUSED]}"
        return Story(clause, (before, death, RIGHT[REFUSED]))
    if probe.window == AHEAD:
        before = f"{since:.1f} s: {group} has committed past id {id_} in {place}"
        but = f"its output is not in {output}"
    else:
        before = f"{since:.1f} s: the output of id {id_} is stored in {output}"
        but = f"{group} has not committed past it in {place}"
    alike = counted(len(probe.inputs), "input")
    death = f"{struck:.1f} s: {probe.target} is struck, and {but}; so it is with {alike}"
    mistake = _MISTAKE[probe.window]
    clause = f"; {probe.target} was struck in between: {mistake}"
    return Story(clause, (before, death, RIGHT[probe.window]))


def story_of_order(
    probes: Sequence[Probe], idempotent: Collection[bool], began: float
) -> Story | None:
    """Why outputs of a key came late: a batch was refused once while later ones were in flight."""
    for probe in probes:
        if probe.window == REORDERED and probe.outcome == HIT and False in idempotent:
            at = f"{probe.at - began:.1f} s: of what {probe.target} writes {probe.told}"
            clause = f"; an error was injected: {_MISTAKE[REORDERED]}"
            return Story(clause, (at, RIGHT[REORDERED]))
    return None


def shared_ids(ids: Mapping[str, Collection[str]]) -> str:
    """A clause on transactional ids that several copies use; `ids`: copy -> its ids."""
    copies: dict[str, list[str]] = {}
    for copy, own in ids.items():
        for id_ in own:
            copies.setdefault(id_, []).append(copy)
    for id_, of in sorted(copies.items()):
        if len(of) > 1:
            return f"; {' and '.join(of)} have one transactional id, {id_}: each fences the others"
    return ""
