"""Schedules from a seed: repeatable, and never without the faults that a run must see."""

from __future__ import annotations

from itertools import pairwise

from highwater.chaos.faults.schedule import generate

PARTITIONS = ["safe-0", "safe-1", "safe-2"]
MUST = {"swap_leader", "pause", "lose_unreplicated", "move_controller"}


def test_equal_seeds_give_equal_schedules() -> None:
    assert generate(7, 40, PARTITIONS) == generate(7, 40, PARTITIONS)
    assert generate(7, 40, PARTITIONS) != generate(8, 40, PARTITIONS)


def test_what_must_be_seen_is_in_every_schedule_and_comes_first() -> None:
    for seed in range(50):
        for duration in (1, 40):
            faults = generate(seed, duration, PARTITIONS)
            required = [f for f in faults if not f.optional]
            assert {f.name for f in required} - {"wait"} == MUST
            assert faults[: len(required)] == required
    orders = {tuple(f.name for f in generate(s, 40, PARTITIONS)[:9]) for s in range(50)}
    assert len(orders) > 10


def test_between_two_acts_the_cluster_becomes_whole() -> None:
    faults = generate(3, 40, PARTITIONS)
    for first, second in pairwise(faults):
        assert "wait" in (first.name, second.name)
