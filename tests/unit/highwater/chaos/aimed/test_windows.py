"""Which inputs a death would lose or repeat, in whatever order it is told."""

from __future__ import annotations

import itertools

from highwater.chaos.aimed.windows import AHEAD, BEHIND, Windows


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def windows() -> Windows:
    return Windows(Clock())


def test_what_is_committed_and_not_shown_is_ahead() -> None:
    w = windows()
    for number in range(3):
        w.sent(f"r-{number}", 0, number)
    w.committed("app", 0, 2)
    assert w.within(AHEAD, [0]).keys() == {"r-0", "r-1"}
    w.shown("r-0", 1, 7)
    assert w.within(AHEAD, [0]).keys() == {"r-1"}
    assert w.within(BEHIND, [0]) == {}


def test_an_output_above_the_last_stable_offset_is_not_lost_yet() -> None:
    """Another's open transaction hides it, too."""
    w = windows()
    for number in range(3):
        w.sent(f"r-{number}", 0, number)
    w.stored("r-0", 0, 5)
    w.stored("r-1", 0, 6)
    w.stored("r-1", 1, 0)  # written twice
    w.passed(0, 5)
    w.committed("app", 0, 3)
    assert w.within(AHEAD, [0]).keys() == {"r-2"}
    w.passed(0, 8)  # both were aborted
    assert w.within(AHEAD, [0]).keys() == {"r-0", "r-2"}
    w.shown("r-1", 1, 0)
    assert w.within(AHEAD, [0]).keys() == {"r-0", "r-2"}
    w.stored("r-2", 0, 7)  # told late
    assert w.within(AHEAD, [0]).keys() == {"r-0", "r-2"}


def test_what_is_stored_and_not_committed_is_behind() -> None:
    w = windows()
    for number in range(3):
        w.sent(f"r-{number}", 0, number)
    w.stored("r-0", 0, 0)
    w.shown("r-1", 0, 1)
    assert w.within(BEHIND, [0]).keys() == {"r-0", "r-1"}
    assert w.only_stored(["r-0", "r-1"]) == 1
    w.committed("app", 0, 1)
    assert w.within(BEHIND, [0]).keys() == {"r-1"}


def test_every_order_of_the_same_news_ends_the_same() -> None:
    for order in itertools.permutations(range(4)):
        w = windows()
        news = [
            lambda w=w: w.sent("r-7", 1, 7),
            lambda w=w: w.stored("r-7", 0, 7),
            lambda w=w: w.shown("r-7", 0, 7),
            lambda w=w: w.committed("app", 1, 8),
        ]
        for number in order:
            news[number]()
        assert (w.size(AHEAD), w.size(BEHIND)) == (0, 0), order


def test_the_group_that_came_furthest_counts_until_its_offset_is_gone() -> None:
    w = windows()
    w.sent("r-0", 0, 0)
    w.committed("one", 0, 1)
    w.committed("two", 0, 0)
    assert w.size(AHEAD) == 1
    w.committed("one", 0, None)
    assert w.size(AHEAD) == 0
    w.shown("r-0", 0, 0)
    assert w.size(BEHIND) == 1


def test_a_group_that_goes_back_puts_its_inputs_back() -> None:
    w = windows()
    for number in range(3):
        w.sent(f"r-{number}", 0, number)
        w.shown(f"r-{number}", 0, number)
    w.committed("app", 0, 3)
    assert w.size(BEHIND) == 0
    w.committed("app", 0, 1)
    assert w.within(BEHIND, [0]).keys() == {"r-1", "r-2"}


def test_only_the_asked_partitions_and_what_came_after_a_moment() -> None:
    clock = Clock()
    w = Windows(clock)
    w.sent("a", 0, 0)
    w.sent("b", 1, 0)
    w.committed("app", 0, 1)
    clock.now = 5.0
    w.committed("app", 1, 1)
    assert w.within(AHEAD, [1]) == {"b": 5.0}
    assert w.within(AHEAD, [0, 1], after=1.0) == {"b": 5.0}
    assert w.still(AHEAD, ["a", "c"]) == {"a"}
    assert (w.place("b"), w.place("c")) == ((1, 0), None)
