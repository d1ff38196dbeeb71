"""The choice of the records that one fetch acquires.

Whole batches of the log are acquired, so that acknowledgements stay small: `max_records` may be
exceeded to the end of a batch, and so may the limit of records in flight.  With `record_limit`
(KIP-1206) only `max_records` are acquired, and the rest of the batch is available.

A record that was delivered often may be one that kills its consumers.  So from half the delivery
limit on, fewer and fewer records of a batch are delivered together, and the last attempt delivers a
record alone: the others of its batch do not come to their limit with it.

Source: kafka.server.share.SharePartition (acquire, acquireNewBatchRecords,
acquireSubsetBatchRecords).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from highwater.broker.share.in_flight import Batch, InFlight, RecordState, Run

LEAST_THROTTLED_COUNT = 2


class LogBatch(NamedTuple):
    """A batch that was read from the log."""

    first: int
    last: int
    aborted: bool = False
    """Whether its transaction was aborted, and the group reads committed records only."""


class Fetched(NamedTuple):
    """The batches that were read, in order."""

    offset: int
    """The offset that was asked for: up to the first batch there is nothing left."""
    batches: Sequence[LogBatch]


class Wanted(NamedTuple):
    """What one fetch wants of a share-partition, and who sent it."""

    member: str
    max_records: int
    batch_size: int
    """How many records a batch of new records should have at least, where there are more."""
    record_limit: bool
    locked_until_ms: int


class Acquired(NamedTuple):
    first: int
    last: int
    delivery_count: int
    """How often its records were delivered, this time included."""


class Acquisition:
    """One fetch's acquisition, from a share-partition that goes from `start` to below `end`."""

    def __init__(
        self,
        in_flight: InFlight,
        end: int,
        max_deliveries: int,
        fetched: Fetched,
        wanted: Wanted,
    ) -> None:
        self._in_flight = in_flight
        self._end = end
        self._max_deliveries = max_deliveries
        self._throttled_from = max(LEAST_THROTTLED_COUNT, -(-max_deliveries // 2))
        self._log = fetched.batches
        self._wanted = wanted
        self._found = 0
        """The number of records acquired so far."""
        self.result: list[Acquired] = []
        self.end = end
        """The share-partition's end after it."""

    def run(self, most: int, last: int) -> None:
        """Acquires about `most` records up to the offset `last`."""
        first = self._log[0].first
        for batch in self._in_flight.overlapping(first, last):
            left = most - self._found
            if left <= 0:
                return
            if batch.gap:
                self._take_new(max(batch.first, first), min(batch.last, last), left, batch)
            elif not self._take_again(batch, first, last, left):
                return
        left, begin = most - self._found, max(first, self._end)
        if left > 0 and begin <= last:
            self._take_new(begin, last, left)

    # ------------------------------------------------------------ records that were delivered

    def _take_again(self, batch: Batch, first: int, last: int, left: int) -> bool:
        """Acquires what is available of a batch; False if the fetch must get nothing after it."""
        available = [
            run for run in batch.runs if run.rests and run.first <= last and run.last >= first
        ]
        if not available:
            return True
        throttled = max(run.count for run in available) >= self._throttled_from
        if throttled and self._found:
            return False
        inside = first <= batch.first and batch.last <= last
        fits = not self._wanted.record_limit or batch.size <= left
        if inside and fits and not (batch.divided or throttled):
            run = batch.runs[0]
            run.acquire(self._wanted.member, self._wanted.locked_until_ms)
            self._give(batch.first, batch.last, run.count)
            return True
        batch.divided = True
        found = self._take_part(batch, first, last, left)
        return not (throttled and found)

    def _take_part(self, batch: Batch, first: int, last: int, left: int) -> int:
        """Acquires single runs of a batch, or the beginning of one; returns how many records."""
        found, bound = 0, 0
        parts: list[Acquired] = []
        for run in batch.cut(max(first, batch.first), min(last, batch.last)):
            if not run.rests:
                continue
            alone = self._max_deliveries > 2 and run.count == self._max_deliveries - 1
            if alone and found:
                break
            if run.count >= self._throttled_from and not bound:
                bound = max(1, batch.size >> (run.count - self._throttled_from + 1))
            most = 1 if alone else run.size
            if self._wanted.record_limit:
                most = min(most, left - found)
            if found < bound:  # what was taken before does not count against it otherwise
                most = min(most, bound - found)
            self._acquire(batch, run, most, parts)
            found += most
            full = self._wanted.record_limit and found >= left
            if alone or full or found == bound:
                break
        for part in parts:
            self._give(*part)
        return found

    def _acquire(self, batch: Batch, run: Run, size: int, parts: list[Acquired]) -> None:
        (piece,) = batch.cut(run.first, run.first + size - 1)
        piece.acquire(self._wanted.member, self._wanted.locked_until_ms)
        part, last = Acquired(piece.first, piece.last, piece.count), parts[-1] if parts else None
        if last is not None and last[1:] == (part.first - 1, part.delivery_count):
            parts[-1] = last._replace(last=part.last)
        else:
            parts.append(part)

    # ------------------------------------------------------------ records that were not

    def _take_new(self, first: int, last: int, left: int, gap: Batch | None = None) -> None:
        """Acquires records from `first` on for the first time: about `left`, to a batch's end."""
        if last - first + 1 > left:
            last = min(self._end_of_batch(first + left - 1), last)
        if gap is not None:
            self._in_flight.take_from_gap(gap, first, last)
        self.end = max(self.end, last + 1)
        if self._wanted.record_limit:
            self._add(first, last, min(left, last - first + 1))
            return
        for begin, end in self._pieces(first, last):
            self._add(begin, end, end - begin + 1)

    def _end_of_batch(self, offset: int) -> int:
        """The last offset of the batch that holds this one; the offset itself if none does."""
        return next((b.last for b in self._log if b.first <= offset <= b.last), offset)

    def _pieces(self, first: int, last: int) -> list[tuple[int, int]]:
        pieces = []
        if last - first + 1 > self._wanted.batch_size:
            for batch in self._log:
                if first < batch.first <= last and batch.first - first >= self._wanted.batch_size:
                    pieces.append((first, batch.first - 1))
                    first = batch.first
        return [*pieces, (first, last)]

    def _add(self, first: int, last: int, size: int) -> None:
        """Adds a batch whose first `size` records are acquired."""
        taken = Run(first, first + size - 1, RecordState.AVAILABLE, 0)
        taken.acquire(self._wanted.member, self._wanted.locked_until_ms)
        runs = [taken]
        if taken.last < last:
            runs.append(Run(taken.last + 1, last, RecordState.AVAILABLE, 0))
        self._in_flight.add(Batch(first, last, runs, divided=len(runs) > 1))
        self._give(first, taken.last, 1)

    def _give(self, first: int, last: int, count: int) -> None:
        self.result.append(Acquired(first, last, count))
        self._found += last - first + 1
