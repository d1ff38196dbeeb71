"""A record as the rules see it, and what they have in common.  Pure."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final, NamedTuple

from highwater.verdict.watching.alarm import Alarm, Told

GRACE_MS: Final = 2000
"""The most by which two topics' states, read at one time, are apart: their ends are asked for one
after another, and a record's time is the one when its producer made it."""
AT_REST: Final = 10
"""After so many horizons without a record a key is forgotten, even where something is open."""


class Row(NamedTuple):
    """The columns of tables.RECORDS."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: str | None
    id: str | None
    sequence: int | None
    time_ms: int | None
    amount: Decimal | None
    txn: str | None
    tombstone: bool
    wrong_field: str | None
    wrong: str | None


def tell(told: Told, rule: str, row: Row, detail: str) -> None:
    """The offender is `row`."""
    alarm(told, rule, (row.topic, row.partition, row.offset), detail, row.timestamp_ms)


def alarm(
    told: Told,
    rule: str,
    place: tuple[str, int | None, int | None],
    detail: str,
    t_ms: int | None = None,
) -> None:
    topic, partition, offset = place
    stamp: Any = t_ms if t_ms is not None and t_ms >= 0 else None
    told.tell(Alarm(rule=rule, topic=topic, detail=detail, partition=partition, offset=offset,
                    t_ms=stamp))  # fmt: skip
