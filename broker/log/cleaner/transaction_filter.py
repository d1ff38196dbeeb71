"""Transactions while a log is cleaned: which batches were aborted, and which markers still matter.

The cleaner goes through the log in order, and keeps here what it has met of each transaction.

* A batch of an aborted transaction is dropped: nobody may read it.
* A marker must outlive the data of its transaction, or a reader (and the producer state) would take
  that for an open one.  It may go once a pass met no batch of the transaction any more, and then
  only delete.retention.ms after the pass that saw this first (the delete horizon of its batch).
* An aborted transaction stays in the segment's .txnindex as long as batches of it were met.

The list of aborted transactions comes from the segments' transaction indexes.
"""

from __future__ import annotations

from collections.abc import Iterable

from highwater.broker.log.txnindex import AbortedTransaction
from highwater.kafka.wire.records import BatchHeader, Marker


class CleanedTransactions:
    """Of one pass through a log."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        ahead = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._ahead = ahead
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        """By producer id: the transaction, and whether a batch of it was met."""
        self._committed: dict[int, None] = {}
        self.retained: list[AbortedTransaction] = []
        """Those whose marker was met and whose batches were too; taken by `take_retained`."""

    def _reach(self, offset: int) -> None:
        while self._ahead and self._ahead[-1].first_offset <= offset:
            found = self._ahead.pop()
            self._aborted.setdefault(found.producer_id, (found, False))

    def batch(self, header: BatchHeader) -> bool:
        """A batch of records was met; whether it is of an aborted transaction."""
        self._reach(header.last_offset)
        if not header.is_transactional:
            return False
        found = self._aborted.get(header.producer_id)
        if found is None:
            self._committed[header.producer_id] = None
            return False
        self._aborted[header.producer_id] = (found[0], True)
        return True

    def control(self, header: BatchHeader, marker: Marker | None) -> bool:
        """A control batch was met; whether nothing needs its marker any more."""
        self._reach(header.last_offset)
        if marker is None:
            return header.record_count == 0  # an unknown kind of control record stays
        if marker.commit:
            met = header.producer_id in self._committed
            self._committed.pop(header.producer_id, None)
            return not met
        found, met = self._aborted.pop(header.producer_id, (None, False))
        if found is not None and met:
            self.retained.append(found)
            return False
        return True

    def take_retained(self) -> list[AbortedTransaction]:
        """What goes into the transaction index of the segment that was just written."""
        taken, self.retained = self.retained, []
        return taken
