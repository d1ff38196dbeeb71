"""T7 in the answers to read_committed readers: their LSO, against the committed log.

An answer bears the HW and the LSO of one moment.  The committed log below that HW says which
transactions are open there: those that have records and no marker yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable

    from highwater.kafka.types import TopicPartition
    from highwater.simulation.rules.findings import Book
    from highwater.simulation.rules.mirror import Batch


def first_open(committed: Iterable[Batch], hw: int) -> int:
    """The LSO of a log with this HW: a transaction is open until its marker is below the HW."""
    open_: dict[int, int] = {}
    for batch in committed:
        if batch.base >= hw:
            break
        if batch.marker:
            open_.pop(batch.producer_id, None)
        elif batch.transactional:
            open_.setdefault(batch.producer_id, batch.base)
    return min(open_.values(), default=hw)


class StableOffsets:
    """Compares the answers of one run."""

    def __init__(self, book: Book, count: Counter[str]) -> None:
        self._book = book
        self._count = count
        self._last: dict[TopicPartition, tuple[int, int]] = {}

    def told(self, tp: TopicPartition, hw: int, lso: int) -> None:
        """An answer had these; excused is a log that lost records where loss is expected."""
        truth = self._book.partitions[tp]
        if hw > truth.end or truth.given_up or self._last.get(tp) == (hw, lso):
            return
        self._last[tp] = hw, lso
        self._count["txn LSOs compared"] += 1
        expected = first_open(truth.committed, hw)
        if lso != expected:
            self._book.broken(
                "T7", f"{tp}: an answer has HW {hw} and LSO {lso}; by the committed log the LSO is "
                f"{expected}"
            )  # fmt: skip
