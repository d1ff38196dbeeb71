"""Batches that overlap, against the state of each record."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from highwater.broker.coordinator.share.state_batches import combined
from highwater.broker.share.persister import StateBatch

AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


@pytest.mark.parametrize(
    ("batches", "start", "found"),
    [
        ([], -1, []),
        ([(0, 9, 0, 1)], 4, [(4, 9, 0, 1)]),
        ([(0, 3, 0, 1)], 4, []),
        ([(0, 4, 0, 1), (5, 9, 0, 1)], -1, [(0, 9, 0, 1)]),
        ([(0, 4, 0, 1), (6, 9, 0, 1)], -1, [(0, 4, 0, 1), (6, 9, 0, 1)]),
        ([(0, 9, 0, 1), (3, 5, 2, 1)], -1, [(0, 2, 0, 1), (3, 5, 2, 1), (6, 9, 0, 1)]),
        ([(3, 5, 2, 1), (0, 9, 0, 2)], -1, [(0, 9, 0, 2)]),
        ([(0, 9, 4, 1), (0, 9, 2, 1)], -1, [(0, 9, 4, 1)]),
        ([(5, 4, 2, 1)], -1, []),
    ],
)
def test_the_later_state_of_a_record_counts(
    batches: list[tuple[int, ...]], start: int, found: list[tuple[int, ...]]
) -> None:
    assert combined([StateBatch(*b) for b in batches], start) == tuple(found)


@pytest.mark.parametrize("seed", range(50))
def test_each_record_has_the_highest_count_and_then_state(seed: int) -> None:
    drawn = random.Random(seed)
    batches = []
    for _ in range(drawn.randrange(1, 12)):
        first = drawn.randrange(20)
        states = drawn.choice((AVAILABLE, ACKNOWLEDGED, ARCHIVED)), drawn.randrange(1, 4)
        batches.append(StateBatch(first, first + drawn.randrange(8), *states))
    start = drawn.choice((-1, drawn.randrange(15)))
    expected: dict[int, tuple[int, int]] = {}
    for batch in batches:
        for offset in range(max(batch.first_offset, start), batch.last_offset + 1):
            how = batch.delivery_count, batch.delivery_state
            expected[offset] = max(how, expected.get(offset, how))
    found = combined(batches, start)
    told = {o: (b.delivery_count, b.delivery_state) for b in found
            for o in range(b.first_offset, b.last_offset + 1)}  # fmt: skip
    assert told == expected
    drawn.shuffle(batches)
    assert combined(batches, start) == found == combined(found, start)
    assert all(a.last_offset < b.first_offset for a, b in pairwise(found))
