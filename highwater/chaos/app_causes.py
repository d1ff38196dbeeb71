"""Why outputs of an application are missing or repeated: what witnesses say beside its contract.

Three mistakes look alike in the topic, a record that is not there.  What else happened tells them
apart: an output that only its leader had (acks=1) goes with that leader, dead or merely deposed; a
group's offset past an unstored output (committed too early) shows when a copy ends between the two.
"""

from __future__ import annotations

from dataclasses import dataclass

from highwater.verdict.headline import counted


@dataclass(frozen=True, slots=True)
class NotThere:
    """What is known when inputs are without their output."""

    output: str
    group: str
    many: int
    """How many outputs are missing."""
    offset: int
    """Of the first input without an output."""
    committed: int | None
    """The group's offset in that partition."""
    gone: int
    """Records of the output that dead leaders had and their successors had not."""
    moved: int
    """How often another broker became the leader of a partition of the output."""
    ended: bool
    """Whether a copy of the application ended or was killed."""
    within_s: float
    acks: frozenset[int] = frozenset()
    """What the Produce requests asked for, as far as they were seen."""

    @property
    def one_broker_did(self) -> bool:
        """Whether an output counted as written before others than its leader had it."""
        return not self.acks or bool(self.acks & {0, 1})


def why_repeated(output: str, transactions: bool, beside: int) -> str:
    """A clause for the headline: `transactions` are in the output, and so many commits of offsets
    went beside them."""
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
    # fewer, which nothing had acknowledged yet, end with any leader
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
    # it commits too early only where it ends before it stores
    if seen.moved and not seen.ended and seen.one_broker_did:
        return (
            f"{past}past it, no copy ended, and {seen.output} had {counted(seen.moved, 'change')} "
            "of leader: the new leader did not have it, which acks=1 acknowledges"
        )
    return f"{past}past it: the application commits before its output is stored"
