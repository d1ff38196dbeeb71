"""The records of a share-partition that are in flight, as batches and runs.

A *batch* is what was acquired together, so it keeps the bounds of batches of the log.  A *run* is a
range of records of one batch that share state, delivery count, member and lock.  A batch has one
run, until a client acknowledges a part of it or the batch is acquired in part: from then on it is
*divided*, for good, as its answers differ then.  Between batches there may be holes: compaction has
removed what was there.  A *gap* is a batch of records that nobody has acquired yet although later
ones are in flight; a leader finds gaps when it reads the stored state of its predecessor.

Pure.  Ranges include both ends.

Source: org.apache.kafka.server.share.fetch.InFlightBatch and InFlightState, which keep an object
for each record of a divided batch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from operator import attrgetter

from highwater.broker.share.persister import StateBatch

_last_of = attrgetter("last")


class RecordState(IntEnum):
    """The numbers are those of `persister.DeliveryState`."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def ended(self) -> bool:
        """Whether it is never delivered again."""
        return self in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


@dataclass(slots=True, eq=False)
class Change:
    """A change of some runs' states, which counts once the share coordinator has it.

    A member's request waits for it.  The end of a lock does not: it holds at once, and is stored as
    soon as possible (`at_once`).
    """

    batches: list[StateBatch]
    at_once: bool = False

    @property
    def bounds(self) -> tuple[int, int]:
        return min(b.first_offset for b in self.batches), max(b.last_offset for b in self.batches)

    def add(self, batch: StateBatch) -> None:
        """Adds a range, to the last one if that goes on in it."""
        if self.batches:
            last = self.batches[-1]
            goes_on = last.last_offset + 1 == batch.first_offset
            if goes_on and last[2:] == batch[2:]:
                self.batches[-1] = last._replace(last_offset=batch.last_offset)
                return
        self.batches.append(batch)


@dataclass(slots=True, eq=False)
class Run:
    """Records of one batch that are alike."""

    first: int
    last: int
    state: RecordState
    count: int
    member: str = ""
    """Who has acquired it; empty for nobody."""
    locked_until_ms: int = 0
    change: Change | None = None
    """The change that is on its way; until it is stored, the state is what it was."""
    target: RecordState = RecordState.AVAILABLE
    """The state after the change."""

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    @property
    def rests(self) -> bool:
        """Whether it may be acquired; what has a change on its way is still acquired."""
        return self.state is RecordState.AVAILABLE

    @property
    def ends(self) -> bool:
        """Whether it is not delivered again, unless a change on its way fails."""
        return (self.target if self.change is not None else self.state).ended

    def acquire(self, member: str, locked_until_ms: int) -> None:
        assert self.rests, "no record in two locks"
        self.state, self.member = RecordState.ACQUIRED, member
        self.count, self.locked_until_ms = self.count + 1, locked_until_ms

    def leave(self, state: RecordState) -> None:
        """Ends the lock, if there is one, and the change."""
        assert not self.state.ended, "what has ended never comes back"
        self.state, self.change = state, None
        self.member, self.locked_until_ms = "", 0

    def like(self, other: Run) -> bool:
        return (
            self.state is other.state
            and self.count == other.count
            and self.member == other.member
            and self.locked_until_ms == other.locked_until_ms
            and self.change is other.change
            and (self.change is None or self.target is other.target)
        )


@dataclass(slots=True, eq=False)
class Batch:
    first: int
    last: int
    runs: list[Run]
    divided: bool = False
    gap: bool = False

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def cut(self, first: int, last: int) -> list[Run]:
        """The runs within these bounds; one that goes beyond them is divided there."""
        begin = self._divide_at(first)
        return self.runs[begin : self._divide_at(last + 1)]

    def _divide_at(self, offset: int) -> int:
        """Has a run begin at this offset, and returns its place."""
        at = bisect_left(self.runs, offset, key=_last_of)
        if at == len(self.runs) or self.runs[at].first >= offset:
            return at
        run = self.runs[at]
        self.runs.insert(at + 1, replace(run, first=offset))
        run.last = offset - 1
        self.divided = True
        return at + 1

    def join(self) -> None:
        """Joins runs that have become alike."""
        joined = self.runs[:1]
        for run in self.runs[1:]:
            if joined[-1].like(run):
                joined[-1].last = run.last
            else:
                joined.append(run)
        self.runs = joined


class InFlight:
    """The batches, in the order of their offsets; no two of them have a record in common."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._batches: list[Batch] = []

    def __bool__(self) -> bool:
        return bool(self._batches)

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches)

    @property
    def last(self) -> int:
        return self._batches[-1].last

    def runs(self) -> Iterator[Run]:
        for batch in self._batches:
            yield from batch.runs

    def overlapping(self, first: int, last: int) -> list[Batch]:
        """The batches with a record in these bounds."""
        begin = bisect_left(self._batches, first, key=_last_of)
        return self._batches[begin : bisect_right(self._firsts, last)]

    def add(self, batch: Batch) -> None:
        at = bisect_left(self._firsts, batch.first)
        assert not self.overlapping(batch.first, batch.last), "no record in two batches"
        self._firsts.insert(at, batch.first)
        self._batches.insert(at, batch)

    def take_from_gap(self, gap: Batch, first: int, last: int) -> None:
        """Makes room for these records of a gap; what remains before and after them is a gap."""
        at = bisect_left(self._firsts, gap.first)
        rests = [
            new_gap(begin, end)
            for begin, end in ((gap.first, first - 1), (last + 1, gap.last))
            if begin <= end
        ]
        self._batches[at : at + 1] = rests
        self._firsts[at : at + 1] = [rest.first for rest in rests]

    def remove_below(self, offset: int) -> None:
        """Removes the batches that end below the offset, but for those with a lock or a change."""
        end = bisect_left(self._batches, offset, key=_last_of)
        kept = [
            batch
            for batch in self._batches[:end]
            if any(r.change or r.state is RecordState.ACQUIRED for r in batch.runs)
        ]
        self._batches[:end] = kept
        self._firsts[:end] = [batch.first for batch in kept]


def new_gap(first: int, last: int) -> Batch:
    return Batch(first, last, [Run(first, last, RecordState.AVAILABLE, 0)], gap=True)


def loaded(start: int, stored: Iterable[StateBatch]) -> InFlight:
    """The records in flight after a leader has read the stored state, gaps included.

    Raises ValueError for a state that cannot be: a batch below the start, or over another one.
    """
    in_flight, end = InFlight(), start
    for first, last, state, count in sorted(stored):
        if first < end or last < first or state == RecordState.ACQUIRED:
            raise ValueError(f"the stored state has {first} to {last}, behind offset {end}")
        if first > end:
            in_flight.add(new_gap(end, first - 1))
        in_flight.add(Batch(first, last, [Run(first, last, RecordState(state), count)]))
        end = last + 1
    return in_flight
