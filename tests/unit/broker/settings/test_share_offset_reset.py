"""Where a share-partition begins that nobody has read."""

from __future__ import annotations

import pytest

from highwater.broker.settings.share_offset_reset import (
    BY_DURATION,
    EARLIEST,
    LATEST,
    OffsetReset,
    parse,
    problem,
)


@pytest.mark.parametrize(
    ("text", "reset"),
    [
        ("earliest", OffsetReset(EARLIEST)),
        ("LATEST", OffsetReset(LATEST)),
        ("by_duration:PT0S", OffsetReset(BY_DURATION, 0)),
        ("by_duration:P1DT2H3M4.5S", OffsetReset(BY_DURATION, 93_784_500)),
        ("by_duration:pt0.001s", OffsetReset(BY_DURATION, 1)),
        ("BY_DURATION:P2D", OffsetReset(BY_DURATION, 172_800_000)),
    ],
)
def test_it_is_read(text: str, reset: OffsetReset) -> None:
    assert parse(text) == reset
    assert problem(text) is None


@pytest.mark.parametrize(
    "text",
    ["", "none", "by_duration", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:1H",
     "by_duration:-PT1H", "by_duration:PT-1H", "by_duration:P1H", "by_duration:PT1.S",
     "earliest:PT1H"],
)  # fmt: skip
def test_what_is_none(text: str) -> None:
    assert problem(text) is not None
