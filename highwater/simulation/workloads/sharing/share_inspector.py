"""What the leaders' machines of a share group hold, and the rules about it.

After each step of a broker its share-partitions are compared with what they were after the step
before, record by record.  The machine is taken at its word; what may change is the harness's own
knowledge: what members have sent, the high watermark, and the limits.

* S1: a record ends, or the start offset moves over it, only if a member has said so, or it was
  delivered as often as may be, or its transaction was aborted and the group reads committed records
  only; so none is left out.
* S2: what has ended stays so, in one machine and, once that was answered, in the next one; what is
  acknowledged is in the committed log of the share coordinator (`stored_states`).
* S3: no record passes from one lock into another before the first one ends; a lock whose time is
  over ends, and at once one whose member's session has ended, unless the member has spoken.
* S4: a delivery count never falls, nor passes the limit.
* S5: the start offset never falls, the in-flight limit holds but for the rest of a batch, and
  nothing is acquired above the high watermark, or the last stable offset under read_committed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from highwater.broker.share.in_flight import RecordState, Run
from highwater.kafka.types import TopicPartition
from highwater.simulation.workloads.sharing.share_client import NAME, TOPIC, Place
from highwater.simulation.workloads.sharing.share_ledger import DELIVERIES, LOCK_MS, Ledger
from highwater.simulation.workloads.sharing.stored_states import StoredStates

if TYPE_CHECKING:
    from highwater.broker.server import Broker
    from highwater.broker.share.sessions import ShareSession
    from highwater.broker.share.share_partition import SharePartition
    from highwater.broker.share.share_partitions import LedSharePartition, SharePartitions

IN_FLIGHT = 20
"""group.share.partition.max.record.locks"""
LONGEST_BATCH = 4
"""Producers put no more records into a batch, and a batch is acquired as a whole."""
LATE_S, PAUSE_S = 1.0, 0.3
"""How late a lock may end while its broker goes on; a broker that made no step for longer stood
still."""


class _Record(NamedTuple):
    state: RecordState
    times: int
    member: str
    until_ms: int
    changing: bool


@dataclass(eq=False)
class _Seen:
    """A machine after the last step."""

    start: int
    end: int
    form: list[tuple[object, ...]]
    records: dict[int, _Record] = field(default_factory=dict)
    sessions: dict[str, ShareSession | None] = field(default_factory=dict)
    """Member -> its session."""
    overdue_s: float | None = None
    """Since when a lock is there whose time is over."""
    spoken: set[int] = field(default_factory=set)
    """Records of which a member has said something that may be refused: until then a session's end
    releases nothing of them."""

    def note_spoken(self) -> None:
        for offset, record in self.records.items():
            if record.changing:
                self.spoken.add(offset)
            elif record.state is not RecordState.ACQUIRED:
                self.spoken.discard(offset)


class Inspector:
    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.rules = ledger.rules
        self.looks = 0
        self.read_committed = False
        """Whether the group reads committed records only."""
        self._stored = StoredStates(ledger.rules)
        self._seen: dict[LedSharePartition, _Seen] = {}
        self._passed: dict[int, int] = {}
        """Partition -> the highest start offset of any machine."""
        self._stepped_s: dict[int, float] = {}

    def look(self, number: int, broker: Broker) -> None:
        """Is called after each step of a broker."""
        share, now_s = broker.services.share, self.rules.now()
        paused = now_s - self._stepped_s.get(number, now_s) > PAUSE_S
        self._stepped_s[number] = now_s
        for key, led in share.led.items():
            machine = led.machine
            if machine is None or key.group != NAME:
                continue
            seen = self._seen.get(led)
            runs = list(machine._in_flight.runs())
            form = [_form(run) for run in runs]
            if seen is not None and (paused or not form):
                seen.overdue_s = None
            if seen is None or (machine.start_offset, machine.end_offset, form) != (
                seen.start, seen.end, seen.form,
            ):  # fmt: skip
                new = _Seen(machine.start_offset, machine.end_offset, form)
                new.records = _records(runs, machine.start_offset)
                if seen is not None:
                    new.sessions, new.overdue_s = seen.sessions, seen.overdue_s
                    new.spoken = seen.spoken
                new.note_spoken()
                self._seen[led] = new
                self._examine(number, led, machine, seen, new)
                self._note_sessions(share, new)
                seen = new
            self._watch_locks(led.tp.partition, seen, now_s)
            self._watch_sessions(share, led.tp.partition, seen)

    # -- the rules ------------------------------------------------------------------------------

    def _examine(
        self,
        number: int,
        led: LedSharePartition,
        machine: SharePartition,
        old: _Seen | None,
        new: _Seen,
    ) -> None:
        self.looks += 1
        partition = led.tp.partition
        if old is not None:
            self._bounds(led, old, new)
            for offset, record in new.records.items():
                before = old.records.get(offset)
                if before is not None:
                    self._changed((partition, offset), before, record, old)
        ended = old.records if old is not None else {}
        for offset in range(self._passed.get(partition, 0), new.start):
            was = ended.get(offset)
            if was is None or not was.state.ended:
                self._ends(led, (partition, offset), "the start offset moves over it")
        self._passed[partition] = max(self._passed.get(partition, 0), new.start)
        office = self.ledger.term(partition) == (f"broker-{number}", led.leader_epoch)
        for offset, record in new.records.items():
            place = partition, offset
            highest = self.ledger.highest
            highest[place] = max(highest[place], record.times)
            if record.times > DELIVERIES:
                self._broken("S4", place, f"its delivery count is {record.times}")
            if record.state.ended:
                self._ends(led, place, f"it is {record.state.name}")
                if record.state is RecordState.ACKNOWLEDGED:
                    self._is_stored(place)
            elif office and not record.changing:
                self._stays(place, record)

    def _bounds(self, led: LedSharePartition, old: _Seen, new: _Seen) -> None:
        place = led.tp.partition, new.start
        if new.start < old.start:
            self._broken("S5", place, f"the start offset was {old.start}")
        if new.end <= old.end:
            return
        hw = led.partition.high_watermark
        if new.end > hw:
            self._broken("S5", place, f"acquired up to {new.end}, and the high watermark is {hw}")
        elif self.read_committed and new.end > (lso := led.partition.last_stable_offset):
            self._broken("S5", place, f"acquired up to {new.end}, and the LSO is {lso}")
        if new.end - new.start >= IN_FLIGHT + LONGEST_BATCH and new.end - old.start > IN_FLIGHT:
            self._broken("S5", place, f"{new.end - new.start} records are in flight")

    def _changed(self, place: Place, before: _Record, record: _Record, old: _Seen) -> None:
        if record.times < before.times:
            self._broken("S4", place, f"its delivery count was {before.times}: {record}")
        if before.state.ended and not record.state.ended:
            self._broken("S2", place, f"it was {before.state.name}, and is {record.state.name}")
        if before.state is not RecordState.ACQUIRED or record.times == before.times:
            return
        lock = self.ledger.locks[place].get(before.member)
        session = old.sessions.get(before.member)
        let_go = lock is None or lock.said or session is None or session.closed
        if self.rules.now() * 1000 < before.until_ms - 1 and not let_go:
            self._broken("S3", place, f"from {before.member} to {record.member}, {before} is over")

    def _ends(self, led: LedSharePartition, place: Place, what: str) -> None:
        if self.ledger.may_end(place) or self.ledger.ever_lost(place):
            return
        if TopicPartition(TOPIC, place[0]) in self.rules.partitions:
            times = self.ledger.highest[place]
            self._broken("S1", place, f"{what}; delivered {times} times, and nobody has ended it")

    def _is_stored(self, place: Place) -> None:
        if self.ledger.ever_lost(place):
            return
        if not self._stored.has_ended(self.ledger.key_of(place[0]), place[1]):
            self._broken("S2", place, "it is ACKNOWLEDGED, and that is not stored")

    def _stays(self, place: Place, record: _Record) -> None:
        done = self.ledger.done.get(place)
        if done is not None and not self.ledger.lost(place, done.since):
            self._broken("S2", place, f"it is {record.state.name}, and its end was answered")

    def _watch_locks(self, partition: int, seen: _Seen, now_s: float) -> None:
        over = [
            offset
            for offset, record in seen.records.items()
            if record.state is RecordState.ACQUIRED
            and not record.changing
            and record.until_ms < now_s * 1000
        ]
        if not over:
            seen.overdue_s = None
        elif seen.overdue_s is None:
            seen.overdue_s = now_s
        elif now_s - seen.overdue_s > LATE_S:
            late = f"a lock of {LOCK_MS} ms has not ended: {seen.records[over[0]]}"
            self._broken("S3", (partition, over[0]), late)

    def _watch_sessions(self, share: SharePartitions, partition: int, seen: _Seen) -> None:
        open_ = share.sessions._sessions
        for offset, record in seen.records.items():
            if record.state is not RecordState.ACQUIRED or offset in seen.spoken:
                continue
            if (NAME, record.member) not in open_:
                what = f"{record.member} has it, and has no session any more: {record}"
                self._broken("S3", (partition, offset), what)
                return

    def _note_sessions(self, share: SharePartitions, seen: _Seen) -> None:
        open_ = share.sessions._sessions
        for record in seen.records.values():
            if record.state is RecordState.ACQUIRED:
                seen.sessions[record.member] = open_.get((NAME, record.member))

    def _broken(self, rule: str, place: Place, what: str) -> None:
        self.rules.broken(rule, f"{TOPIC}-{place[0]}@{place[1]} at its leader: {what}")


def _form(run: Run) -> tuple[object, ...]:
    changing = run.change is not None
    return run.first, run.last, run.state, run.count, run.member, run.locked_until_ms, changing


def _records(runs: Iterable[Run], start: int) -> dict[int, _Record]:
    return {
        offset: _Record(
            run.state, run.count, run.member, run.locked_until_ms, run.change is not None
        )
        for run in runs
        for offset in range(max(run.first, start), run.last + 1)
    }
