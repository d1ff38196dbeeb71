"""What is told of each promise, and which of them nothing has tried."""

from __future__ import annotations

from highwater.chaos.aimed.app_stage import CLOSED, HIT, NOT_RUN, Probe
from highwater.chaos.aimed.promises import accounts, demanded, unexamined

EVERY = demanded(exactly_once=True, ordered=True)


def probe(window: str, outcome: str, told: str = "") -> Probe:
    return Probe(window, "app", outcome, told)


def test_a_promise_is_tried_by_a_strike_or_by_a_moment_that_did_not_come() -> None:
    assert EVERY == ["none lost", "none repeated", "in order"]
    assert demanded(exactly_once=False, ordered=False) == ["none lost"]
    assert unexamined([], EVERY) == EVERY
    assert unexamined([probe("ahead", NOT_RUN)], EVERY) == EVERY
    assert unexamined([probe("ahead", CLOSED)], EVERY) == ["none repeated", "in order"]
    assert unexamined([probe("refused", HIT)], EVERY) == ["none repeated", "in order"]
    tried = [probe("unreplicated", HIT), probe("ending", HIT), probe("reordered", CLOSED)]
    assert unexamined(tried, EVERY) == []


def test_each_promise_has_a_line_with_what_was_done_for_it() -> None:
    probes = [
        *[probe("behind", HIT)] * 4,
        probe("behind", CLOSED),
        probe("ahead", NOT_RUN, "no commit came from app within 20 s"),
        probe("ahead", NOT_RUN, "no commit came from app within 20 s"),
    ]
    assert accounts(probes, EVERY) == [
        "none lost: not examined: no commit came from app within 20 s",
        "none repeated: struck 4 times between output and commit, "
        "1 probe found no moment between output and commit",
        "in order: not examined",
    ]
