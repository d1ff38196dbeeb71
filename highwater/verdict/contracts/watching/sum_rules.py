"""Equal sums of a contract while its topics are written: K6 of docs/rules.md.  Pure.

While topics are written, their sums are equal only between two transfers.  So a sum is judged when
none of its records (those of the key, or all) is younger than `unseen`.  Sums that are equal then
start again at zero: only keys in motion, wrong ones, and those with a total other than 0 are kept.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from highwater.verdict.contracts.contract_model import Sums
from highwater.verdict.contracts.watching.row import Row, alarm
from highwater.verdict.watching.alarm import Told

MOST: Final = 1_000_000
"""The most keys in motion or wrong; beyond that no new keys are watched."""
Amounts = dict[str, tuple[Decimal, int, int, int | None]]
"""Topic -> (sum, partition and offset of the last record, its timestamp)."""


class SumRules:
    def __init__(self, number: int, sums: Sums, unseen_ms: int) -> None:
        self.number, self.sums, self.unseen_ms = number, sums, unseen_ms
        self.told = Told()
        self.amounts: dict[str, Amounts] = {}
        self.moved: dict[str, int] = {}
        """Key -> when it had its last record, for keys that were not judged since."""

    def record(self, row: Row, at_ms: int) -> None:
        key = row.key if self.sums.per_key else ""
        if row.amount is None or key is None:
            return
        if key not in self.amounts and len(self.amounts) >= MOST:
            return
        amounts = self.amounts.setdefault(key, {})
        before = amounts.get(row.topic)
        total = row.amount + (before[0] if before is not None else Decimal(0))
        amounts[row.topic] = (total, row.partition, row.offset, row.timestamp_ms)
        self.moved[key] = max(at_ms, self.moved.get(key, 0))

    def due(self, clock_ms: int) -> None:
        rested = [key for key, at_ms in self.moved.items() if at_ms + self.unseen_ms <= clock_ms]
        for key in rested:
            del self.moved[key]
            if self._judge(key) and not self.sums.total:
                del self.amounts[key]

    def _judge(self, key: str) -> bool:
        """Whether the sums of a key are as they should be."""
        amounts, first = self.amounts[key], self.sums.topics[0]
        zero = (Decimal(0), None, None, None)
        wanted = self.sums.total
        if wanted is None:
            wanted = amounts[first][0] if first in amounts else Decimal(0)
        equal = True
        for topic in self.sums.topics:
            amount, partition, offset, t_ms = amounts.get(topic, zero)
            if amount == wanted:
                continue
            equal = False
            whose = f" of key {key}" if self.sums.per_key else ""
            beside = f" as in {first}" if self.sums.total is None else ""
            detail = f"the amounts{whose} up to here sum to {_told(amount)}, and not to"
            detail = f"{detail} {_told(wanted)}{beside}"
            alarm(self.told, "K6", (topic, partition, offset), detail, t_ms)
        return equal

    def state(self) -> tuple[Any, ...]:
        return (self.told.counts, self.amounts, self.moved)

    def restore(self, state: tuple[Any, ...]) -> None:
        counts, self.amounts, self.moved = state
        self.told = Told(counts)


def _told(amount: Decimal) -> str:
    return f"{amount.normalize():f}"
