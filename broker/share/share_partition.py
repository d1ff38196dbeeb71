"""One share-partition: which records a share group has in flight, and in which state each is.

    AVAILABLE    may be acquired
    ACQUIRED     one member has it, until it acknowledges it or its lock ends
    ACKNOWLEDGED its member has processed it
    ARCHIVED     given up: rejected, delivered too often, deleted, compacted away or aborted

The records from the start offset (SPSO) to below the end offset (SPEO) are in flight.  The start
moves over what has ended, the end when records are acquired for the first time.

What a request changes is a `Change`.  Its records stay as they are, and nobody else can change
them, until `written` says whether the share coordinator has stored it: then the change counts, or
it never was.  Changes are stored one `Write` after another, those that wait meanwhile together, so
that no older state comes after a newer one.  A lock that ends is the exception: the records are
available at once, since a delivery too many is allowed, and a slow coordinator must not keep them.
Where it was the last delivery, the start waits until that is stored.  While more is unstored than
may be in flight, nothing is acquired.

Pure: the caller passes in the time.

Source: kafka.server.share.SharePartition, org.apache.kafka.server.share.fetch.
Deviations: Kafka writes changes of one partition at the same time.  What a session's end cannot
release, because its acknowledgement is on the way, makes Kafka release nothing.  Kafka moves the
start over aborted and compacted records only with the next acknowledgement, and where there is none
it stops at the limit.  Over what a lock's end has archived Kafka's start moves at once: then a late
acknowledgement is answered without an error, and the record may come back with another leader.  A
gap of the stored state may be acquired at any time, in Kafka only until a record behind the stored
ones was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from highwater.broker.share.acquisition import Acquired, Acquisition, Fetched, Wanted
from highwater.broker.share.in_flight import (
    Batch,
    Change,
    RecordState,
    Run,
    loaded,
)
from highwater.broker.share.persister import StateBatch
from highwater.kafka.errors import ApiError, ErrorCode

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
_STATES = {
    GAP: RecordState.ARCHIVED,
    ACCEPT: RecordState.ACKNOWLEDGED,
    RELEASE: RecordState.AVAILABLE,
    REJECT: RecordState.ARCHIVED,
}


class Acknowledgement(NamedTuple):
    first: int
    last: int
    types: Sequence[int]
    """One for all records, or one for each."""

    def parts(self) -> Iterator[tuple[int, int, int]]:
        """Ranges of one type."""
        if len(self.types) == 1:
            yield self.first, self.last, self.types[0]
            return
        first = self.first
        for kind, same in groupby(self.types):
            size = len(list(same))
            yield first, first + size - 1, kind
            first += size


@dataclass(frozen=True, slots=True)
class Limits:
    max_locks: int
    """group.share.partition.max.record.locks"""
    max_deliveries: int
    """group.share.delivery.count.limit"""


@dataclass(frozen=True, slots=True)
class Write:
    """What the share coordinator is to store."""

    start_offset: int
    delivery_complete_count: int
    """How many records from the start on have ended."""
    batches: tuple[StateBatch, ...]


class SharePartition:
    """See the module's docstring.  Raises ValueError for a stored state that cannot be."""

    def __init__(self, start_offset: int, stored: Iterable[StateBatch], limits: Limits) -> None:
        self._limits = limits
        self._in_flight = loaded(start_offset, stored)
        self.start_offset = start_offset
        self.end_offset = self._in_flight.last + 1 if self._in_flight else start_offset
        """Records from here on were never acquired."""
        self._waiting: list[Change] = []
        self._writing: list[Change] = []
        self._may_rest = True
        """Whether a record may be available: False spares the search."""
        self.next_lock_end_ms: int | None = None
        """No lock ends before; the caller calls `end_locks` then."""
        self._advance_start()

    # ------------------------------------------------------------ look-ups

    @property
    def in_flight_count(self) -> int:
        return self.end_offset - self.start_offset

    @property
    def in_flight_batches(self) -> int:
        return len(self._in_flight)

    @property
    def at_rest(self) -> bool:
        """Whether nobody has a lock and nothing is to be stored: then it can be loaded again."""
        locked = any(run.state is RecordState.ACQUIRED for run in self._in_flight.runs())
        return not (locked or self._waiting or self._writing)

    def can_acquire(self) -> bool:
        """Whether a fetch would get a record that it reads, if there is one."""
        if sum(len(c.batches) for c in self._waiting) > self._limits.max_locks:
            return False
        return self.in_flight_count < self._limits.max_locks or (
            self.next_fetch_offset < self.end_offset
        )

    @property
    def next_fetch_offset(self) -> int:
        """The first available record, or the end."""
        if self._may_rest:
            for run in self._in_flight.runs():
                if run.rests and run.last >= self.start_offset:
                    return max(run.first, self.start_offset)
            self._may_rest = False
        return self.end_offset

    def states(self) -> list[StateBatch]:
        """All runs, as they are."""
        return [StateBatch(r.first, r.last, r.state, r.count) for r in self._in_flight.runs()]

    def _complete_count(self) -> int:
        start = self.start_offset
        return sum(r.last - max(r.first, start) + 1 for r in self._runs_from(start) if r.ends)

    def _runs_from(self, offset: int) -> Iterator[Run]:
        return (run for run in self._in_flight.runs() if run.last >= offset)

    # ------------------------------------------------------------ acquire

    def acquire(self, fetched: Fetched, wanted: Wanted) -> list[Acquired]:
        """Acquires what it can of the batches that were read from `next_fetch_offset` on."""
        batches = [b for b in fetched.batches if b.last >= self.start_offset]
        if not batches or not self.can_acquire():
            return []
        most, last = self._most(fetched.offset, wanted.max_records, batches[-1].last)
        if most <= 0:
            return []
        self._archive_missing(fetched.offset, batches[0].first)
        if batches[0].first < self.start_offset:
            batches[0] = batches[0]._replace(first=self.start_offset)
        step = Acquisition(
            self._in_flight,
            self.end_offset,
            self._limits.max_deliveries,
            Fetched(fetched.offset, batches),
            wanted,
        )
        step.run(most, last)
        self.end_offset = step.end
        self._may_rest = True
        if step.result:
            self._lock_until(wanted.locked_until_ms)
        acquired = step.result
        for batch in batches:
            if batch.aborted:
                acquired = self._archive_aborted(acquired, batch.first, batch.last)
        self._advance_start()
        return acquired

    def _most(self, offset: int, max_records: int, last: int) -> tuple[int, int]:
        """How many records, and up to which offset.  Where the limit is reached, no new ones."""
        most = min(max_records, self._limits.max_locks - self.in_flight_count)
        if most > 0 or offset >= self.end_offset:
            return most, last
        return min(max_records, self.end_offset - offset), min(last, self.end_offset - 1)

    def _lock_until(self, end_ms: int) -> None:
        if self.next_lock_end_ms is None or end_ms < self.next_lock_end_ms:
            self.next_lock_end_ms = end_ms

    def _archive_missing(self, first: int, end: int) -> None:
        """Gives up available records that a read did not find: compaction has removed them."""
        for batch in self._in_flight.overlapping(first, end - 1):
            low, high = max(first, batch.first), min(end - 1, batch.last)
            if batch.gap:
                self._in_flight.take_from_gap(batch, low, high)
                run = Run(low, high, RecordState.ARCHIVED, 0)
                self._in_flight.add(Batch(low, high, [run]))
            elif any(run.rests for run in batch.runs):
                for run in batch.cut(low, high):
                    if run.rests:
                        run.leave(RecordState.ARCHIVED)

    def _archive_aborted(self, acquired: list[Acquired], first: int, last: int) -> list[Acquired]:
        """Gives up acquired records of an aborted transaction; returns what remains acquired."""
        remain = []
        for a in acquired:
            low, high = max(a.first, first), min(a.last, last)
            if low > high:
                remain.append(a)
                continue
            for batch in self._in_flight.overlapping(low, high):
                for run in batch.cut(max(low, batch.first), min(high, batch.last)):
                    if run.state is RecordState.ACQUIRED:
                        run.leave(RecordState.ARCHIVED)
            parts = (a._replace(last=low - 1), a._replace(first=high + 1))
            remain += [part for part in parts if part.first <= part.last]
        return remain

    # ------------------------------------------------------------ acknowledge, release

    def acknowledge(
        self, member: str, acks: Iterable[Acknowledgement], locked_until_ms: int
    ) -> Change | None:
        """Begins the change that these acknowledgements ask for, all of them or none; None if there
        is nothing to store, as with renewals of locks.

        Raises ApiError: INVALID_RECORD_STATE, INVALID_REQUEST.
        """
        change = Change([])
        try:
            for ack in acks:
                if ack.last >= self.start_offset:
                    for batch in self._acknowledged(ack):
                        self._acknowledge(member, batch, ack, change, locked_until_ms)
        except ApiError:
            self._settle(change, stored=False)
            raise
        return self._wait(change)

    def _acknowledged(self, ack: Acknowledgement) -> list[Batch]:
        below_start = ack.first < self.start_offset <= ack.last
        found = self._in_flight.overlapping(0, ack.last)
        if not found or (found[0].first > ack.first and not below_start):
            raise _invalid("The request batch offsets are not found in the cache.", not_found=True)
        end = found[-1].last
        if end < ack.first or end < ack.last:
            which = "first" if end < ack.first else "last"
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Batch record not found. The {which} offset in request is past acquired records.",
            )
        return [b for b in found if b.last >= max(ack.first, self.start_offset)]

    def _acknowledge(
        self, member: str, batch: Batch, ack: Acknowledgement, change: Change, until_ms: int
    ) -> None:
        low = max(ack.first, self.start_offset)
        if not batch.divided:
            _check_batch(batch.runs[0], member)
            part = low > batch.first or ack.last < batch.last
            batch.divided = part or len(ack.types) > 1
        for first, last, kind in ack.parts():
            first, last = max(first, low, batch.first), min(last, batch.last)
            if first > last:
                continue
            for run in batch.cut(first, last):
                _check_run(run, member)
                if kind == RENEW:
                    run.locked_until_ms = until_ms
                else:
                    self._begin(change, run, _STATES[kind])

    def _begin(self, change: Change, run: Run, state: RecordState) -> None:
        run.change, run.target = change, self._after(run, state)
        change.add(StateBatch(run.first, run.last, run.target, run.count))

    def _after(self, run: Run, state: RecordState) -> RecordState:
        """The state after a lock: what was delivered too often, or is deleted, is archived."""
        if state is RecordState.AVAILABLE and (
            run.count >= self._limits.max_deliveries or run.last < self.start_offset
        ):
            return RecordState.ARCHIVED
        return state

    def release(self, member: str) -> Change | None:
        """Begins the release of all that a member has acquired, because its session ends."""
        change = Change([])
        for run in self._in_flight.runs():
            if run.state is RecordState.ACQUIRED and run.member == member and run.change is None:
                self._begin(change, run, RecordState.AVAILABLE)
        return self._wait(change)

    def end_locks(self, now_ms: int) -> Change | None:
        """Ends the locks whose time is over.  Where a change is on its way, it decides first."""
        change = Change([], at_once=True)
        ends = None
        for batch in self._in_flight:
            for run in batch.runs:
                if run.state is not RecordState.ACQUIRED:
                    continue
                if run.locked_until_ms > now_ms:
                    ends = run.locked_until_ms if ends is None else min(ends, run.locked_until_ms)
                elif run.change is None:
                    run.leave(self._after(run, RecordState.AVAILABLE))
                    change.add(StateBatch(run.first, run.last, run.state, run.count))
            batch.join()
        self.next_lock_end_ms = ends
        self._may_rest = True
        return self._wait(change)

    # ------------------------------------------------------------ the store

    def _wait(self, change: Change) -> Change | None:
        if not change.batches:
            return None
        self._waiting.append(change)
        return change

    def next_write(self) -> Write | None:
        """What to store next, if the last write is answered; `written` must follow."""
        if self._writing or not self._waiting:
            return None
        self._writing, self._waiting = self._waiting, []
        batches = tuple(b for change in self._writing for b in change.batches)
        return Write(self.start_offset, self._complete_count(), batches)

    def written(self, stored: bool) -> list[Change]:
        """Takes the outcome of the write; returns the changes whose requests can be answered.

        A lock whose time is over ends by the next `end_locks`.
        """
        settled, self._writing = self._writing, []
        for change in settled:
            self._settle(change, stored)
        self._advance_start()
        return settled

    def _settle(self, change: Change, stored: bool) -> None:
        if change.at_once or not change.batches:
            return
        first, last = change.bounds
        for batch in self._in_flight.overlapping(first, last):
            for run in batch.runs:
                if run.change is not change:
                    continue
                if stored:
                    run.leave(self._after(run, run.target))
                else:
                    run.change = None
                    self._lock_until(run.locked_until_ms)
            batch.join()
        self._may_rest = True

    # ------------------------------------------------------------ the start

    def _advance_start(self) -> None:
        """Moves the start over the records that have ended, up to the first one whose end is not
        stored yet: below the start, whatever is acknowledged is answered without an error."""
        start = self.end_offset
        for run in self._runs_from(self.start_offset):
            if not run.state.ended:
                start = max(run.first, self.start_offset)
                break
        for change in (*self._writing, *self._waiting):
            for first, last, state, _ in change.batches if change.at_once else ():
                if state == RecordState.ARCHIVED and last >= self.start_offset:
                    start = min(start, max(first, self.start_offset))
        self.start_offset = start
        self._in_flight.remove_below(start)

    def log_starts_at(self, offset: int) -> None:
        """Gives up what is below the log's start.  What is acquired there stays so until its lock
        ends, and its acknowledgement changes nothing."""
        if offset <= self.start_offset:
            return
        for batch in self._in_flight.overlapping(0, offset - 1):
            if batch.gap:
                self._archive_missing(batch.first, offset)
                continue
            for run in batch.cut(batch.first, min(offset - 1, batch.last)):
                if run.rests:
                    run.leave(RecordState.ARCHIVED)
        self.start_offset = offset
        self.end_offset = max(self.end_offset, offset)
        self._may_rest = True
        self._advance_start()


def _invalid(why: str, not_found: bool = False) -> ApiError:
    told = "Batch record not found." if not_found else "The batch cannot be acknowledged."
    return ApiError(ErrorCode.INVALID_RECORD_STATE, f"{told} {why}")


def _check_batch(run: Run, member: str) -> None:
    if not run.member:
        raise _invalid("The batch is not in the acquired state.")
    if run.member != member:
        raise ApiError(ErrorCode.INVALID_RECORD_STATE, "Member is not the owner of batch record")
    _check_change(run)


def _check_run(run: Run, member: str) -> None:
    if run.state is not RecordState.ACQUIRED:
        why = "The offset cannot be acknowledged. The offset is not acquired."
        raise ApiError(ErrorCode.INVALID_RECORD_STATE, why)
    _check_change(run)
    if run.member != member:
        raise ApiError(ErrorCode.INVALID_RECORD_STATE, "Member is not the owner of offset")


def _check_change(run: Run) -> None:
    if run.change is not None:
        why = "The record state is invalid. The acknowledgement of delivery could not be completed."
        raise ApiError(ErrorCode.INVALID_RECORD_STATE, why)
