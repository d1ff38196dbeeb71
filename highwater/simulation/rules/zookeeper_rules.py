"""The rules of the agreed state: partition states, ISRs, elections, controller epochs.

R2: the ISR is within the replicas and holds the leader.  R4: a cleanly elected leader was in the
ISR and holds all committed records.  R1 and R9 for replicas that join the ISR; R7 and R10 for
epochs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from highwater.kafka import znodes
from highwater.kafka.types import TopicPartition
from highwater.simulation.rules import control_rules

if TYPE_CHECKING:
    from highwater.kafka.replica_assignment import ReplicaAssignment
    from highwater.simulation.rules.agreed_log import PartitionTruth, Replica
    from highwater.simulation.rules.findings import Book
    from highwater.world.sim.zookeeper_server import Ensemble


class ZooKeeperRules:
    """Its methods are called for each change of ZooKeeper's tree."""

    def __init__(self, book: Book, ensemble: Ensemble) -> None:
        self._book = book
        self._ensemble = ensemble
        self._controller_epoch = 0
        self._controller = ""
        """The process that registered itself last."""
        self._ids: dict[str, bytes] = {}
        self._given: set[bytes] = set()
        """The ids of all topics so far, deleted ones included."""

    def changed(self, path: str, who: str) -> None:
        parts = path.split("/")
        node = self._ensemble.nodes.get(path)
        if path == "/controller_epoch" and node is not None:
            self._controller_moved(int(node.data))
        elif path == "/controller":
            self._book.lateness.disturb()
            owner = znodes.decode_controller(node.data).broker_id if node else None
            self._book.trace.add("zookeeper", f"/controller is {owner}")
            self._controller = who if node else self._controller
        elif path == znodes.HANDLED_BROKER_EPOCHS and node is not None and node.data:
            if who != self._controller:
                self._book.broken(
                    "R10", f"{who} wrote {path}, while the controller was {self._controller}"
                )
        elif len(parts) == 4 and path.startswith("/brokers/topics/"):
            self._topic_changed(parts[3], node.data if node else None)
        elif len(parts) == 7 and path.startswith("/brokers/topics/") and parts[6] == "state":
            tp = TopicPartition(parts[3], int(parts[5]))
            if node is not None:
                state = znodes.decode_partition_state(tp, node.data, node.version)
                self._state_changed(tp, state, who)
        elif len(parts) == 4 and path.startswith("/admin/delete_topics/") and node is not None:
            self._book.deleting.add(parts[3])
        elif len(parts) == 4 and path.startswith("/config/topics/") and node is not None:
            if b"retention." in node.data.replace(b"delete.retention.", b""):
                self._book.shortened.add(parts[3])
        elif len(parts) == 4 and path.startswith("/brokers/ids/"):
            self._book.lateness.disturb()
            self._book.trace.add(
                "zookeeper", f"broker {parts[3]} {'is there' if node else 'is gone'}"
            )

    def _controller_moved(self, epoch: int) -> None:
        if self._controller_epoch and epoch != self._controller_epoch + 1:
            self._book.broken(
                "R10", f"the controller epoch went from {self._controller_epoch} to {epoch}"
            )
        if epoch > 1:
            self._book.seen["controller_moves"] += 1
        self._controller_epoch = epoch

    def _topic_changed(self, topic: str, data: bytes | None) -> None:
        if data is None:
            for tp in [tp for tp in self._book.partitions if tp.topic == topic]:
                del self._book.partitions[tp]
                self._book.happened("its topic is gone", tp)
            self._book.deleting.discard(topic)
            self._ids.pop(topic, None)
            self._book.trace.add("zookeeper", f"topic {topic} is gone")
            return
        found = znodes.decode_topic(topic, data)
        self._identified(topic, found.topic_id)
        for index, assignment in found.partitions.items():
            tp = TopicPartition(topic, index)
            truth = self._book.partitions.get(tp)
            if truth is None:
                truth = self._book.begin(tp)
            before, truth.assigned = truth.assigned, tuple(int(b) for b in assignment.replicas)
            if before != truth.assigned:
                truth.changed = self._book.now()
            self._moving(truth, before, assignment)
            if before != truth.assigned:
                self._book.happened("other replicas" if before else "its topic is made", tp)
            if truth.state is not None:
                self._check_isr(truth)

    def _identified(self, topic: str, topic_id: bytes | None) -> None:
        """R15: a topic's id is unique, and never changes."""
        before = self._ids.get(topic)
        if topic_id is None or topic_id == before:
            return
        if before is not None or topic_id in self._given:
            of = "none, and another topic had it" if before is None else before.hex()
            self._book.broken("R15", f"{topic} gets the id {topic_id.hex()}, and had {of}")
        self._ids[topic] = topic_id
        self._given.add(topic_id)
        self._book.checks += 1

    def _moving(
        self, truth: PartitionTruth, before: tuple[int, ...], now: ReplicaAssignment
    ) -> None:
        """R2: a move to other replicas ends when all of them have been in the ISR, or when it is
        cancelled; until then the original replicas stay, even if the target changes."""
        wrong = _wrong_move(truth, before, now)
        if wrong is not None:
            isr = truth.state.isr if truth.state is not None else ()
            self._book.broken(
                "R2", f"{truth.tp}: {wrong}, from {before} to {now}, the ISR is {isr}"
            )
        ended = truth.target is not None and not now.is_being_reassigned
        if truth.target is not None or now.is_being_reassigned:
            self._book.happened("a move ends" if ended else "a move", truth.tp)
        truth.target = now.target if now.is_being_reassigned else None
        truth.origin = frozenset(now.origin)
        truth.target_in_isr = truth.state is not None and set(now.target) <= set(truth.state.isr)

    def _state_changed(self, tp: TopicPartition, state: znodes.PartitionState, who: str) -> None:
        truth = self._book.partitions.get(tp)
        if truth is None:
            return  # the topic was deleted
        old = truth.state
        gone = [b for b in (old.isr if old is not None else ()) if b not in state.isr]
        stays = truth.target is None and tp.topic not in self._book.deleting
        if stays and any(b in truth.assigned for b in gone):
            self._book.lateness.shrunk(tp, who)
        truth.state, truth.changed = state, self._book.now()
        self._book.checks += 1
        self._witness(tp, state)
        self._book.trace.add(
            "zookeeper",
            f"{tp}: leader {state.leader}, epoch {state.leader_epoch}, ISR {list(state.isr)}, "
            f"controller epoch {state.controller_epoch}, version {state.zk_version}; by {who}",
        )
        self._check_isr(truth)
        if truth.target is not None and set(truth.target) <= set(state.isr):
            truth.target_in_isr = True
        if old is None:
            return
        if state.leader_epoch < old.leader_epoch:
            self._book.broken("R7", f"{tp}: leader epoch fell from {old.leader_epoch} to {state}")
        if state.controller_epoch < old.controller_epoch:
            self._book.broken(
                "R10", f"{tp}: controller epoch fell from {old.controller_epoch} to {state}"
            )
        zombie = control_rules.zombie_write(old, state, self._controller_epoch)
        if zombie is not None:
            self._book.broken("R10", f"{tp}: {zombie}")
        if state.leader != old.leader:
            if state.leader_epoch == old.leader_epoch:
                self._book.broken("R7", f"{tp}: a new leader in the same epoch: {old} -> {state}")
            self._elected(truth, old, state, who)
        truth.isr_changed(tuple(old.isr), tuple(state.isr), self._book.now())
        added = [b for b in state.isr if b not in old.isr]
        if added and state.leader_epoch > old.leader_epoch and state.leader in old.isr:
            self._book.broken("R2", f"{tp}: a controller added {added} to the ISR {old.isr}")
        if added and state.leader == old.leader and state.leader_epoch == old.leader_epoch:
            self._book.seen["isr_expands"] += 1
            self._book.happened("the ISR grows", tp)
            for broker in added:
                self._joined(truth, broker)
        if any(b not in state.isr for b in old.isr):
            self._book.seen["isr_shrinks"] += 1
            self._book.happened("the ISR shrinks", tp)

    def _witness(self, tp: TopicPartition, state: znodes.PartitionState) -> None:
        now_ns = int(self._book.now() * 1e9)
        self._book.witnessed.append(
            {
                "t_ns": now_ns,
                "written_ns": now_ns,
                "what": "state",
                "topic": tp.topic,
                "partition": tp.partition,
                "leader": state.leader,
                "leader_epoch": state.leader_epoch,
            }
        )

    def _check_isr(self, truth: PartitionTruth) -> None:
        state = truth.state
        assert state is not None
        if state.leader >= 0 and state.leader not in state.isr:
            self._book.broken("R2", f"{truth.tp}: the leader is not in the ISR: {state}")
        if not set(state.isr) <= set(truth.assigned):
            self._book.broken(
                "R2", f"{truth.tp}: ISR {state.isr} is not within the replicas {truth.assigned}"
            )

    def _elected(
        self,
        truth: PartitionTruth,
        old: znodes.PartitionState,
        new: znodes.PartitionState,
        who: str,
    ) -> None:
        self._book.happened("an election" if new.leader >= 0 else "no leader", truth.tp)
        if new.leader < 0:
            return
        if old.leader >= 0:
            self._book.seen["leader_changes"] += 1
            before = truth.replicas.get(old.leader)
            if before is not None and before.mirror.end > truth.end:
                self._book.seen["hw_below_leo_at_election"] += 1
        replica = self._book.replica(truth, new.leader)
        if new.leader not in old.isr:
            if truth.tp.topic not in self._book.unclean:
                self._book.broken(
                    "R4", f"{truth.tp}: {new.leader} was elected, and was not in {old}"
                )
            online = self._book.online(who, truth.tp, tuple(old.isr))
            if online:
                self._book.broken(
                    "R4",
                    f"{truth.tp}: {who} elected {new.leader}, and took {online} of the ISR "
                    f"{list(old.isr)} for online",
                )
            self._book.seen["unclean_elections"] += 1
            truth.unclean_epoch = new.leader_epoch
            truth.forget_above(truth.parts_from(replica.mirror))
            return
        self._book.hold(truth, replica, truth.known_end, "R4", "was elected leader")

    def _joined(self, truth: PartitionTruth, broker: int) -> None:
        """Checks a follower that its leader has added to the ISR."""
        replica = self._book.replica(truth, broker)
        if replica.view is not None:
            replica.lossy = False  # by now it must have fetched again what a power loss took
        # else it asked before it lost power; what its bounce undoes before it can lead
        self._book.hold(truth, replica, truth.known_end, "R1", "joined the ISR")
        leader = truth.replicas.get(truth.state.leader) if truth.state else None
        if leader is None or leader.view is None or not leader.view.leads:
            return
        start = _epoch_start(leader)
        if start is not None and replica.mirror.end < start and not replica.lossy:
            self._book.broken(
                "R9",
                f"{truth.tp}: {broker} joined the ISR with LEO {replica.mirror.end}, below the "
                f"start {start} of its leader's epoch {leader.view.leader_epoch}",
            )


def _wrong_move(
    truth: PartitionTruth, before: tuple[int, ...], now: ReplicaAssignment
) -> str | None:
    """The mistake in a change of the assigned replicas, or None."""
    replicas, origin = frozenset(now.replicas), truth.origin
    if not before:
        return None
    if now.is_being_reassigned:
        return (
            None if frozenset(now.origin) == origin else f"a move from {sorted(origin)} is another"
        )
    if truth.target is not None and replicas == frozenset(truth.target):
        return None if truth.target_in_isr else f"the move to {truth.target} has ended"
    return (
        None if replicas == origin else f"replicas {sorted(origin)} were exchanged without a move"
    )


def _epoch_start(leader: Replica) -> int | None:
    """The start of the leader's epoch, by the batches on its disk."""
    assert leader.view is not None
    for batch in reversed(leader.mirror.batches):
        if batch.epoch < leader.view.leader_epoch:
            return batch.last + 1
    return None
