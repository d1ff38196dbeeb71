"""Markers of a connection that its coordinator has given up."""

from __future__ import annotations

from highwater.broker.membership.marker_fence import _MOST, PURPOSE, MarkerFence

ONE, OTHER = f"broker-1-{PURPOSE}", f"broker-2-{PURPOSE}"


def test_a_connection_is_overtaken_by_a_newer_one_of_the_same_coordinator() -> None:
    fence = MarkerFence()
    told = [fence.admit(ONE, number) for number in (3, 3, 7, 3, 7, 9)]
    assert told == [True, True, True, False, True, True]
    assert fence.admit(OTHER, 4)


def test_others_are_not_compared() -> None:
    fence = MarkerFence()
    for name in (None, "adminclient-1", f"broker-x-{PURPOSE}", f"my-{ONE}"):
        assert fence.admit(name, 7)
        assert fence.admit(name, 3)


def test_the_memory_is_bounded() -> None:
    fence = MarkerFence()
    for number in range(_MOST + 5):
        assert fence.admit(f"broker-{number}-{PURPOSE}", 1)
    assert len(fence._newest) == _MOST
