"""The strike that explains a lost or a repeated input."""

from __future__ import annotations

import pytest

from highwater.chaos.aimed.app_stage import CLOSED, HIT, Probe
from highwater.chaos.aimed.stories import plainest_loss, shared_ids, story_of, story_of_order

PLACES = ("orders-1", "invoices", "group app")
LOSES = Probe("ahead", "app-2", HIT, "", 14.0, {"r-7": 13.5, "r-8": 13.6})
REPEATS = Probe("behind", "app", HIT, "", 30.0, {"r-9": 29.0})


def test_a_lost_input_is_told_by_its_commit_its_death_and_what_would_be_right() -> None:
    story = story_of([REPEATS, LOSES], "K7", "r-7", PLACES, began=10.0)
    assert story is not None
    assert story.clause == (
        "; app-2 was struck in between: the application commits before its output is stored"
    )
    before, death, right = story.lines
    assert before == "3.5 s: group app has committed past id r-7 in orders-1"
    assert death.startswith("4.0 s: app-2 is struck, and its output is not in invoices")
    assert "2 inputs" in death
    assert "delivered" in right


def test_a_repeated_one_by_its_output_and_the_offset_that_was_missing() -> None:
    story = story_of([LOSES, REPEATS], "K8", "r-9", PLACES, began=10.0)
    assert story is not None
    assert "in two steps" in story.clause
    assert story.lines[0] == "19.0 s: the output of id r-9 is stored in invoices"
    assert "one transaction" in story.lines[2]


@pytest.mark.parametrize(
    ("rule", "id_", "probe"),
    [
        ("K7", "r-1", LOSES),  # another input
        ("K8", "r-7", LOSES),  # nothing was lost by what repeats
        ("K11", "r-7", LOSES),
        ("K7", "r-7", Probe("ahead", "app", CLOSED, "", 14.0, {"r-7": 13.5})),
    ],
)
def test_a_strike_explains_only_what_it_hit(rule: str, id_: str, probe: Probe) -> None:
    assert story_of([probe], rule, id_, PLACES, 0.0) is None


def test_a_refused_output_is_told_as_an_error_that_was_injected() -> None:
    refused = Probe("refused", "app", HIT, "", 15.0, {"r-3": 15.2})
    story = story_of([LOSES, refused], "K7", "r-3", PLACES, began=10.0)
    assert story is not None
    assert "an error was injected: the application commits past an output" in story.clause
    assert story.lines[1].startswith("5.2 s: group app has committed past id r-3 in orders-1")


def test_an_order_is_lost_by_a_producer_that_is_not_idempotent_alone() -> None:
    probes = [Probe("reordered", "app", HIT, "a request was refused once, with 2 behind it", 12.0)]
    story = story_of_order(probes, {True, False}, began=10.0)
    assert story is not None
    assert story.lines[0].startswith("2.0 s: of what app writes a request was refused once")
    assert story_of_order(probes, {True}, 10.0) is None
    assert story_of_order([], {False}, 10.0) is None


def test_copies_that_share_a_transactional_id_are_named() -> None:
    assert shared_ids({"app": {"a"}, "app-2": {"b"}}) == ""
    told = shared_ids({"app": {"a", "x"}, "app-2": {"b", "x"}})
    assert told == "; app and app-2 have one transactional id, x: each fences the others"


def test_a_loss_is_told_by_its_plainest_mistake() -> None:
    refused = Probe("refused", "app", HIT, "", 12.0, {"r-3": 12.2})
    lost = {"r-3", "r-8", "r-9"}
    assert plainest_loss([refused, REPEATS, LOSES], lost.intersection) == "r-8"
    assert plainest_loss([refused, REPEATS], lost.intersection) == "r-3"
    assert plainest_loss([refused, LOSES], set().intersection) == ""
