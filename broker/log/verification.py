"""Verifies that a producer may begin a transaction in this partition (KIP-890).

A batch that was on its way when its transaction ended would open another one, which no coordinator
knows or ends: the LSO would stand still for ever.  So before the first batch of a transaction is
appended, the leader asks the transaction coordinator whether the partition belongs to a transaction
of that producer and epoch.

The question and the append happen at different times.  A `Verification` ties them together: it is
made with the question, and dropped when anything of that producer is appended, markers included.
So an answer that comes after the transaction's end finds its verification gone.

If nothing is known about a producer, any sequence number may be its first.  So the lowest one seen
during the verification is kept, and a batch with a higher one is refused until that one has come.
"""

from __future__ import annotations

from collections.abc import Iterable

from highwater.kafka.errors import ApiError, ErrorCode


class Verification:
    """One producer's right to begin a transaction; compared by identity."""

    __slots__ = ("created_ms", "epoch", "lowest_sequence")

    def __init__(self, epoch: int, sequence: int, now_ms: int) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.created_ms = now_ms


class Verifications:
    """The verifications of one log."""

    def __init__(self) -> None:
        self._open: dict[int, Verification] = {}

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> Verification:
        """The producer's verification; a new one if it has none of this epoch."""
        found = self._open.get(producer_id)
        if found is None or found.epoch < epoch:
            found = self._open[producer_id] = Verification(epoch, sequence, now_ms)
        elif found.epoch == epoch:
            found.lowest_sequence = min(found.lowest_sequence, sequence)
        return found

    def check(self, producer_id: int, sequence: int, shown: Verification | None) -> None:
        """Raises ApiError if this append must not begin a transaction."""
        known = self._open.get(producer_id)
        if known is None or known is not shown:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} has no open transaction here, and the transaction "
                "coordinator was not asked",
            )
        if sequence > known.lowest_sequence:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} sent sequence {sequence} before {known.lowest_sequence}",
            )

    def forget(self, producer_ids: Iterable[int]) -> None:
        """Forgets these producers' verifications: batches of theirs were appended."""
        if self._open:
            for producer_id in producer_ids:
                self._open.pop(producer_id, None)

    def expire(self, before_ms: int) -> None:
        old = [pid for pid, found in self._open.items() if found.created_ms <= before_ms]
        self.forget(old)
