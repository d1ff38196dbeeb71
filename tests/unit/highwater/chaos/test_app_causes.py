"""What the headline gives as the reason for missing outputs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from highwater.chaos.app_causes import NotThere, why_not_there, why_repeated

LOST = NotThere("out", "app", 3, 149, 700, gone=3, moved=2, ended=False, within_s=10)


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (LOST, "3 records of out ended with their leader"),
        # three more went with a leader that was deposed, and lived on
        (replace(LOST, many=6), "no copy ended, and out had 2 changes of leader"),
        (replace(LOST, many=6, ended=True), "the application commits before its output is stored"),
        # what only the leader had was not acknowledged: the loss has another cause
        (replace(LOST, acks=frozenset({-1})), "the application commits before its output is"),
        (replace(LOST, acks=frozenset({1, -1})), "3 records of out ended with their leader"),
        # nothing else was asked for: whatever a death or a move took was acknowledged alone
        (replace(LOST, many=6, acks=frozenset({1})), "3 records of out ended with their leader"),
        (replace(LOST, gone=0, acks=frozenset({1})), "out had 2 changes of leader: the others did"),
        (replace(LOST, gone=0, moved=0, acks=frozenset({1})), "the application commits before its"),
        (replace(LOST, gone=0, moved=0), "the application commits before its output is stored"),
        (replace(LOST, gone=0, committed=149), "not past it: the application was not yet there"),
        (replace(LOST, gone=0, committed=None), ""),
    ],
)
def test_the_witnesses_tell_why_an_output_is_missing(seen: NotThere, told: str) -> None:
    assert told in why_not_there(seen)
    assert bool(told) == bool(why_not_there(seen))


def test_the_wire_tells_why_an_output_is_repeated() -> None:
    assert why_repeated("out", False, 0).startswith("; out holds no transaction: the application w")
    assert "beside the transactions: the application writes" in why_repeated("out", True, 3)
    assert why_repeated("out", True, 0) == "", "an end between the two repeats nothing"
