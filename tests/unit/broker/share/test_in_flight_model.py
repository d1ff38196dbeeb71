"""The share-partition's machine beside a naive model, which keeps an entry for each offset.

Any event may come at any time: fetches, acknowledgements right and wrong, the end of locks and of
sessions, outcomes of writes, deletion and compaction of records, and a leader that dies and leaves
only what is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from highwater.broker.share.acquisition import Fetched, LogBatch, Wanted
from highwater.broker.share.in_flight import Change, RecordState
from highwater.broker.share.persister import StateBatch
from highwater.broker.share.share_partition import (
    ACCEPT,
    RELEASE,
    RENEW,
    Acknowledgement,
    Limits,
    SharePartition,
)
from highwater.kafka.errors import ApiError

MEMBERS = st.sampled_from(["a", "b", "c"])
LOCK_MS = 10
LIMITS = Limits(max_locks=12, max_deliveries=3)
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = RecordState
AFTER = [ARCHIVED, ACKNOWLEDGED, AVAILABLE, ARCHIVED]


@dataclass
class Entry:
    state: RecordState = AVAILABLE
    count: int = 0
    member: str = ""
    until: int = 0
    change: Change | None = None
    kind: int = ACCEPT


class Life(RuleBasedStateMachine):
    """The machine, its model, the log, and the share coordinator's store."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.log: list[LogBatch] = []
        self.log_start = self.log_end = 0
        self.entries: dict[int, Entry] = {}
        self.stored: dict[int, tuple[int, int]] = {}
        self.stored_start = 0
        self.kept: set[int] = set()
        """Offsets whose acceptance, or rejection, was answered."""
        self.partition = SharePartition(0, (), LIMITS)
        self.start = 0
        self.writing: Any = None

    # ------------------------------------------------------------ the log

    @rule(size=st.integers(1, 6), aborted=st.sampled_from([False, False, False, True]))
    def produce(self, size: int, aborted: bool) -> None:
        self.log.append(LogBatch(self.log_end, self.log_end + size - 1, aborted))
        self.log_end += size

    @precondition(lambda self: len(self.log) > 1)
    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        """Removes a batch, but never the last."""
        del self.log[data.draw(st.integers(0, len(self.log) - 2))]

    @precondition(lambda self: self.log_start < self.log_end)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        self.log_start = data.draw(st.integers(self.log_start, self.log_end))
        self.log = [b for b in self.log if b.last >= self.log_start]
        for offset, entry in self.entries.items():
            if offset < self.log_start and entry.state is AVAILABLE:
                entry.state = ARCHIVED
        self.partition.log_starts_at(self.log_start)

    # ------------------------------------------------------------ fetches

    @rule(
        member=MEMBERS,
        most=st.integers(1, 10),
        size=st.integers(1, 10),
        record_limit=st.booleans(),
        read=st.integers(1, 4),
    )
    def fetch(self, member: str, most: int, size: int, record_limit: bool, read: int) -> None:
        p = self.partition
        offset = p.next_fetch_offset
        batches = [b for b in self.log if b.last >= offset][:read]
        could, before, held = p.can_acquire(), p.end_offset, p.in_flight_count
        wanted = Wanted(member, most, size, record_limit, self.now + LOCK_MS)
        acquired = p.acquire(Fetched(offset, batches), wanted)
        aborted = {o for b in batches if b.aborted for o in range(b.first, b.last + 1)}
        if batches:
            self._gone(offset, batches[0].first)
        offsets = [o for a in acquired for o in range(a.first, a.last + 1)]
        assert offsets == sorted(set(offsets))
        assert not (offsets and not could)
        if record_limit:
            assert len(offsets) <= most
        if could and batches and batches[0].first <= offset and not aborted:
            assert offsets[:1] == [offset], "what is available and was read is acquired"
        for o in offsets:
            assert self.start <= o < self.log_end
            assert o not in aborted
            assert o not in self.kept, "what was acknowledged never comes back"
            if o >= before:
                assert held < LIMITS.max_locks, "no new record at the limit"
            entry = self.entries.setdefault(o, Entry())
            assert entry.state is AVAILABLE
            assert entry.change is None
            entry.state, entry.count = ACQUIRED, entry.count + 1
            entry.member, entry.until = member, self.now + LOCK_MS
        counts = {o: a.delivery_count for a in acquired for o in range(a.first, a.last + 1)}
        assert counts == {o: self.entries[o].count for o in offsets}
        self._sync()
        for o in aborted:
            if o in self.entries:
                assert self.entries[o].state is not ACQUIRED

    def _gone(self, first: int, end: int) -> None:
        for o, entry in self.entries.items():
            if first <= o < end and entry.state is AVAILABLE and entry.change is None:
                entry.state = ARCHIVED

    def _sync(self) -> None:
        """Takes over the records that came into flight without being delivered: the rest of a
        batch, aborted ones, and gaps that turned out to be empty."""
        for first, last, state, count in self.partition.states():
            for o in range(first, last + 1):
                if o not in self.entries:
                    assert state in (AVAILABLE, ARCHIVED)
                    self.entries[o] = Entry(RecordState(state), count)
                elif self.entries[o].state is AVAILABLE and state == ARCHIVED:
                    self.entries[o].state, self.entries[o].count = ARCHIVED, count

    # ------------------------------------------------------------ acknowledgements

    @rule(member=MEMBERS, data=st.data())
    def acknowledge(self, member: str, data: st.DataObject) -> None:
        """One batch of any bounds; right if the member has all of it above the start."""
        mine = [o for o, e in self.entries.items() if e.member == member]
        at = st.integers(0, self.log_end + 2)
        first = data.draw(st.sampled_from(sorted(mine)) if mine else at)
        last = first + data.draw(st.integers(0, 4))
        each = st.lists(st.integers(0, 4), min_size=last - first + 1, max_size=last - first + 1)
        types = data.draw(st.one_of(st.integers(0, 4).map(lambda t: [t]), each))
        self._acknowledge(member, first, last, types)

    @precondition(lambda self: any(e.member and not e.change for e in self.entries.values()))
    @rule(data=st.data(), kind=st.integers(0, 4), rest=st.booleans())
    def acknowledge_one(self, data: st.DataObject, kind: int, rest: bool) -> None:
        held = [o for o, e in self.entries.items() if e.member and not e.change]
        first = last = data.draw(st.sampled_from(sorted(held)))
        member = self.entries[first].member
        while rest and last + 1 in held and self.entries[last + 1].member == member:
            last += 1
        self._acknowledge(member, first, last, [kind])

    def _acknowledge(self, member: str, first: int, last: int, types: list[int]) -> None:
        touched = {
            o: self.entries[o] for o in range(max(first, self.start), last + 1) if o in self.entries
        }
        right = all(e.member == member and not e.change for e in touched.values())
        kinds = dict(zip(range(first, last + 1), types, strict=False))
        ack = Acknowledgement(first, last, types)
        try:
            change = self.partition.acknowledge(member, [ack], self.now + LOCK_MS)
        except ApiError:
            assert not (right and len(touched) == last - first + 1)
            for o, entry in touched.items():
                kind = kinds.get(o, types[0])
                if kind == RENEW and entry.member == member and not entry.change:
                    entry.until = self._locked_until(o)
            return
        assert right
        for o, entry in touched.items():
            kind = kinds.get(o, types[0])
            if kind == RENEW:
                entry.until = self.now + LOCK_MS
            else:
                assert change is not None
                entry.change, entry.kind = change, kind

    def _locked_until(self, offset: int) -> int:
        """A renewal counts, even if a later part of the request is wrong."""
        runs = (r for b in self.partition._in_flight for r in b.runs)
        return next(r.locked_until_ms for r in runs if r.first <= offset <= r.last)

    @rule(member=MEMBERS)
    def release(self, member: str) -> None:
        change = self.partition.release(member)
        for entry in self.entries.values():
            if entry.member == member and not entry.change:
                entry.change, entry.kind = change, RELEASE
                assert change is not None

    @rule(ms=st.integers(1, LOCK_MS))
    def time_goes_on(self, ms: int) -> None:
        self.now += ms
        due = self.partition.next_lock_end_ms
        ended = [e for e in self.entries.values() if e.member and e.until <= self.now]
        if any(not e.change for e in ended):
            assert due is not None
            assert due <= self.now
        self.partition.end_locks(self.now)
        for o, entry in self.entries.items():
            if entry in ended and not entry.change:
                self._free(o, entry, AVAILABLE)

    def _free(self, offset: int, entry: Entry, state: RecordState) -> None:
        if state is AVAILABLE and (entry.count >= LIMITS.max_deliveries or offset < self.log_start):
            state = ARCHIVED
        entry.state, entry.member, entry.change = state, "", None

    # ------------------------------------------------------------ the store

    @rule()
    def write(self) -> None:
        write = self.partition.next_write()
        assert not (write and self.writing), "one write is on its way at a time"
        self.writing = self.writing or write

    @rule(member=MEMBERS)
    def deliver_all_in_vain(self, member: str) -> None:
        """The same records again and again, so that they come to their limit."""
        self.fetch(member, 10, 10, False, 4)
        self.time_goes_on(LOCK_MS)

    @precondition(lambda self: self.writing is not None)
    @rule(outcome=st.sampled_from(["stored", "stored", "refused", "stored and not answered"]))
    def answer(self, outcome: str) -> None:
        write, self.writing = self.writing, None
        if outcome != "refused":
            self._store(write.start_offset, write.batches)
        answered = outcome == "stored"
        settled = self.partition.written(answered)
        for o, entry in self.entries.items():
            if entry.change not in settled or entry.change is None:
                continue
            if answered:
                self._free(o, entry, AFTER[entry.kind])
                if entry.state.ended:
                    self.kept.add(o)
            else:
                entry.change = None

    def _store(self, start: int, batches: tuple[StateBatch, ...]) -> None:
        assert start >= self.stored_start
        self.stored_start = start
        for first, last, state, count in batches:
            for o in range(first, last + 1):
                old = self.stored.get(o, (0, 0))
                assert count >= old[1], "the delivery count never falls"
                assert not (RecordState(old[0]).ended and state == AVAILABLE and o in self.kept)
                self.stored[o] = state, count

    @rule()
    def the_leader_moves(self) -> None:
        """The next one has what is stored; what it does not know of is available."""
        batches = [
            StateBatch(o, o, *self.stored[o]) for o in sorted(self.stored) if o >= self.stored_start
        ]
        self.partition = p = SharePartition(self.stored_start, batches, LIMITS)
        self.writing, self.start = None, p.start_offset
        self.entries = {
            b.first_offset: Entry(RecordState(b.delivery_state), b.delivery_count) for b in batches
        }
        if self.log_start > p.start_offset:
            p.log_starts_at(self.log_start)
            for o, entry in self.entries.items():
                if o < self.log_start and entry.state is AVAILABLE:
                    entry.state = ARCHIVED
        self._sync()

    # ------------------------------------------------------------ what always holds

    @invariant()
    def what_always_holds(self) -> None:
        self.the_start_never_falls()
        self.both_say_the_same()
        self.batches_do_not_fall_apart()

    def the_start_never_falls(self) -> None:
        assert self.partition.start_offset >= self.start
        self.start = self.partition.start_offset
        assert self.partition.end_offset >= self.start
        assert self.start <= self.partition.next_fetch_offset <= self.partition.end_offset
        self.entries = {
            o: e for o, e in self.entries.items() if o >= self.start or e.member or e.change
        }

    def both_say_the_same(self) -> None:
        states = {
            o: (state, count)
            for first, last, state, count in self.partition.states()
            for o in range(first, last + 1)
            if o >= self.start or state == ACQUIRED
        }
        assert states == {
            o: (e.state, e.count)
            for o, e in self.entries.items()
            if o >= self.start or e.state is ACQUIRED
        }
        changing = {
            o: run.change
            for batch in self.partition._in_flight
            for run in batch.runs
            for o in range(run.first, run.last + 1)
            if run.change is not None
        }
        assert changing == {o: e.change for o, e in self.entries.items() if e.change}
        assert all(count <= LIMITS.max_deliveries for _, count in states.values())
        head = next((o for o in sorted(states) if o >= self.start), None)
        at_rest = not (self.partition._waiting or self.partition._writing)
        if at_rest and head is not None:
            assert not self.entries[head].state.ended, "the start moves over what has ended"

    def batches_do_not_fall_apart(self) -> None:
        for batch in self.partition._in_flight:
            assert [r.last + 1 for r in batch.runs[:-1]] == [r.first for r in batch.runs[1:]]
            assert (batch.runs[0].first, batch.runs[-1].last) == (batch.first, batch.last)
            assert batch.divided or len(batch.runs) == 1


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
