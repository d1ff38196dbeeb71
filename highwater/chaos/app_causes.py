"""Why an application's outputs are missing or repeated, as far as the witnesses show it.

Several mistakes look alike in the topic: a record is not there.  Other facts tell them apart.  An
output that only its leader had (acks=1) is lost with that leader, whether it died or merely lost
the leadership.  An offset committed before the output is stored loses it when a copy ends between
the two.
"""

from __future__ import annotations

from dataclasses import dataclass

from highwater.verdict.headline import counted


@dataclass(frozen=True, slots=True)
class NotThere:
    """What is known when inputs have no output."""

    output: str
    group: str
    many: int
    """How many outputs are missing."""
    offset: int
    """The offset of the first input without an output."""
    committed: int | None
    """The group's offset in that partition."""
    gone: int
    """How many records of the output dead leaders had and their successors did not have."""
    moved: int
    """How often another broker became the leader of a partition of the output."""
    ended: bool
    """Whether a copy of the application ended or was killed."""
    within_s: float
    acks: frozenset[int] = frozenset()
    """The values of acks in the Produce requests that were seen."""

    @property
    def one_broker_did(self) -> bool:
        """Whether an output may have counted as written when only its leader had it."""
        return not self.acks or bool(self.acks & {0, 1})


def why_repeated(output: str, transactions: bool, beside: int) -> str:
    """A clause for the headline.  `transactions`: whether the output has some; `beside`: how many
    commits of offsets were in no transaction."""
    two_steps = (
        "the application writes outputs and commits offsets in two steps, and an end between them "
        "repeats what lies there"
    )
    if not transactions:
        return f"; {output} holds no transaction: {two_steps}"
    return f"; its offsets are committed beside the transactions: {two_steps}" if beside else ""


def why_not_there(seen: NotThere) -> str:
    """A clause for the headline; empty where nothing is known."""
    if seen.acks and seen.acks <= {0, 1} and (seen.gone or seen.moved):
        went = (
            f"{counted(seen.gone, 'record')} of {seen.output} ended with their leader"
            if seen.gone
            else f"{seen.output} had {counted(seen.moved, 'change')} of leader"
        )
        return f"; {went}: the others did not have them, which acks=1 acknowledges"
    # fewer prove nothing: any leader's death loses records that were not acknowledged yet
    if seen.gone >= seen.many and seen.one_broker_did:
        return (
            f"; {counted(seen.gone, 'record')} of {seen.output} ended with their leader: "
            "the others did not have them, which acks=1 acknowledges"
        )
    if seen.committed is None:
        return ""
    past = f"; group {seen.group} has committed offset {seen.committed}, "
    if seen.committed <= seen.offset:
        return (
            f"{past}not past it: the application was not yet there {seen.within_s:g} s after the "
            "last input (--rate, --within)"
        )
    # no copy ended, so no early commit can have lost the output
    if seen.moved and not seen.ended and seen.one_broker_did:
        return (
            f"{past}past it, no copy ended, and {seen.output} had {counted(seen.moved, 'change')} "
            "of leader: the new leader did not have it, which acks=1 acknowledges"
        )
    return f"{past}past it: the application commits before its output is stored"
