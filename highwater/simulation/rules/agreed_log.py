"""The checker's knowledge of a partition: its agreed state, committed log, and replicas."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from highwater.kafka import znodes
from highwater.kafka.types import TopicPartition
from highwater.simulation.rules.mirror import Batch, ReplicaMirror


class View(NamedTuple):
    """A broker's view of one of its partitions."""

    leads: bool
    leader_epoch: int
    controller_epoch: int
    hw: int
    members: tuple[int, ...]
    pending: tuple[int, ...] | None
    zk_version: int


WRITTEN_WITHIN_S: Final = 3.0
"""Three times the interval at which the simulation's brokers write their HW checkpoints."""


@dataclass(slots=True)
class Replica:
    """One replica of one partition: its disk, and the view of its broker while one runs there."""

    broker: int
    mirror: ReplicaMirror
    view: View | None = None
    matched: int = 0
    """The offset up to which its log is known to equal the committed log."""
    lossy: bool = False
    """Whether a power loss took its unflushed tail, which excuses it until it has caught up."""
    doubts: bool = False
    """Whether it has not gone back yet since its broker started (`may_go_back`)."""
    was_cut: bool = False
    """Whether it was cut since the last look at its epoch cache."""
    led_until: float = -1.0
    """When (s, virtual) its broker last ceased to lead it, in the broker's own view."""
    epoch_cut: int = -1
    """The leader epoch in which it ended before that cut, if its topic is compacted; else -1."""
    due: int | None = None
    """The lowest HW in the last seconds of a life, which the checkpoint must have; None if that
    life was shorter, or goes on."""
    _marks: list[tuple[float, int]] = field(default_factory=list)
    """(when it got a HW, the HW), for the last seconds, and the one before them."""

    def seen(self, view: View | None, now: float) -> None:
        """Notes that its broker has this view of it from now on."""
        if self.view is not None and self.view.leads:
            self.led_until = now
        self.view = view
        marks, early = self._marks, now - WRITTEN_WITHIN_S
        while len(marks) > 1 and marks[1][0] <= early:
            del marks[0]
        if view is not None:
            self.due = None
            marks.append((now, view.hw))
        elif marks:
            self.due = min(hw for _, hw in marks) if marks[0][0] <= early else None
            marks.clear()


