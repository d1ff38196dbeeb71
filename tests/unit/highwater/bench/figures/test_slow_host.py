"""Slow moments of the machine, and their share in a long step."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from highwater.base.loop_steps import LONG_NS, LoopSteps
from highwater.bench.figures.slow_host import (
    LongStep,
    SlowMoments,
    long_steps,
    moments_of,
    overlaps,
    watching,
)
from highwater.bench.longest_steps import Found, Step, Steps, take_machine
from highwater.broker.__main__ import LOG_FORMAT

MS = 1_000_000
SLOW = SlowMoments([(100 * MS, 103 * MS), (101 * MS, 110 * MS), (112 * MS, 130 * MS)])


def logged(folder: Path, steps: list[tuple[str, int, int]], cpu: int = -1) -> Path:
    """A broker's log lines about (name, milliseconds, milliseconds of its end)."""
    told, path = LoopSteps(), folder / "output.log"
    with path.open("w") as output:
        handler = logging.StreamHandler(output)
        handler.setFormatter(logging.Formatter(LOG_FORMAT))
        logger = logging.getLogger("highwater.base.loop_steps")
        level = logger.level
        logger.setLevel(logging.INFO)  # which also forgets what was found to be off before
        logger.addHandler(handler)
        try:
            for name, ms, end in steps:
                told.now_ns = lambda end=end: end * MS  # type: ignore[misc]
                told.cpu = lambda: cpu
                told.note(name, ms * MS)
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)
    return path


def test_slow_moments_close_to_each_other_are_one() -> None:
    assert SLOW.spans == [(100 * MS, 130 * MS)]
    assert SLOW.total_ms == 30
    apart = SlowMoments([(0, 10 * MS), (15 * MS, 20 * MS)])
    assert len(apart.spans) == 2
    assert apart.within(5 * MS, 16 * MS) == 6 * MS
    assert apart.within(10 * MS, 15 * MS) == 0


def test_the_machine_stood_still_where_every_cpu_was_late() -> None:
    first = (
        f"watching\nlate {10 * MS} {20 * MS}\nslow {50 * MS} {51 * MS}\nlate {70 * MS} {75 * MS}\n"
    )
    second = f"watching\nlate {15 * MS} {40 * MS}\nslow {48 * MS} {50 * MS}\n"
    moments = moments_of({0: first, 3: second})
    assert moments.spans == [(15 * MS, 20 * MS), (48 * MS, 51 * MS)]
    alone = moments_of({0: first}).spans
    assert alone == [(10 * MS, 20 * MS), (50 * MS, 51 * MS), (70 * MS, 75 * MS)]
    assert overlaps([(0, 5), (6, 9)], [(1, 2), (4, 7), (8, 20)]) == [(1, 2), (4, 5), (6, 7), (8, 9)]


def test_a_step_does_not_answer_for_the_time_in_which_its_cpu_stood_still(tmp_path: Path) -> None:
    first = f"watching\nlate {10 * MS} {14 * MS}\nlate {30 * MS} {50 * MS}\n"
    second = f"watching\nslow {12 * MS} {16 * MS}\n"
    moments = moments_of({0: first, 3: second})
    assert moments.own_ms(LongStep("x", 40, 40, 0.05, cpu=0)) == pytest.approx(40 - 6 - 20)
    assert moments.own_ms(LongStep("x", 40, 40, 0.05, cpu=3)) == pytest.approx(40 - 4)
    assert moments.own_ms(LongStep("x", 40, 40, 0.05)) == pytest.approx(40 - 4)
    assert moments.total_ms == 4
    path = logged(tmp_path, [("hog", 25, 50)], cpu=3)
    assert long_steps(path) == [LongStep("hog", 25, 25, 0.05, 3)]


def test_a_step_is_as_long_as_it_was_outside_of_slow_moments(tmp_path: Path) -> None:
    assert LONG_NS == 20 * MS
    path = logged(tmp_path, [("handler Fetch", 40, 140), ("hog", 25, 100), ("short", 20, 50)])
    assert long_steps(path) == [
        LongStep("handler Fetch", 40, 40, 0.14),
        LongStep("hog", 25, 25, 0.1),
    ]
    assert SLOW.own_ms(LongStep("x", 40, 40, 0.14)) == pytest.approx(10)
    assert SLOW.own_ms(LongStep("x", 20, 40, 0.14)) == pytest.approx(5), "half of it waited"
    assert SLOW.own_ms(LongStep("x", 25, 25, 0.1)) == 25


def test_what_was_long_by_the_machine_alone_is_counted_apart(tmp_path: Path) -> None:
    path = logged(
        tmp_path, [("handler Fetch", 40, 140), ("handler Fetch", 45, 200), ("hog-7", 60, 130)]
    )
    steps: Steps = {"handler Fetch": Step(45, 2), "hog": Step(60, 1), "other": Step(30, 1)}
    take_machine([path, tmp_path / "not there"], SLOW, steps)
    assert steps["handler Fetch"] == Step(45, 1, machine=1)
    assert steps["hog"] == Step(60, 1), "30 ms of its own are left"
    assert steps["other"] == Step(30, 1), "nothing was told of it"
    assert Found(loads={"load": steps}).too_long() == ["handler Fetch", "hog", "other"]


def test_without_a_watch_every_long_step_is_the_brokers_own(tmp_path: Path) -> None:
    path = logged(tmp_path, [("handler Fetch", 40, 140)])
    steps: Steps = {"handler Fetch": Step(40, 1)}
    take_machine([path], SlowMoments([]), steps)
    assert steps["handler Fetch"] == Step(40, 1)


@pytest.mark.thorough
def test_the_probes_run_or_it_is_said_that_they_do_not(tmp_path: Path) -> None:
    said: list[str] = []
    with watching(tmp_path, said.append) as watch:
        assert watch.watches != bool(said)
        assert isinstance(watch.moments().total_ms, float | int)
    assert not watch.watches
