"""share.auto.offset.reset: where a share-partition begins that nobody has read yet.

It is earliest, latest, or by_duration and a duration as ISO 8601 writes it (by_duration:PT1H):
records that are no older than that.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
BY_DURATION: Final = "by_duration"
_DURATION = re.compile(
    r"P(?:(?P<d>\d+)D)?(?:T(?=\d)(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+)(?:\.(?P<f>\d{1,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_UNIT_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000}


class OffsetReset(NamedTuple):
    kind: str
    """EARLIEST, LATEST or BY_DURATION."""
    duration_ms: int = 0


def parse(text: str) -> OffsetReset:
    """Raises ValueError."""
    if text.lower() in (EARLIEST, LATEST):
        return OffsetReset(text.lower())
    kind, _, duration = text.partition(":")
    found = _DURATION.fullmatch(duration)
    if kind.lower() != BY_DURATION or found is None or not any(found.groups()):
        raise ValueError(f"{text[:100]!r} is none")
    whole = sum(int(found[unit] or 0) * ms for unit, ms in _UNIT_MS.items())
    return OffsetReset(BY_DURATION, whole + int((found["f"] or "0").ljust(9, "0")) // 1_000_000)


def problem(text: str) -> str | None:
    """The mistake in a value of the property: "problem; remedy"."""
    try:
        parse(text)
    except ValueError:
        return "not one of its values; use earliest, latest or by_duration:PnDTnHnMn.nS"
    return None