@dataclass(slots=True)
class PartitionTruth:
    """The agreed state and the committed log of one partition."""

    tp: TopicPartition
    compacted: bool = False
    state: znodes.PartitionState | None = None
    assigned: tuple[int, ...] = ()
    target: tuple[int, ...] | None = None
    """The replicas to which it is moving (a reassignment), and whether all of them have been in the
    ISR."""
    target_in_isr: bool = False
    origin: frozenset[int] = frozenset()
    """The replicas without those that a move adds: who has them keeps them until it has ended."""
    committed: list[Batch] = field(default_factory=list)
    bases: list[int] = field(default_factory=list)
    end: int = 0
    absences: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    """Broker -> (from, until) (s, virtual) of its absences from the ISR; infinity: not back yet."""
    unaware: list[float] = field(default_factory=list)
    """When (s, virtual) a cleaner believed that all replicas were in the ISR, and one was not."""
    leaders: dict[int, int] = field(default_factory=dict)
    """Leader epoch -> the broker that led in it."""
    changed: float = 0.0
    """When (s, virtual) its state or its replicas changed last."""
    marks: list[tuple[int, float]] = field(default_factory=list)
    """(HW of a leader, when (s, virtual) it was reached), rising."""
    began: dict[int, int] = field(default_factory=dict)
    """Leader epoch -> the end of its leader's log when the epoch began."""
    replicas: dict[int, Replica] = field(default_factory=dict)
    unclean_epoch: int = -1
    """The leader epoch of the last unclean election, where such elections are allowed."""
    given_up: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of offsets that were committed and then lost where loss is expected (power losses
    beyond the promise of acks=all, unclean elections where they are allowed)."""
    undecided: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of offsets that are still there, but whose transaction's marker was given up."""
    exposed: int = 0
    """The highest HW.  For a compacted topic it is all that is known of what was committed, because
    the batches are not kept."""
    lost_from: int | None = None
    """For a compacted topic: the end of the log of a leader that had lost its tail."""
    stood: dict[int, int] = field(default_factory=dict)
    """CRC -> base offset of each batch ever committed to a compacted topic, even if it was cleaned
    away since."""

    def counts(self, broker: int) -> bool:
        """Whether a leader's HW may rest on this replica: it is in the ISR, or about to be."""
        views = (r.view for r in self.replicas.values())
        pending = [v.pending for v in views if v is not None and v.leads and v.pending is not None]
        isr = self.state.isr if self.state is not None else ()
        return broker in isr or any(broker in members for members in pending)

    @property
    def known_end(self) -> int:
        """The offset up to which every member of the ISR must hold the log: the highest HW of any
        leader."""
        return self.exposed if self.compacted else self.end

    def mark(self, hw: int, now: float) -> None:
        """Notes that its leader has this HW now; it falls only where a loss is expected."""
        while self.marks and self.marks[-1][0] >= hw:
            self.marks.pop()
        self.marks.append((hw, now))

    def settled(self, broker: int) -> bool:
        """Whether the replica is assigned, and no move is about to take it away."""
        stays = self.target is None or (broker in self.target and broker in self.origin)
        return broker in self.assigned and stays

    def compacted_away(self, replica: Replica) -> bool:
        """Whether a replica outside the ISR was cut because compaction has left its leader no batch
        of the epoch in which it ended."""
        leader = self.replicas.get(self.state.leader) if self.state is not None else None
        if replica.epoch_cut < 0 or leader is None or self.counts(replica.broker):
            return False
        return all(batch.epoch != replica.epoch_cut for batch in leader.mirror.batches)

    def cut_a_hole(self, replica: Replica) -> bool:
        """Whether a replica outside the ISR was cut where its log had no batch since compaction."""
        return self.compacted and replica.epoch_cut < 0 and not self.counts(replica.broker)

    def may_go_back(self, replica: Replica) -> bool:
        """Whether it may take a part of its log anew, once in a life: a hole of a compacted log may
        be what a power loss took, and outside of the ISR a replica does not keep such a log."""
        allowed = self.compacted and replica.doubts and not self.counts(replica.broker)
        replica.doubts = False
        return allowed

    def isr_changed(self, old: tuple[int, ...], new: tuple[int, ...], now: float) -> None:
        for broker in old:
            if broker not in new:
                self.absences.setdefault(broker, []).append((now, inf))
        for broker in new:
            away = self.absences.get(broker)
            if broker not in old and away:
                away[-1] = (away[-1][0], now)

    def cleaned_unaware(self, away: tuple[float, float]) -> bool:
        """Whether a cleaner that had not heard of an absence may have removed what was missed."""
        left, back = away
        return any(left <= at <= back for at in self.unaware)

    def excuses(self, offset: int) -> bool:
        return any(start <= offset < end for start, end in self.given_up)

    def commit(self, batches: Iterable[Batch], end: int) -> None:
        for batch in batches:
            self.committed.append(batch)
            self.bases.append(batch.base)
        self.end = max(self.end, end)

    def at(self, offset: int) -> Batch | None:
        index = bisect_right(self.bases, offset) - 1
        if index >= 0 and self.committed[index].last >= offset:
            return self.committed[index]
        return None

    def parts_from(self, mirror: ReplicaMirror) -> int:
        """The offset up to which this replica's log, from its start on, is the committed log."""
        at = max(bisect_right(self.bases, mirror.start) - 1, 0)
        if self.committed and self.committed[at].last < mirror.start:
            at += 1
        for mine in mirror.batches[mirror.index_from(mirror.start) :]:
            if at == len(self.committed) or not mine.same(self.committed[at]):
                break
            at += 1
        return self.committed[at].base if at < len(self.committed) else self.end

    def given_up_by(self, mirror: ReplicaMirror, hw: int) -> None:
        """A leader whose successor lacked records that it has, and which does not know it, shows
        all of its log up to `hw`: the records that other replicas lack are lost."""
        start = self.lost_from if self.compacted else self.parts_from(mirror)
        if start is not None and hw > start:
            self.given_up = [lost for lost in self.given_up if lost[0] != start or lost[1] > hw]
            self.given_up.append((start, hw))

    def forget_above(self, offset: int) -> None:
        """Records that the new leader lacks are given up; a replica that has them is excused until
        it has followed."""
        if offset < self.end:
            self.given_up.append((offset, self.end))
            self.undecided += undecided_without(self.committed, offset)
            for replica in self.replicas.values():
                replica.lossy = replica.lossy or replica.mirror.end > offset
        while self.committed and self.committed[-1].last >= offset:
            self.committed.pop()
            self.bases.pop()
        self.end = min(self.end, offset)
        self.exposed = min(self.exposed, offset)
        for replica in self.replicas.values():
            replica.matched = min(replica.matched, offset)


def undecided_without(committed: list[Batch], offset: int) -> list[tuple[int, int]]:
    """The batches below `offset` whose transactions ended with a marker at or above it."""
    open_: dict[int, list[tuple[int, int]]] = {}
    found: list[tuple[int, int]] = []
    for batch in committed:
        if batch.marker:
            of_producer = open_.pop(batch.producer_id, [])
            if batch.last >= offset:
                found += of_producer
        elif batch.transactional and batch.last < offset:
            open_.setdefault(batch.producer_id, []).append((batch.base, batch.last + 1))
    return found
