"""The wheel against a sorted list; its cost does not grow with the number of pending entries."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from highwater.broker.request.timing_wheel import TimerTask, TimingWheel

T = TypeVar("T")


class Call(TimerTask):
    """A function and its argument, run at a time."""

    def __init__(self, call: Callable[[T], object], argument: T) -> None:
        self.call = partial(call, argument)

    def run(self) -> None:
        self.call()


def add_to(wheel: TimingWheel, due_ms: int, call: Callable[[T], object], argument: T) -> TimerTask:
    task = Call(call, argument)
    wheel.add(task, due_ms)
    return task


steps = st.lists(
    st.tuples(
        st.integers(0, 9000),  # time that passes before the step
        st.lists(st.integers(-5, 200_000), max_size=4),  # delays to add
        st.lists(st.integers(0, 50), max_size=2),  # entries to cancel
    ),
    max_size=30,
)


@pytest.mark.thorough
@given(st.integers(0, 10**7), steps)
def test_each_ends_at_its_time_and_once(
    start: int, script: list[tuple[int, list[int], list[int]]]
) -> None:
    wheel = TimingWheel(start)
    now = start
    entries: list[TimerTask] = []
    pending: dict[int, int] = {}
    ended: list[tuple[int, int]] = []

    def sleep_until(end: int) -> None:
        nonlocal now
        while (due := wheel.next_due_ms()) is not None and due <= end:
            now = max(now, due)
            wheel.advance(now)
        now = end
        wheel.advance(now)

    def add(delay: int) -> None:
        number = len(entries)
        due = now + delay
        pending[number] = due
        entries.append(add_to(wheel, due, lambda n: ended.append((n, now)), number))

    for passed, delays, cancelled in script:
        sleep_until(now + passed)
        for delay in delays:
            add(delay)
        for number in cancelled:
            if number < len(entries):
                entries[number].cancel()
                if number not in dict(ended):
                    pending.pop(number, None)
    sleep_until(now + 300_000)
    assert sorted(number for number, _ in ended) == sorted(pending)
    for number, when in ended:
        late = when - pending[number]
        assert late >= 0
        assert late <= max(1, 5 + 1)  # one due already ends at the next tick
    assert [when for _, when in ended] == sorted(when for _, when in ended)
    assert wheel.next_due_ms() is None
    assert not any(entry.timed for entry in entries)


def test_a_callback_may_cancel_its_neighbour_and_add() -> None:
    wheel = TimingWheel(0)
    seen: list[str] = []
    entries: list[TimerTask] = []

    def first(what: str) -> None:
        seen.append(what)
        entries[1].cancel()
        add_to(wheel, 10, seen.append, "added")

    entries.append(add_to(wheel, 10, first, "first"))
    entries.append(add_to(wheel, 10, seen.append, "cancelled"))
    wheel.advance(10)
    assert seen == ["first"]
    wheel.advance(11)
    assert seen == ["first", "added"]


def test_what_was_cancelled_is_not_worth_waking_up_for() -> None:
    wheel = TimingWheel(0)
    entries = [add_to(wheel, due, print, None) for due in (3, 15, 200, 210, 9000)]
    for entry in (entries[0], entries[2], entries[3]):
        entry.cancel()
    assert wheel.next_due_ms() == 15
    entries[1].cancel()
    due = wheel.next_due_ms()
    assert due is not None
    assert 8000 <= due <= 9000
    entries[4].cancel()
    assert wheel.next_due_ms() is None
    calls: list[int] = []
    add_to(wheel, 15, calls.append, 15)
    assert wheel.next_due_ms() == 15
    assert wheel.advance(15) == 1
    assert calls == [15]


@pytest.mark.thorough
def test_cost_is_flat_from_a_thousand_to_a_hundred_thousand_pending() -> None:
    """Counted in buckets on the heap, not in seconds: the sleeper looks at those."""
    wheel = TimingWheel(0)
    ended: list[int] = []
    for number in range(100_000):
        add_to(wheel, number % 30_000 + 1, ended.append, number)
    assert len(wheel._heap) <= 20 * 5
    assert wheel.advance(30_001) == 100_000
