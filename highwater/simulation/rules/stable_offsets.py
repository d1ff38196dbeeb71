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
    """The LSO of a log for each HW.  `batches` may only grow between two calls."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self.batches = batches
        self._bases: list[int] = []
        self._first: list[int] = []
        """For each batch, the first offset of the transactions open after it; -1 if none is."""
        self._open: dict[int, int] = {}

    def at(self, hw: int) -> int:
        """The LSO at this HW: a transaction is open until its marker is below the HW."""
        self._read_on()
        before = bisect_left(self._bases, hw) - 1
        first = self._first[before] if before >= 0 else -1
        return hw if first < 0 else first

    def trimmed(self, hw: int, log_start: int) -> set[int]:
        """The possible LSOs if the log begins at `log_start`.  A broker that has had the deleted
        records knows that their transactions are open; one that began at the log start does not."""
        at = self.at(hw)
        open_: dict[int, int] = {}
        if at >= log_start:
            return {at}
        for batch in self.batches[max(bisect_left(self._bases, log_start) - 1, 0) :]:
            if batch.marker and batch.base < hw:
                open_.pop(batch.producer_id, None)
            elif batch.transactional and batch.last >= log_start and batch.base < hw:
                open_.setdefault(batch.producer_id, max(batch.base, log_start))
        return {log_start, min(open_.values(), default=hw)}

    def between(self, lowest: int, highest: int, log_start: int = 0) -> list[int]:
        """Each LSO that this log has had while its HW rose from one to the other."""
        self._read_on()
        some = slice(bisect_left(self._bases, lowest), bisect_left(self._bases, highest))
        marks = [lowest, *self._bases[some], highest]
        return sorted({lso for hw in marks for lso in self.trimmed(hw, log_start)})

    def _read_on(self) -> None:
        for batch in self.batches[len(self._bases) :]:
            if batch.marker:
                self._open.pop(batch.producer_id, None)
            elif batch.transactional:
                self._open.setdefault(batch.producer_id, batch.base)
            self._bases.append(batch.base)
            self._first.append(min(self._open.values(), default=-1))
