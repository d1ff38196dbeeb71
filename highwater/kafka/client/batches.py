"""A producer's batches of one partition: order, sequence numbers, and outcomes.

Kafka's promise for an idempotent producer is kept here.  A batch gets its producer id, epoch and
first sequence number when it is first sent, and keeps them for every further attempt, so that the
broker recognises a batch that it has already appended.  Up to five batches may be in flight. After
one of them has failed, nothing new is sent until all of them have come back; then they are sent
again in order from the oldest, one at a time, because the broker remembers five batches and must
not forget a batch whose answer was lost.  A batch that failed with OUT_OF_ORDER_SEQUENCE_NUMBER
only because its predecessor was lost then succeeds.

Whether a failure is definite is decided over all attempts: one attempt whose answer was lost makes
the outcome unknown, whatever the later ones say.  Where the oldest batch itself is refused as out
of order, or a batch is given up, the sequence numbers of broker and producer no longer agree: the
partition needs a new producer id.  A batch that is proven not to be in the log moves to the new id;
one that may have been appended under the old id is never sent again.

Pure: the caller supplies the time and does the sending.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from highwater.kafka.client.retries import RETRIABLE, nothing_appended
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.compression import Compression
from highwater.kafka.wire.records import Record, add_to_sequence, build_batch

BATCH_OVERHEAD = 61
RECORD_OVERHEAD = 21


class Outcome(Enum):
    ACKED = "acked"
    FAILED = "failed"
    """Proven not to be in the log."""
    UNKNOWN = "unknown"


class Identity(NamedTuple):
    """A producer id and its epoch; (-1, -1) without idempotence."""

    producer_id: int
    epoch: int


NOBODY = Identity(-1, -1)


@dataclass(slots=True)
class Delivery:
    """The outcome of one record."""

    tp: TopicPartition
    outcome: Outcome
    offset: int
    """-1 where it is not known (acks=0, a duplicate that the broker no longer knows)."""
    error: ErrorCode | None
    detail: str
    attempts: int
    producer_id: int
    producer_epoch: int
    sequence: int
    connection: str
    log_append_time: int = -1


Report = Callable[[Delivery], None]


@dataclass(slots=True, eq=False)
class Batch:
    """Records that are sent together."""

    tp: TopicPartition
    created_s: float
    records: list[Record] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    size: int = BATCH_OVERHEAD
    identity: Identity = NOBODY
    sequence: int = -1
    attempts: int = 0
    in_flight: bool = False
    maybe_appended: bool = False
    last_error: ErrorCode | None = None
    detail: str = ""
    connection: str = ""
    encoded: bytearray | None = None

    def add(self, record: Record, size: int, report: Report) -> None:
        self.records.append(record)
        self.reports.append(report)
        self.size += size


def record_size(record: Record) -> int:
    """An upper bound on the record's bytes in a batch."""
    size = RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += 10 + len(name.encode()) + len(value or b"")
    return size


