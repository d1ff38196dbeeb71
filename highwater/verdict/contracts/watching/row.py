"""A record as the rules see it, and the common parts of the rules.  Pure."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final, NamedTuple

from highwater.verdict.watching.alarm import Alarm, Told

GRACE_MS: Final = 2000
"""The most by which the states of two topics read at one time may differ: their ends are requested
one after the other, and a record's time is when its producer made it."""
AT_REST: Final = 10
"""After this many horizons without a record a key is forgotten, even if something is still open."""


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
    """Raises an alarm of which `row` is the offender."""
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
