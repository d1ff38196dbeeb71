"""`highwater bench fetch-wait`: the limits that it measures, and its bound for a slow fetch."""

from __future__ import annotations

import pytest

from highwater.bench.fetch_wait import MIB, Limits, around, too_slow
from highwater.bench.figures.rows import Row, Table


def test_the_partitions_limit_lies_around_min_bytes() -> None:
    assert list(around([1, 10])) == [
        Limits(MIB, MIB - 1), Limits(MIB, MIB), Limits(MIB, 2 * MIB),
        Limits(10 * MIB, 10 * MIB - 1), Limits(10 * MIB, 10 * MIB), Limits(10 * MIB, 20 * MIB),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ours", "theirs", "slow"),
    [(60, 10, False), (61, 10, True), (150, 100, False), (151, 100, True), (1500, 1000, False)],
)
def test_too_slow_is_by_half_and_by_50_ms(ours: float, theirs: float, slow: bool) -> None:
    row = Row("read", "ms", (ours, 0, 9000), (theirs, 0, 9000), smaller_is_better=True)
    assert too_slow(Table([row])) == ("too slow: read" if slow else "")


def test_alone_nothing_is_too_slow() -> None:
    assert too_slow(Table([Row("read", "ms", (9000,), smaller_is_better=True)])) == ""
