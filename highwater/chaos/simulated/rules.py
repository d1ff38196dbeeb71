"""R1-R11 of the cluster's own state, checked from outside after every step that changes it.

Theory of operation.  The checker believes nobody.  What a replica holds it reads from the machine's
disk (`mirror`), what is agreed from ZooKeeper's tree, and from the broker's objects only what
exists nowhere else: role, high watermark, ISR as the leader sees it.  In its middle stands, for
each partition, the **committed log**: the batches below the highest high watermark that any
leader ever had.  A leader's HW that moves extends it, and from then on everybody is held to it:

* R1, R5: a leader's HW that moves finds the same batches on every member of ZooKeeper's ISR;
whatever   any replica holds below its own HW is the committed log. * R4, R6, R7: who is elected
(cleanly) holds all of it; nobody cuts a part of it away; what is   acknowledged (acks=all) or
read is in it. * R3, R9: a member of the maximal ISR holds all of it, a new member also the
leader's epoch start.

Each replica remembers up to where it was found equal, so a check costs what has changed.  The first
broken rule is kept in `violation`, and the run ends there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from highwater.chaos.simulated.mirror import Batch, ReplicaMirror
from highwater.chaos.simulated.truth import PartitionTruth, Replica, View
from highwater.common import znodes
from highwater.common.types import TopicPartition

if TYPE_CHECKING:
    from broker.replica.partition import Partition
    from highwater.chaos.simulated.trace import Trace
    from highwater.common.world.sim.disk import SimDisk
    from highwater.common.world.sim.zookeeper_server import Ensemble


class Violation(NamedTuple):
    """The first broken rule of a run."""

    rule: str
    what: str
    time: float

    def __str__(self) -> str:
        return f"{self.rule} broken at {self.time:.4f} s: {self.what}"


class Rules:
    """The checker of one run.  `disks` by broker id; `data_folder` is the log directory on each."""

    def __init__(
        self,
        now: Callable[[], float],
        trace: Trace,
        ensemble: Ensemble,
        disks: dict[int, SimDisk],
        data_folder: str,
        *,
        min_isr: int,
        unclean_allowed: bool = False,
    ) -> None:
        self._now = now
        self._trace = trace
        self._ensemble = ensemble
        self._disks = disks
        self._folder = data_folder
        self._min_isr = min_isr
        self._unclean_allowed = unclean_allowed
        self._controller_epoch = 0
        self._checkpoints: dict[int, dict[TopicPartition, int]] = {}
        self.partitions: dict[TopicPartition, PartitionTruth] = {}
        self.violation: Violation | None = None
        self.on_violation: Callable[[], None] = lambda: None
        self.seen: Counter[str] = Counter()
        self.expected_losses = 0
        self.checks = 0

    def broken(self, rule: str, what: str) -> None:
        if self.violation is None:
            self.violation = Violation(rule, what, self._now())
            self._trace.add("checker", f"{rule}: {what}")
            self.on_violation()

    # -- what ZooKeeper says --------------------------------------------------------------------

    def zookeeper_changed(self, path: str, who: str) -> None:
        parts = path.split("/")
        node = self._ensemble.nodes.get(path)
        if path == "/controller_epoch" and node is not None:
            self._controller_moved(int(node.data))
        elif path == "/controller":
            owner = znodes.decode_controller(node.data).broker_id if node else None
            self._trace.add("zookeeper", f"/controller is {owner}")
        elif len(parts) == 4 and path.startswith("/brokers/topics/"):
            self._topic_changed(parts[3], node.data if node else None)
        elif len(parts) == 7 and path.startswith("/brokers/topics/") and parts[6] == "state":
            tp = TopicPartition(parts[3], int(parts[5]))
            if node is not None:
                state = znodes.decode_partition_state(tp, node.data, node.version)
                self._state_changed(tp, state, who)
        elif len(parts) == 4 and path.startswith("/brokers/ids/"):
            self._trace.add("zookeeper", f"broker {parts[3]} {'is there' if node else 'is gone'}")

    def _controller_moved(self, epoch: int) -> None:
        if self._controller_epoch and epoch != self._controller_epoch + 1:
            self.broken(
                "R10", f"the controller epoch went from {self._controller_epoch} to {epoch}"
            )
        if epoch > 1:
            self.seen["controller_moves"] += 1
        self._controller_epoch = epoch

    def _topic_changed(self, topic: str, data: bytes | None) -> None:
        if data is None:
            for tp in [tp for tp in self.partitions if tp.topic == topic]:
                del self.partitions[tp]
            self._trace.add("zookeeper", f"topic {topic} is gone")
            return
        for index, assignment in znodes.decode_topic(topic, data).partitions.items():
            tp = TopicPartition(topic, index)
            truth = self.partitions.get(tp)
            if truth is None:
                truth = self.partitions[tp] = PartitionTruth(tp)
            truth.assigned = tuple(int(b) for b in assignment.replicas)
            if truth.state is not None:
                self._check_isr(truth)

    def _state_changed(self, tp: TopicPartition, state: znodes.PartitionState, who: str) -> None:
        truth = self.partitions.get(tp)
        if truth is None:
            return  # its topic was deleted
        old, truth.state = truth.state, state
        self.checks += 1
        self._trace.add(
            "zookeeper",
            f"{tp}: leader {state.leader}, epoch {state.leader_epoch}, ISR {list(state.isr)}, "
            f"controller epoch {state.controller_epoch}, version {state.zk_version}; by {who}",
        )
        self._check_isr(truth)
        if old is None:
            return
        if state.leader_epoch < old.leader_epoch:
            self.broken("R7", f"{tp}: leader epoch fell from {old.leader_epoch} to {state}")
        if state.controller_epoch < old.controller_epoch:
            self.broken(
                "R10", f"{tp}: controller epoch fell from {old.controller_epoch} to {state}"
            )
        if state.leader != old.leader:
            if state.leader_epoch == old.leader_epoch:
                self.broken("R7", f"{tp}: a new leader in the same epoch: {old} -> {state}")
            self._elected(truth, old, state)
        added = [b for b in state.isr if b not in old.isr]
        if added and state.leader == old.leader and state.leader_epoch == old.leader_epoch:
            self.seen["isr_expands"] += 1
            for broker in added:
                self._joined(truth, broker)
        if any(b not in state.isr for b in old.isr):
            self.seen["isr_shrinks"] += 1

    def _check_isr(self, truth: PartitionTruth) -> None:
        state = truth.state
        assert state is not None
        if state.leader >= 0 and state.leader not in state.isr:
            self.broken("R2", f"{truth.tp}: the leader is not in the ISR: {state}")
        if not set(state.isr) <= set(truth.assigned):
            self.broken(
                "R2", f"{truth.tp}: ISR {state.isr} is not within the replicas {truth.assigned}"
            )

    def _elected(
        self, truth: PartitionTruth, old: znodes.PartitionState, new: znodes.PartitionState
    ) -> None:
        if new.leader < 0:
            return
        if old.leader >= 0:
            self.seen["leader_changes"] += 1
            before = truth.replicas.get(old.leader)
            if before is not None and before.mirror.end > truth.end:
                self.seen["hw_below_leo_at_election"] += 1
        replica = self._replica(truth, new.leader)
        if new.leader not in old.isr:
            if not self._unclean_allowed:
                self.broken("R4", f"{truth.tp}: {new.leader} was elected, and was not in {old}")
            self.seen["unclean_elections"] += 1
            truth.unclean += 1
            truth.forget_above(replica.mirror.end)
            return
        self._hold(truth, replica, truth.end, "R4", "was elected leader")

    def _joined(self, truth: PartitionTruth, broker: int) -> None:
        """A follower joined the ISR by its leader's word."""
        replica = self._replica(truth, broker)
        self._hold(truth, replica, truth.end, "R1", "joined the ISR")
        replica.lossy = False
        leader = truth.replicas.get(truth.state.leader) if truth.state else None
        if leader is None or leader.view is None or not leader.view.leads:
            return
        start = self._epoch_start(leader)
        if start is not None and replica.mirror.end < start:
            self.broken(
                "R9",
                f"{truth.tp}: {broker} joined the ISR with LEO {replica.mirror.end}, below the "
                f"start {start} of its leader's epoch {leader.view.leader_epoch}",
            )

    @staticmethod
    def _epoch_start(leader: Replica) -> int | None:
        """Where the leader's epoch starts, by the batches on its disk."""
        assert leader.view is not None
        for batch in reversed(leader.mirror.batches):
            if batch.epoch < leader.view.leader_epoch:
                return batch.last + 1
        return None

    # -- what a broker says ---------------------------------------------------------------------

    def broker_started(self, broker: int, checkpoint: dict[TopicPartition, int]) -> None:
        """Called before a broker's life begins, with its HW checkpoint as it is on the disk."""
        self._checkpoints[broker] = checkpoint
        for truth in self.partitions.values():
            if broker in truth.replicas:
                truth.replicas[broker].view = None

    def broker_stopped(self, broker: int) -> None:
        for truth in self.partitions.values():
            replica = truth.replicas.get(broker)
            if replica is not None:
                replica.view = None

    def power_lost(self, broker: int, *, excused: bool) -> None:
        for truth in self.partitions.values():
            if broker in truth.replicas:
                truth.replicas[broker].lossy = excused

    def step(self, broker: int, partitions: dict[TopicPartition, Partition]) -> None:
        """Looks at one broker after one of its steps."""
        self.disk_changed(broker)
        for tp, partition in partitions.items():
            isr = partition.isr
            view = View(
                partition.is_leader,
                partition.leader_epoch,
                partition.controller_epoch,
                partition.high_watermark,
                isr.members,
                isr.pending,
                isr.zk_version,
            )
            truth = self.partitions.get(tp)
            if truth is None:
                continue
            replica = truth.replicas.get(broker) or self._replica(truth, broker)
            if view != replica.view:
                old, replica.view = replica.view, view
                self._view_changed(truth, replica, old, view, partition)

    def disk_changed(self, broker: int) -> None:
        """Looks at a machine's disk alone, whether a broker runs there or not."""
        touched = self._disks[broker].touched
        if not touched:
            return
        everything = "" in touched
        for tp, truth in self.partitions.items():
            replica = truth.replicas.get(broker)
            if replica is not None and (everything or replica.mirror.path in touched):
                gone = replica.mirror.refresh()
                if gone:
                    self._cut(truth, replica, gone, tp)
        touched.clear()

    def _replica(self, truth: PartitionTruth, broker: int) -> Replica:
        found = truth.replicas.get(broker)
        if found is None:
            mirror = ReplicaMirror(self._disks[broker], f"{self._folder}/{truth.tp}")
            found = truth.replicas[broker] = Replica(broker, mirror)
            mirror.refresh()
        return found

    def _cut(
        self, truth: PartitionTruth, replica: Replica, gone: list[Batch], tp: TopicPartition
    ) -> None:
        first = gone[0].base
        self.seen["truncated_batches"] += len(gone)
        self._trace.add(
            f"broker-{replica.broker}", f"{tp}: cut {len(gone)} batches from {gone[0]} on"
        )
        replica.matched = min(replica.matched, first)
        known = truth.at(first)
        if replica.lossy or replica.mirror.start > first or known is None:
            return
        # a replica that is taken away goes whole, after it has left the ISR
        taken_away = not replica.mirror.exists
        if taken_away and (truth.state is None or replica.broker not in truth.state.isr):
            return
        if known.same(gone[0]):
            self.broken(
                "R7", f"{tp}: broker {replica.broker} cut away {known}, which was committed"
            )

    def _view_changed(
        self,
        truth: PartitionTruth,
        replica: Replica,
        old: View | None,
        new: View,
        partition: Partition,
    ) -> None:
        self.checks += 1
        who = f"{truth.tp}: broker {replica.broker}"
        new_term = old is None or old.leader_epoch != new.leader_epoch or old.leads != new.leads
        if new_term:
            self._trace.add(
                f"broker-{replica.broker}",
                f"{truth.tp}: {'leads' if new.leads else f'follows {partition.leader}'}, epoch "
                f"{new.leader_epoch}, HW {new.hw}, LEO {replica.mirror.end}",
            )
            self._check_epochs(who, partition)
        if old is None:
            self._check_checkpoint(truth, replica, new)
        else:
            if new.leader_epoch < old.leader_epoch:
                self.broken("R7", f"{who}: leader epoch fell: {old} -> {new}")
            if new.controller_epoch < old.controller_epoch:
                self.broken("R10", f"{who}: controller epoch fell: {old} -> {new}")
            if new.hw < old.hw and not new_term and not replica.lossy and not truth.unclean:
                self.broken("R7", f"{who}: the HW fell from {old.hw} to {new.hw}")
        if new.leads:
            self._check_leader(truth, replica, old, new, partition, new_term)
        elif new.hw and (old is None or new.hw != old.hw):
            self._hold(truth, replica, min(new.hw, replica.mirror.end), "R5", "has its HW there")

    def _check_epochs(self, who: str, partition: Partition) -> None:
        """R8: the epoch cache."""
        log: Any = partition.log
        if log is None:
            return
        entries = log.epochs.entries
        for (epoch, start), (next_epoch, next_start) in pairwise(entries):
            if next_epoch <= epoch or next_start <= start:
                self.broken("R8", f"{who}: epoch entries do not rise: {entries}")
        if partition.is_leader and (not entries or entries[-1][0] != partition.leader_epoch):
            self.broken(
                "R8", f"{who} leads in epoch {partition.leader_epoch} without an entry: {entries}"
            )

    def _check_checkpoint(self, truth: PartitionTruth, replica: Replica, new: View) -> None:
        """R11: after a restart the HW is at or above the last checkpoint."""
        written = self._checkpoints.get(replica.broker, {}).get(truth.tp)
        if written is not None and new.hw < min(written, replica.mirror.end) and not replica.lossy:
            self.broken(
                "R11",
                f"{truth.tp}: broker {replica.broker} came back with HW {new.hw}, "
                f"its checkpoint said {written}, its LEO is {replica.mirror.end}",
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
        if replica.lossy:
            self._lossy_leads(truth, replica)
        other = truth.leaders.setdefault(new.leader_epoch, replica.broker)
        if other != replica.broker:
            self.broken("R7", f"{who} and {other} both lead in epoch {new.leader_epoch}")
        if old is not None and not new_term and new.hw > old.hw:
            least = min(self._min_isr, len(partition.replicas) or 1)
            if len(new.members) < least:
                self.broken(
                    "R9", f"{who}: the HW rose to {new.hw} with an ISR of {new.members} only"
                )
        if old is None or new.hw != old.hw:
            self._extend(truth, replica, new.hw)
            self._check_members(truth, replica, new)

    def _lossy_leads(self, truth: PartitionTruth, replica: Replica) -> None:
        """It lost its tail in a power loss: it may lead only where nobody else was in the ISR."""
        replica.lossy = False
        if replica.mirror.end >= truth.end:
            return
        others = [b for b in (truth.state.isr if truth.state else ()) if b != replica.broker]
        if others:
            self.broken(
                "R4",
                f"{truth.tp}: broker {replica.broker} lost its tail (LEO {replica.mirror.end}, "
                f"committed {truth.end}), and leads although {others} are in the ISR",
            )
        self.expected_losses += 1
        truth.forget_above(replica.mirror.end)

    def _extend(self, truth: PartitionTruth, replica: Replica, hw: int) -> None:
        """A leader's HW: what lies below it is committed."""
        mirror = replica.mirror
        self._hold(truth, replica, min(hw, truth.end), "R6", "leads, with its HW there")
        if hw <= truth.end or self.violation:
            return
        at = mirror.index_from(truth.end)
        new = [b for b in mirror.batches[at:] if b.last < hw]
        reached = new[-1].last + 1 if new else truth.end
        if reached != hw and mirror.start < hw:
            self.broken(
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
            if broker != replica.broker:
                self._hold(
                    truth,
                    self._replica(truth, broker),
                    min(new.hw, truth.end),
                    "R1",
                    f"is in the ISR, and the HW of leader {replica.broker} is {new.hw}",
                )
        if new.leader_epoch != state.leader_epoch:
            return
        for member_id in (*new.members, *(new.pending or ())):
            member = self._replica(truth, member_id)
            if member.mirror.end < new.hw and not member.lossy:
                self.broken(
                    "R3",
                    f"{truth.tp}: {member_id}, of the maximal ISR of {replica.broker}, has LEO "
                    f"{member.mirror.end}, below HW {new.hw}",
                )

    # -- what clients say -----------------------------------------------------------------------

    def acknowledged(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        """R4: an acks=all record was acknowledged at this offset."""
        self._in_committed(tp, offset, value, "R4", "was acknowledged (acks=all)")

    def consumed(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        """R6: a consumer was given this record."""
        self._in_committed(tp, offset, value, "R6", "was read by a consumer")

    def _in_committed(
        self, tp: TopicPartition, offset: int, value: bytes, rule: str, what: str
    ) -> None:
        truth = self.partitions.get(tp)
        if truth is None or truth.unclean:
            return
        self.checks += 1
        batch = truth.at(offset)
        if batch is None or value not in batch.records:
            self.broken(
                rule,
                f"{tp}: {value.decode(errors='replace')} {what} at {offset}, where the committed "
                f"log (up to {truth.end}) holds {batch or 'nothing'}",
            )

    # -- comparing ------------------------------------------------------------------------------

    def _hold(
        self, truth: PartitionTruth, replica: Replica, upto: int, rule: str, why: str
    ) -> None:
        """The replica must hold the committed log up to `upto`, from its log start on."""
        if replica.lossy:
            return
        mirror = replica.mirror
        if replica.matched >= upto:
            return
        position = max(replica.matched, mirror.start)
        mine = mirror.index_from(position)
        theirs = max(bisect_right(truth.bases, position) - 1, 0)
        if truth.committed and truth.committed[theirs].last < position:
            theirs += 1
        while position < upto:
            want = truth.committed[theirs] if theirs < len(truth.committed) else None
            have = mirror.batches[mine] if mine < len(mirror.batches) else None
            if want is None:
                self.broken(
                    rule,
                    f"{truth.tp}: broker {replica.broker} {why}, up to {upto}, but only "
                    f"{truth.end} was ever committed",
                )
                return
            if have is None or not have.same(want):
                self.broken(
                    rule,
                    f"{truth.tp}: broker {replica.broker} {why}; at {position} it holds "
                    f"{have or 'nothing'} (LEO {mirror.end}), committed is {want}",
                )
                return
            position = want.last + 1
            mine += 1
            theirs += 1
        replica.matched = position
