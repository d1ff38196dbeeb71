"""The LSO is the start of a transaction without a marker below the HW."""

from __future__ import annotations

import pytest

from highwater.kafka.wire.records import CONTROL, TRANSACTIONAL
from highwater.simulation.rules.mirror import Batch
from highwater.simulation.rules.stable_offsets import StableOffsets

LOG = [
    Batch(0, 1, 0, 0, b""),
    Batch(2, 3, 0, 0, b"", TRANSACTIONAL, 1),
    Batch(4, 5, 0, 0, b"", TRANSACTIONAL, 2),
    Batch(6, 6, 0, 0, b"", TRANSACTIONAL | CONTROL, 1),
    Batch(7, 8, 0, 0, b""),
    Batch(9, 9, 0, 0, b"", TRANSACTIONAL | CONTROL, 2),
]
"""Records of producer 1 at 2 and 3, of producer 2 at 4; their markers at 6 and 9."""


@pytest.mark.parametrize(
    ("hw", "lso"), [(0, 0), (2, 2), (3, 2), (5, 2), (6, 2), (7, 4), (9, 4), (10, 10)]
)
def test_a_transaction_is_open_until_its_marker_is_below_the_hw(hw: int, lso: int) -> None:
    assert StableOffsets(LOG).at(hw) == lso


def test_a_log_that_grows_is_read_on() -> None:
    log = LOG[:2]
    offsets = StableOffsets(log)
    assert offsets.at(4) == 2
    log += LOG[2:]
    assert [offsets.at(hw) for hw in (10, 9, 7, 4)] == [10, 4, 4, 2], (
        "and a former HW keeps its LSO"
    )


@pytest.mark.parametrize(
    ("least", "most", "lsos"), [(0, 2, [0, 2]), (4, 9, [2, 4]), (7, 10, [4, 10]), (6, 6, [2])]
)
def test_lsos_while_a_hw_rose(least: int, most: int, lsos: list[int]) -> None:
    assert StableOffsets(LOG).between(least, most) == lsos


@pytest.mark.parametrize(
    ("hw", "log_start", "lsos"),
    [
        (9, 0, {4}),
        (9, 4, {4}),
        (9, 5, {5}),  # a part of the open transaction's records is left
        (9, 6, {6, 9}),  # none is: who has never had them does not know of it
        (10, 6, {10}),
    ],
)
def test_the_lso_where_the_beginning_is_deleted(hw: int, log_start: int, lsos: set[int]) -> None:
    assert StableOffsets(LOG).trimmed(hw, log_start) == lsos
