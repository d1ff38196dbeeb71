"""Decides, in a log that is being cleaned, which batches are aborted and which markers are needed.

The cleaner goes through the log in order, and notes here what it meets of each transaction.

* A batch of an aborted transaction is dropped: no client may read it.
* A marker must outlive the data of its transaction, or a reader (and the producer state) would take
  the transaction for an open one.  It may be dropped once a pass has met no batch of the
  transaction, and only delete.retention.ms after that pass (the delete horizon of its batch).
* An aborted transaction stays in the segment's .txnindex as long as a pass meets batches of it.

The list of aborted transactions comes from the segments' transaction indexes.
"""

from __future__ import annotations

from collections.abc import Iterable

from highwater.broker.log.txnindex import AbortedTransaction
from highwater.kafka.wire.records import BatchHeader, Marker


class CleanedTransactions:
    """The transactions of one pass through a log."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        ahead = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._ahead = ahead
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        """By producer id: the transaction, and whether a batch of it was met."""
        self._committed: dict[int, None] = {}
        self.retained: list[AbortedTransaction] = []
        """Aborted transactions of which marker and batches were met; `take_retained` takes them."""

    def _reach(self, offset: int) -> None:
        while self._ahead and self._ahead[-1].first_offset <= offset:
            found = self._ahead.pop()
            self._aborted.setdefault(found.producer_id, (found, False))

    def batch(self, header: BatchHeader) -> bool:
        """Takes a batch of records; returns whether it belongs to an aborted transaction."""
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
        """Takes a control batch; returns whether its marker is no longer needed."""
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
        """The entries for the transaction index of the segment that was just written."""
        taken, self.retained = self.retained, []
        return taken