class PartitionBatches:
    """The unfinished batches of one partition, oldest first."""

    def __init__(
        self,
        tp: TopicPartition,
        *,
        acks: int,
        batch_bytes: int,
        max_in_flight: int,
        compression: Compression = Compression.NONE,
    ) -> None:
        self.tp = tp
        self.identity: Identity | None = None
        """None: a new producer id is needed before anything new may be sent."""
        self.node = -1
        """The broker that was sent the last batch."""
        self.retry_at_s = 0.0
        self._acks = acks
        self._batch_bytes = batch_bytes
        self._max_in_flight = max_in_flight
        self._compression = compression
        self._batches: deque[Batch] = deque()
        self._recovering = False
        self._next_sequence = 0
        self._begun = False
        """Whether a batch of this identity is in the log.  Until then one is in flight at a time: a
        broker that has no state of a producer takes any sequence number from it, so that a second
        batch would be stored although the first one was refused."""

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def full(self) -> bool:
        """Whether the youngest batch takes no more records."""
        return self._batches[-1].size >= self._batch_bytes or bool(self._batches[-1].attempts)

    @property
    def in_flight(self) -> int:
        return sum(batch.in_flight for batch in self._batches)

    def append(self, record: Record, size: int, report: Report, now_s: float) -> Batch:
        """Adds to the youngest batch, if it has room and was not sent yet, else to a new one; gives
        it."""
        if self._batches:
            last = self._batches[-1]
            if not last.attempts and last.size + size <= self._batch_bytes:
                last.add(record, size, report)
                return last
        batch = Batch(self.tp, now_s)
        batch.add(record, size, report)
        self._batches.append(batch)
        return batch

    def identify(self, identity: Identity) -> None:
        """A fresh producer id, with which sequence numbers begin at 0."""
        self.identity = identity
        self._next_sequence = 0
        self._begun = identity == NOBODY

    def next(self, now_s: float, linger_s: float) -> Batch | None:
        """The batch to send now; None where there is none, or it is too early."""
        if now_s < self.retry_at_s:
            return None
        in_flight = self.in_flight
        if self._recovering:
            if in_flight:
                return None
            self._recovering = False
        if in_flight >= (self._max_in_flight if self._begun else 1):
            return None
        for index, batch in enumerate(self._batches):
            if batch.in_flight:
                if batch.attempts > 1:
                    return None
                continue
            if batch.encoded is not None and in_flight:
                return None
            if batch.encoded is None and self.identity is None:
                return None
            if not batch.attempts:
                full = index + 1 < len(self._batches) or batch.size >= self._batch_bytes
                if not full and now_s < batch.created_s + linger_s:
                    return None
            return batch
        return None

    def due_s(self, linger_s: float) -> float | None:
        """The time when `next` may have a new result; None: time alone changes nothing."""
        for batch in self._batches:
            if not batch.in_flight:
                return max(self.retry_at_s, 0.0 if batch.attempts else batch.created_s + linger_s)
        return None

    def needs_identity(self) -> bool:
        """Whether something new waits for a producer id, and nothing old is left under another."""
        return (
            self.identity is None
            and bool(self._batches)
            and all(batch.encoded is None for batch in self._batches)
        )

    def sent(self, batch: Batch, connection: str) -> bytearray:
        """Begins an attempt; gives its bytes, which are the same at every attempt."""
        batch.attempts += 1
        batch.in_flight = True
        batch.connection = connection
        if batch.encoded is None:
            identity = self.identity
            assert identity is not None
            batch.identity = identity
            if identity != NOBODY:
                batch.sequence = self._next_sequence
                self._next_sequence = add_to_sequence(batch.sequence, len(batch.records))
            batch.encoded = build_batch(
                batch.records,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                base_sequence=batch.sequence,
                compression=self._compression,
            )
        return batch.encoded

    def acked(self, batch: Batch, offset: int, log_append_time: int = -1) -> None:
        self._finish(batch, Outcome.ACKED, offset, log_append_time)

    def sent_without_answer(self, batch: Batch) -> None:
        """acks=0."""
        batch.maybe_appended = True
        self._finish(batch, Outcome.UNKNOWN)

    def failed(
        self, batch: Batch, error: ErrorCode, detail: str, *, retry_at_s: float, retry: bool = True
    ) -> bool:
        """Ends an attempt that failed; gives whether the batch will be sent again.

        NETWORK_EXCEPTION stands for a connection that ended or an answer that did not come.
        """
        batch.in_flight = False
        batch.last_error = error
        batch.detail = detail
        if error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._finish(batch, Outcome.ACKED)
            return False
        if not nothing_appended(error, self._acks):
            batch.maybe_appended = True
        self._recovering = True
        self.retry_at_s = max(self.retry_at_s, retry_at_s)
        out_of_order = error in (
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            ErrorCode.UNKNOWN_PRODUCER_ID,
        )
        oldest = self._batches[0] is batch
        if retry and (error in RETRIABLE or (out_of_order and not oldest)):
            return True
        if retry and out_of_order and not batch.maybe_appended:
            self._part(batch)
            batch.encoded = None
            batch.identity, batch.sequence = NOBODY, -1
            return True
        self._give_up(batch)
        return False

    def expire(self, created_before_s: float) -> int:
        """Gives up batches that are too old, except those in flight."""
        gone = [b for b in self._batches if b.created_s < created_before_s and not b.in_flight]
        for batch in gone:
            if batch.last_error is None:
                batch.last_error = ErrorCode.REQUEST_TIMED_OUT
                batch.detail = "not sent within the delivery time-out"
            self._give_up(batch)
        return len(gone)

    def abort(self, detail: str) -> None:
        """The producer closes: everything unfinished is reported."""
        for batch in list(self._batches):
            batch.maybe_appended = batch.maybe_appended or batch.in_flight
            batch.detail = batch.detail or detail
            self._finish(batch, Outcome.UNKNOWN if batch.maybe_appended else Outcome.FAILED)

    def _give_up(self, batch: Batch) -> None:
        following = add_to_sequence(batch.sequence, len(batch.records))
        if (
            batch.encoded is not None
            and not batch.maybe_appended
            and batch.identity == self.identity
            and following == self._next_sequence
        ):
            self._next_sequence = batch.sequence  # the last one, and not in the log: taken back
        else:
            self._part(batch)
        self._finish(batch, Outcome.UNKNOWN if batch.maybe_appended else Outcome.FAILED)

    def _part(self, batch: Batch) -> None:
        """The batch's numbers are missing in the log, or may be: nothing can follow them."""
        if batch.identity != NOBODY and batch.identity == self.identity:
            self.identity = None

    def _finish(
        self, batch: Batch, outcome: Outcome, offset: int = -1, log_append_time: int = -1
    ) -> None:
        batch.in_flight = False
        self._batches.remove(batch)
        acked = outcome is Outcome.ACKED
        if acked and batch.identity == self.identity:
            self._begun = True
        for index, report in enumerate(batch.reports):
            report(
                Delivery(
                    self.tp,
                    outcome,
                    offset + index if offset >= 0 else -1,
                    None if acked else batch.last_error,
                    "" if acked else batch.detail,
                    batch.attempts,
                    *batch.identity,
                    add_to_sequence(batch.sequence, index) if batch.sequence >= 0 else -1,
                    batch.connection,
                    log_append_time,
                )
            )
