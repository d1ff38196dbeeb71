"""Epochs and indexes beside a witness that is not the broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from highwater.broker.log.index import OffsetIndex, TimeIndex
from highwater.simulation.rules.mirror import Batch
from highwater.simulation.rules.second_opinions import late_epochs, misindexed


@pytest.mark.parametrize(
    ("start", "log_start", "exact", "wrong"),
    [
        (10, 0, True, 0),
        (9, 0, True, 1),
        (11, 0, True, 1),
        (11, 11, True, 0),  # the log begins there
        (9, 0, False, 0),  # with the hole that compaction has left before it
        (11, 0, False, 1),
    ],
)
def test_where_an_epoch_begins(start: int, log_start: int, exact: bool, wrong: int) -> None:
    found = list(late_epochs([(3, start), (4, 99)], log_start, {3: 10}, exact=exact))
    assert len(found) == wrong


def batch(base: int, last: int, newest: int) -> Batch:
    """Of 100 bytes."""
    return Batch(base, last, 0, 0, bytes(39), max_timestamp=newest)


@pytest.mark.parametrize(
    ("offsets", "times", "wrong"),
    [
        ([(5, 100), (8, 200)], [(3, 50), (8, 70)], 0),
        ([(5, 100), (9, 200)], [], 1),  # no batch ends there
        ([(5, 101)], [], 1),  # none begins there
        ([(8, 300)], [], 1),
        ([], [(5, 60)], 1),  # an earlier one is later: a lookup would pass it over
    ],
)
def test_entries_that_the_batches_refute(
    offsets: list[tuple[int, int]], times: list[tuple[int, int]], wrong: int
) -> None:
    held = [batch(20, 23, 50), batch(24, 25, 70), batch(26, 28, 60)]
    index, dates = OffsetIndex(), TimeIndex()
    for relative, position in offsets:
        index.append(relative, position)
    for relative, timestamp in times:
        dates.maybe_append(timestamp, relative)
    segment: Any = SimpleNamespace(
        base_offset=20, size=300, _offset_index=index, _time_index=dates,
        file=SimpleNamespace(path="/data/t-0/00000000000000000020.log"),
    )  # fmt: skip
    mirror: Any = SimpleNamespace(in_segment=lambda path: held)
    disk: Any = None
    assert len(list(misindexed(segment, mirror, disk))) == wrong
