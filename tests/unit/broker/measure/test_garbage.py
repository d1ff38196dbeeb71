"""The garbage collector: old objects are passed over, and looked at again from time to time."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from highwater.broker.measure.garbage import LONG_NS, THAW_NS, Collector
from highwater.world.real.clock import this_thread


class Clock:
    """Every collection takes as long as the test says."""

    def __init__(self) -> None:
        self.now = 0
        self.each = 0

    def __call__(self) -> int:
        self.now += self.each
        return self.now


Noted = list[tuple[str, int]]


@pytest.fixture
def collector() -> Iterator[tuple[Clock, Noted]]:
    clock, noted = Clock(), []
    found = Collector(clock, lambda name, ns: noted.append((name, ns)), this_thread())
    was = gc.isenabled()
    gc.disable()
    found.begin()
    yield clock, noted
    found.end()
    if was:
        gc.enable()


class Node:
    pass


def test_what_a_start_leaves_behind_is_never_looked_at(collector: tuple[Clock, Noted]) -> None:
    before = gc.get_freeze_count()
    assert before > 10_000
    assert len(gc.get_objects()) < before / 10


def test_a_long_full_collection_is_the_last_that_sees_its_survivors(
    collector: tuple[Clock, Noted],
) -> None:
    clock, noted = collector
    kept, before = [Node() for _ in range(1000)], gc.get_freeze_count()
    clock.each = LONG_NS - 1
    gc.collect()
    # frozen objects may die of their last reference meanwhile, so the count may fall on its own
    assert gc.get_freeze_count() <= before, "a short one costs nothing: they stay"
    clock.each = LONG_NS + 1
    gc.collect(1)
    assert gc.get_freeze_count() <= before, "nor do the younger generations freeze anything"
    before = gc.get_freeze_count()
    gc.collect()
    assert gc.get_freeze_count() >= before + len(kept)
    assert noted[-1] == ("garbage collection, generation 2", LONG_NS + 1)
    assert noted[-2][0] == "garbage collection, generation 1"


def test_another_threads_collection_is_no_step_of_the_loop(collector: tuple[Clock, Noted]) -> None:
    _, noted = collector
    before = len(noted)
    thread = threading.Thread(target=gc.collect)
    thread.start()
    thread.join()
    assert len(noted) == before
    gc.collect()
    assert len(noted) == before + 1


def test_what_a_broker_has_just_got_is_frozen(collector: tuple[Clock, Noted]) -> None:
    kept, before = [Node() for _ in range(1000)], gc.get_freeze_count()
    Collector(lambda: 0, lambda *_: None).grown()
    assert gc.get_freeze_count() >= before + len(kept)


@pytest.mark.thorough
def test_what_has_died_frozen_is_found_when_all_is_thawed(collector: tuple[Clock, Noted]) -> None:
    clock, _ = collector
    died: list[str] = []

    class Cycle:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            died.append("cycle")

    cycle = Cycle()
    clock.each = LONG_NS + 1
    gc.collect()
    del cycle
    gc.collect()
    assert not died, "frozen alive: passed over"
    clock.now += THAW_NS
    gc.collect()
    assert died
