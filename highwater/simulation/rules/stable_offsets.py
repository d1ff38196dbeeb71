"""The LSOs of a log, by its batches alone.

The log below a HW says which transactions are open there: those that have records and no marker
yet.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from highwater.simulation.rules.mirror import Batch


class StableOffsets:
    """The LSO of a log by its HW.  `batches` may grow between two questions, and nothing else."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self.batches = batches
        self._bases: list[int] = []
        self._first: list[int] = []
        """For each batch the first offset of the transactions open after it; -1 for none."""
        self._open: dict[int, int] = {}

    def at(self, hw: int) -> int:
        """A transaction is open until its marker is below the HW."""
        self._read_on()
        before = bisect_left(self._bases, hw) - 1
        first = self._first[before] if before >= 0 else -1
        return hw if first < 0 else first

    def between(self, lowest: int, highest: int) -> list[int]:
        """Each LSO that this log has had while its HW rose from one to the other."""
        self._read_on()
        some = slice(bisect_left(self._bases, lowest), bisect_left(self._bases, highest))
        marks = [lowest, *self._bases[some], highest]
        return sorted({self.at(hw) for hw in marks})

    def _read_on(self) -> None:
        for batch in self.batches[len(self._bases) :]:
            if batch.marker:
                self._open.pop(batch.producer_id, None)
            elif batch.transactional:
                self._open.setdefault(batch.producer_id, batch.base)
            self._bases.append(batch.base)
            self._first.append(min(self._open.values(), default=-1))
