"""The rules of brokers: of the logs on their disks, and of role, HW and ISR in memory.

R1 and R3 when a leader's HW moves, R5 and R6 for every replica with a HW, R7 for epochs, cuts and a
HW that falls, R8 for the epoch cache, R9 for min.insync.replicas, R11 after a restart.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from highwater.kafka.types import TopicPartition
from highwater.simulation.rules import control_rules
from highwater.simulation.rules.agreed_log import (
    WRITTEN_WITHIN_S,
    PartitionTruth,
    Replica,
    View,
)
from highwater.simulation.rules.mirror import Batch, ReplicaMirror
from highwater.simulation.rules.replayed_state import differing, producers

if TYPE_CHECKING:
    from highwater.broker.replica.follower import Follower
    from highwater.broker.replica.partition import Partition
    from highwater.simulation.rules.findings import Book


class BrokerRules:
    """Its methods are called for each change of a replica's log, and each new view of a broker."""

    def __init__(self, book: Book, min_isr: int) -> None:
        self._book = book
        self._min_isr = min_isr
        self.checkpoints: dict[int, dict[TopicPartition, int]] = {}
        """Broker -> its HW checkpoint at the start of its life."""

    def cut(self, truth: PartitionTruth, replica: Replica, gone: list[Batch]) -> None:
        """Checks the loss of these batches from the replica's disk."""
        if truth.compacted:
            if gone[-1].last >= replica.mirror.end:  # else compaction has removed them
                replica.epoch_cut, replica.was_cut = gone[-1].epoch, True
                self._cut_compacted(truth, replica)
            return
        tp, first = truth.tp, gone[0].base
        self._book.seen["truncated_batches"] += len(gone)
        self._book.happened("a cut", tp)
        self._book.trace.add(
            f"broker-{replica.broker}", f"{tp}: cut {len(gone)} batches from {gone[0]} on"
        )
        replica.matched = min(replica.matched, first)
        replica.was_cut = True
        known = truth.at(first)
        if replica.lossy or replica.mirror.start > first or known is None:
            return
        # a removed replica is deleted as a whole, after it has left the ISR
        out = truth.state is None or replica.broker not in truth.state.isr
        taken_away = not replica.mirror.exists and not truth.settled(replica.broker)
        if out and (taken_away or replica.mirror.made_anew):
            return
        # an empty log may be left in a directory that failed when the log was being made
        gone_or_left = not replica.mirror.exists or replica.mirror.moved
        if tp.topic in self._book.deleting and gone_or_left:
            return
        if known.same(gone[0]):
            self._book.broken(
                "R7", f"{tp}: broker {replica.broker} cut away {known}, which was committed"
            )

    def _cut_compacted(self, truth: PartitionTruth, replica: Replica) -> None:
        """R7 for a compacted topic, whose committed batches are not known: but a member of the ISR
        must have all below its HW."""
        view, end = replica.view, replica.mirror.end
        isr = truth.state.isr if truth.state is not None else ()
        if replica.lossy or not replica.mirror.exists or replica.mirror.made_anew:
            return
        if view is not None and end < view.hw and replica.broker in isr and not truth.excuses(end):
            self._book.broken(
                "R7",
                f"{truth.tp}: broker {replica.broker}, of the ISR, cut its log to {end}, below its "
                f"HW {view.hw}",
            )

    def begins(self, truth: PartitionTruth, replica: Replica) -> None:
        """R3: checks a running broker's replica whose log has lost its beginning."""
        view, start = replica.view, replica.mirror.start
        if view is not None and view.hw < start:
            what = f"has HW {view.hw}, and its log starts at {start}"
            self._book.broken("R3", f"{truth.tp}: broker {replica.broker} {what}")

    def view_changed(
        self,
        truth: PartitionTruth,
        replica: Replica,
        old: View | None,
        new: View,
        partition: Partition,
    ) -> None:
        """Checks a change of a broker's view of its partition (`old` is None at its start)."""
        self._book.checks += 1
        who = f"{truth.tp}: broker {replica.broker}"
        new_term = old is None or old.leader_epoch != new.leader_epoch or old.leads != new.leads
        if new_term:
            who_learns = "its leader" if new.leads else "a follower"
            back = " is back" if old is None else " learns of a term"
            self._book.happened(who_learns + back, truth.tp)
            self._book.trace.add(
                f"broker-{replica.broker}",
                f"{truth.tp}: {'leads' if new.leads else f'follows {partition.leader}'}, epoch "
                f"{new.leader_epoch}, HW {new.hw}, LEO {replica.mirror.end}",
            )
        if new_term or replica.was_cut:
            self._check_epochs(who, truth, replica, partition)
        if new.hw > replica.mirror.end:
            self._book.broken(
                "R3", f"{who} has HW {new.hw}, above its own LEO {replica.mirror.end}"
            )
        log: Any = partition.log
        if log is not None and log.log_start_offset > new.hw:
            self._book.broken(
                "R3", f"{who} has HW {new.hw}, below its own log start {log.log_start_offset}"
            )
        for follower in partition.followers.values():
            fed: Any = follower.fed
            if fed is not None and fed.rests and not _may_rest(fed, follower, partition, new):
                asked = fed.asked
                self._book.broken("R14", f"{who} lets broker {follower.broker_id} rest at {asked}")
        if old is None:
            self._check_checkpoint(truth, replica, new)
        else:
            if new.leader_epoch < old.leader_epoch:
                self._book.broken("R7", f"{who}: leader epoch fell: {old} -> {new}")
            if new.controller_epoch < old.controller_epoch:
                self._book.broken("R10", f"{who}: controller epoch fell: {old} -> {new}")
            self._check_fall(who, truth, replica, old, new)
        replica.epoch_cut = -1
        if new.leads:
            self._check_leader(truth, replica, old, new, partition, new_term)
            return
        led = old is not None and old.leads and old.leader_epoch == new.leader_epoch
        if led and old is not None and new.hw > max(truth.end, old.hw):
            # its directory failed in the very step that raised its HW, and it still led then
            self._extend(truth, replica, new.hw)
            self._check_members(truth, replica, new)
        elif new.hw and (old is None or new.hw != old.hw):
            self._book.hold(
                truth, replica, min(new.hw, replica.mirror.end), "R5", "has its HW there"
            )

    def _check_fall(
        self, who: str, truth: PartitionTruth, replica: Replica, old: View, new: View
    ) -> None:
        """R7: only a cut lowers a HW, and not below the end of the log after the cut."""
        if new.hw >= old.hw:
            return
        end = replica.mirror.end
        excused = replica.lossy or truth.excuses(new.hw)  # a leader lost records, as expected
        if new.hw < min(old.hw, end):
            self._book.broken("R7", f"{who}: the HW fell from {old.hw} to {new.hw}, LEO {end}")
        elif not (
            excused
            or truth.compacted_away(replica)
            or truth.cut_a_hole(replica)
            or truth.may_go_back(replica)
        ):
            self._book.broken("R7", f"{who}: the HW fell from {old.hw} to {new.hw}")

    def _check_epochs(
        self, who: str, truth: PartitionTruth, replica: Replica, partition: Partition
    ) -> None:
        """R8: the epoch cache, producers, and the largest timestamp of the last segment."""
        log: Any = partition.log
        replica.was_cut = False
        if log is None:
            return
        entries = log.epochs.entries
        for (epoch, start), (next_epoch, next_start) in pairwise(entries):
            if next_epoch <= epoch or next_start <= start:
                self._book.broken("R8", f"{who}: epoch entries do not rise: {entries}")
        if entries and entries[-1][1] > log.log_end_offset:
            self._book.broken(
                "R8", f"{who}: an epoch begins above its LEO {log.log_end_offset}: {entries}"
            )
        if partition.is_leader and (not entries or entries[-1][0] != partition.leader_epoch):
            self._book.broken(
                "R8", f"{who} leads in epoch {partition.leader_epoch} without an entry: {entries}"
            )
        now_ms = self._book.wall_ms(replica.broker)
        for otherwise in differing(log, producers(replica.mirror.batches), now_ms):
            self._book.broken("R8", f"{who} {otherwise}")
        if not truth.compacted:
            self._compare_epochs(who, replica.mirror, entries, log.log_start_offset)
            # a lookup by time skips a segment whose recorded largest timestamp is smaller
            if (wrong := replica.mirror.misdated(log.segments[-1])) is not None:
                self._book.broken("R8", f"{who} {wrong}")
        else:
            self._find_epochs(who, replica.mirror, entries, log.log_start_offset)

    def _find_epochs(
        self, who: str, mirror: ReplicaMirror, entries: list[tuple[int, int]], log_start: int
    ) -> None:
        """R8: each batch of a compacted log has the epoch of the cache entry that covers it."""
        for batch in mirror.batches[mirror.index_from(log_start) :]:
            epochs = [epoch for epoch, start in entries if start <= batch.last]
            if not epochs or epochs[-1] != batch.epoch:
                self._book.broken("R8", f"{who} has {batch}, by its entries of another: {entries}")
                return

    def _compare_epochs(
        self, who: str, mirror: ReplicaMirror, entries: list[tuple[int, int]], log_start: int
    ) -> None:
        """R8: each entry has the offset of its epoch's first batch in the log."""
        before = mirror.batch_at(log_start)
        if before is not None and (not entries or entries[0][1] > max(log_start, before.base)):
            self._book.broken("R8", f"{who} has {before}, below all its epoch entries: {entries}")
        for epoch, start in entries:
            first, before = mirror.batch_at(start), mirror.batch_at(start - 1)
            if first is not None and first.epoch != epoch and start > log_start:
                self._book.broken(
                    "R8", f"{who}: by its entries epoch {epoch} begins with {first}: {entries}"
                )
            if before is not None and before.epoch >= epoch and start > log_start:
                self._book.broken(
                    "R8", f"{who}: by its entries {before} is older than epoch {epoch}: {entries}"
                )

    def _check_checkpoint(self, truth: PartitionTruth, replica: Replica, new: View) -> None:
        """R11: after a restart the HW is at or above the last checkpoint."""
        written = self.checkpoints.get(replica.broker, {}).get(truth.tp)
        if written is not None and new.hw < min(written, replica.mirror.end):
            self._book.broken(
                "R11",
                f"{truth.tp}: broker {replica.broker} came back with HW {new.hw}, "
                f"its checkpoint said {written}, its LEO is {replica.mirror.end}",
            )

    def check_written(self, truths: Iterable[PartitionTruth], broker: int) -> None:
        """R11: the last checkpoint of a life has at least the lowest HW of its last seconds."""
        for truth in truths:
            replica = truth.replicas.get(broker)
            if replica is None or replica.due is None or not replica.mirror.exists:
                continue
            written = self.checkpoints[broker].get(truth.tp, -1)
            if written < min(replica.due, replica.mirror.end):
                self._book.broken(
                    "R11",
                    f"{truth.tp}: broker {broker} had HW {replica.due} for {WRITTEN_WITHIN_S:g} s, "
                    f"and its checkpoint says {written}",
                )

    def _check_leader(
        self,
        truth: PartitionTruth,
        replica: Replica,
        old: View | None,
        new: View,
        partition: Partition,
        new_term: bool,
    ) -> None:
        who = f"{truth.tp}: broker {replica.broker}"
        latest = max(truth.leaders, default=-1)
        other = truth.leaders.setdefault(new.leader_epoch, replica.broker)
        if new_term:
            began = replica.mirror.end
            for batch in reversed(replica.mirror.batches):
                if batch.epoch != new.leader_epoch:
                    break
                began = batch.base  # it took this one in this very step, or before a restart
            truth.began[new.leader_epoch] = min(began, truth.began.get(new.leader_epoch, began))
        if other != replica.broker:
            self._book.broken("R7", f"{who} and {other} both lead in epoch {new.leader_epoch}")
        if replica.lossy and new.leader_epoch < latest:
            # a former leader, with records that the next one lost: it may commit some only now
            if old is not None and new.hw > old.hw:
                truth.given_up_by(replica.mirror, new.hw)
            return
        if replica.lossy and new.leader_epoch >= truth.unclean_epoch:
            self._lossy_leads(truth, replica)
        if old is not None and not new_term and new.members != old.members:
            late = control_rules.high_watermark_waits(partition, int(self._book.now() * 1000))
            if late is not None:
                self._book.broken("R3", f"{who}: {late}")
        if old is not None and new.hw > old.hw:
            least = min(self._min_isr, len(partition.replicas) or 1)
            if len(new.members) < least:
                self._book.broken(
                    "R9", f"{who}: the HW rose to {new.hw} with an ISR of {new.members} only"
                )
        if new.leader_epoch < truth.unclean_epoch:  # a zombie, alone with what was given up
            truth.given_up_by(replica.mirror, new.hw)
            return
        if new_term or old is None or new.hw != old.hw:
            truth.mark(new.hw, self._book.now())
            self._extend(truth, replica, new.hw)
            self._check_members(truth, replica, new)

    def _lossy_leads(self, truth: PartitionTruth, replica: Replica) -> None:
        """A replica that lost its tail may lead only where no intact member is in the ISR.  It may
        have another tail instead: what it had cut off, and a power loss brought back."""
        replica.lossy = False
        isr = truth.state.isr if truth.state else ()
        others = [b for b in isr if b != replica.broker and not self._book.replica(truth, b).lossy]
        kept = min(replica.mirror.end, truth.parts_from(replica.mirror))
        if truth.compacted:
            kept = replica.mirror.end
        if kept < truth.known_end and others:
            self._book.broken(
                "R4",
                f"{truth.tp}: broker {replica.broker} lost its tail (LEO {replica.mirror.end}, "
                f"committed {truth.known_end}), and leads although {others} are in the ISR",
            )
        for other in truth.replicas.values():
            former = other.view is not None and other.view.leads
            if other is not replica and (former or truth.compacted):
                other.lossy = other.lossy or other.mirror.end > kept
        if truth.compacted:  # committed batches are not kept; replicas that are ahead follow
            truth.lost_from = replica.mirror.end
            if replica.mirror.end < truth.exposed:
                truth.given_up.append((replica.mirror.end, truth.exposed))
                truth.exposed = replica.mirror.end
                self._book.expected_losses += 1
        if truth.compacted or kept >= truth.end:
            return
        self._book.expected_losses += 1
        truth.forget_above(kept)

    def _extend(self, truth: PartitionTruth, replica: Replica, hw: int) -> None:
        """Extends the committed log to a leader's HW."""
        mirror = replica.mirror
        below, truth.exposed = truth.exposed, max(truth.exposed, hw)
        if truth.compacted:
            for batch in mirror.batches[mirror.index_from(below) :]:
                if below <= batch.base and batch.last < hw:
                    truth.stood[batch.crc] = batch.base
            return
        self._book.hold(truth, replica, min(hw, truth.end), "R6", "leads, with its HW there")
        if hw <= truth.end or self._book.violation:
            return
        at = mirror.index_from(truth.end)
        new = [b for b in mirror.batches[at:] if b.last < hw]
        reached = new[-1].last + 1 if new else truth.end
        if reached != hw and mirror.start < hw:
            self._book.broken(
                "R3", f"{truth.tp}: leader {replica.broker} has HW {hw} and LEO {mirror.end}"
            )
        truth.commit(new, hw)
        replica.matched = hw

    def _check_members(self, truth: PartitionTruth, replica: Replica, new: View) -> None:
        """R1 for ZooKeeper's ISR, R3 for the maximal ISR as the leader sees it."""
        state = truth.state
        if state is None:
            return
        for broker in state.isr:
            member = self._book.replica(truth, broker)
            deleted = truth.tp.topic in self._book.deleting and not member.mirror.exists
            if broker != replica.broker and not deleted:
                self._book.hold(
                    truth,
                    member,
                    min(new.hw, truth.known_end),
                    "R1",
                    f"is in the ISR, and the HW of leader {replica.broker} is {new.hw}",
                )
        if new.leader_epoch != state.leader_epoch:
            return
        for member_id in (*new.members, *(new.pending or ())):
            member = self._book.replica(truth, member_id)
            if member.mirror.end < new.hw and not member.lossy:
                self._book.broken(
                    "R3",
                    f"{truth.tp}: {member_id}, of the maximal ISR of {replica.broker}, has LEO "
                    f"{member.mirror.end}, below HW {new.hw}",
                )


def _may_rest(fed: Any, follower: Follower, partition: Partition, view: View) -> bool:
    """Whether the follower has all that the leader has, knows all that it knows, and is in the
    ISR."""
    log, asked = partition.log, fed.asked
    return (
        view.leads
        and log is not None
        and fed not in fed.feed.news
        and follower.broker_id in view.members
        and asked.current_leader_epoch == view.leader_epoch
        and asked.fetch_offset == follower.log_end_offset == log.log_end_offset
        and asked.log_start_offset == follower.log_start_offset
        and fed.told == (view.hw, partition.last_stable_offset, log.log_start_offset)
    )
