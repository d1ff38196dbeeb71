"""R1-R15 of the cluster's own state, checked from outside after every step that changes it.

Theory of operation.  The checker trusts no broker.  It reads a replica's content from the machine's
disk (`mirror`), the agreed state from ZooKeeper's tree, and from the broker's objects only what
exists nowhere else: role, high watermark, ISR as the leader sees it.  At its centre, for each
partition, is the **committed log**: the batches below the highest high watermark that any leader
ever had.  A leader's HW that moves extends it, and from then on every replica is held to it:

* R1, R5: a leader's HW that moves finds the same batches on every member of ZooKeeper's ISR;
  the part of any replica below its own HW is the committed log.
* R4, R6, R7: a replica that is elected (cleanly) holds all of it; no replica cuts a part of it
  away; every record that is acknowledged (acks=all) or read is in it.
* R3, R9: a member of the maximal ISR holds all of it, a new member also the leader's epoch start.

A check costs only as much as has changed, however large the logs and however many the partitions:
the disks list the files that were written (`SimDisk.touched`), the brokers' tables list the
partitions with news (`change_hooks`), and each replica remembers how far it was found equal.  The
first broken rule is kept in `violation`, and the run ends there.

This module only finds out where to look.  The rules are in `zookeeper_rules` (the agreed state) and
`broker_rules` (replicas and their changes), and write into `findings`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from highwater.kafka.types import TopicPartition
from highwater.simulation.rules.agreed_log import View
from highwater.simulation.rules.answers import Answers
from highwater.simulation.rules.broker_rules import BrokerRules
from highwater.simulation.rules.change_hooks import WatchedPartitions
from highwater.simulation.rules.findings import Book, Violation
from highwater.simulation.rules.zookeeper_rules import ZooKeeperRules

if TYPE_CHECKING:
    from highwater.broker.log.cleaner.cleaner import LogCleaner
    from highwater.broker.log.cleaner.plan import Candidate
    from highwater.broker.metadata.metadata_cache import MetadataCache
    from highwater.broker.metadata.metadata_update import MetadataUpdate
    from highwater.broker.replica.partition import Partition
    from highwater.broker.replica.replica_manager import ReplicaManager
    from highwater.simulation.last_events import Trace
    from highwater.simulation.rules.agreed_log import PartitionTruth, Replica
    from highwater.simulation.rules.change_hooks import News
    from highwater.world.sim.disk import SimDisk
    from highwater.world.sim.zookeeper_server import Ensemble

log = logging.getLogger(__name__)

__all__ = ["Rules", "Violation"]


class Rules(Book):
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
    ) -> None:
        super().__init__(now, trace, disks, data_folder)
        self.zookeeper_changed = ZooKeeperRules(self, ensemble).changed
        self._broker_rules = BrokerRules(self, min_isr)
        self.answers = Answers(self)
        """The rules for brokers' answers to clients."""

    # -- a broker's lives -----------------------------------------------------------------------

    def broker_started(
        self, broker: int, checkpoint: dict[TopicPartition, int], *, excused: bool = False
    ) -> None:
        """To be called before a broker's life begins, with the HW checkpoint on its disk;
        `excused`: the life before could not write the checkpoint, or lost it."""
        self._broker_rules.checkpoints[broker] = checkpoint
        if not (excused or self.more_folders):
            self._broker_rules.check_written(self.partitions.values(), broker)
        self.started[broker] = self.now()
        self.tables.pop(broker, None)
        for truth in self.partitions.values():
            if broker in truth.replicas:
                truth.replicas[broker].seen(None, self.now())
                truth.replicas[broker].doubts = True

    def broker_stopped(self, broker: int) -> None:
        self.tables.pop(broker, None)
        for truth in self.partitions.values():
            replica = truth.replicas.get(broker)
            if replica is not None:
                replica.seen(None, self.now())

    def power_lost(self, broker: int, *, excused: bool) -> None:
        """A broker's machine has lost power.  `excused` is False if it flushed every batch that
        counts; unflushed batches of a replica outside the ISR do not count, even if others have
        committed them.
        """
        for truth in self.partitions.values():
            if broker in truth.replicas:
                truth.replicas[broker].lossy = excused or not truth.counts(broker)

    def watch_cleaner(self, cleaner: LogCleaner) -> None:
        """Notes when a cleaner of this broker does not know yet that a replica is away.

        R7: nothing is removed for the sake of what was never committed, or is not decided.
        """
        asked, clean = cleaner.all_in_sync, cleaner.clean

        async def cleaned(candidate: Candidate, *more: int) -> bool:
            log = candidate.log
            unstable = log.first_unstable_offset
            sure = log.high_watermark if unstable is None else min(unstable, log.high_watermark)
            if candidate.end > max(sure, candidate.first_dirty):
                what = f"cleaned by what lies up to {candidate.end}, and {sure} is sure"
                self.broken("R7", f"{log.tp}: the log of {log.dir} is {what}")
            return await clean(candidate, *more)

        private: Any = cleaner
        private.clean = cleaned

        def answered(tp: TopicPartition) -> bool:
            whole, truth = asked(tp), self.partitions.get(tp)
            known = truth.state if truth is not None else None
            if whole and truth and known and not set(truth.assigned) <= set(known.isr):
                truth.unaware.append(self.now())
            return whole

        cleaner.all_in_sync = answered

    def watch_metadata(self, broker: int, metadata: MetadataCache) -> None:
        """R12: after each change, compares what is cached for answers with a fresh computation."""
        private: Any = metadata
        apply = metadata.apply

        def applied(update: MetadataUpdate, now_ms: int | None) -> Any:
            deleted = yield from apply(update, now_ms)
            kept = private._encoded, private._answers
            told = {(v, on): metadata.answer(v, on, None) for v, on in kept[0]}
            private._encoded, private._answers = {}, {}
            for (version, listener), answer in told.items():
                if answer != metadata.answer(version, listener, None):
                    what = f"would answer Metadata v{version} from what is no longer so"
                    self.broken("R12", f"broker-{broker} {what}")
            private._encoded, private._answers = kept
            return deleted

        private.apply = applied

    def watch(self, broker: int, replicas: ReplicaManager) -> Callable[[], None]:
        """Watches a broker from its first step on; gives the function to call after each step."""
        assert not replicas.partitions, "the broker has begun already"
        news = self.news[broker] = {}
        partitions = replicas.partitions = WatchedPartitions(news)
        self.tables[broker] = partitions
        disk = self._disks[broker]

        def step() -> None:
            try:
                begun = self.disk_changed(broker) if disk.touched else []
                if news:
                    self._look(broker, partitions, news)
                for truth, replica in begun:
                    self._broker_rules.begins(truth, replica)
            except Exception as e:  # a mutant may put values of wrong types into the state
                log.exception("the rules cannot read broker %d", broker)
                self.broken("R12", f"the rules cannot read broker-{broker}: {e!r}")

        return step

    # -- what has changed -----------------------------------------------------------------------

    def _look(self, broker: int, partitions: dict[TopicPartition, Partition], news: News) -> None:
        """Looks at the broker's present view of its partitions."""
        for tp in list(news):
            partition = partitions.get(tp)
            truth = self.partitions.get(tp)
            if partition is None:
                del news[tp]
                self._taken_away(broker, tp, truth)
                continue
            if truth is None:
                continue  # it stays in the news until ZooKeeper's tree has its topic
            del news[tp]
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
            replica = truth.replicas.get(broker) or self.replica(truth, broker)
            if view != replica.view:
                old = replica.view
                replica.seen(view, self.now())
                self._broker_rules.view_changed(truth, replica, old, view, partition)

    def _taken_away(self, broker: int, tp: TopicPartition, truth: PartitionTruth | None) -> None:
        """Forgets a replica that a broker has dropped: its next view belongs to a new replica.  A
        controller that takes over announces a topic that is being deleted, so the replica is
        created again, empty.
        """
        self._broker_rules.checkpoints.get(broker, {}).pop(tp, None)
        if truth is not None and broker in truth.replicas:
            truth.replicas[broker].seen(None, self.now())

    def disk_changed(self, broker: int) -> list[tuple[PartitionTruth, Replica]]:
        """Looks only at a machine's disk, whether a broker runs there or not; returns the replicas
        whose log has lost its beginning."""
        disk = self._disks[broker]
        begun: list[tuple[PartitionTruth, Replica]] = []
        touched, disk.touched = disk.touched, {}
        if "" in touched:
            for truth in self.partitions.values():
                replica = truth.replicas.get(broker)
                if replica is not None:
                    gone = replica.mirror.refresh()
                    if gone:
                        self._broker_rules.cut(truth, replica, gone)
            return begun
        for folder, names in touched.items():
            found = self.replica_in(broker, folder)
            if found is not None:
                truth, replica = found
                start, before = replica.mirror.start, replica.mirror.batches
                gone = replica.mirror.refresh(names)
                if replica.mirror.start > start:
                    self.happened("a log's beginning goes", truth.tp)
                    begin = replica.mirror.start
                    begun.append(found)
                    self.log_begins(truth, replica, [b for b in before if b.last < begin])
                if gone:
                    self._broker_rules.cut(truth, replica, gone)
        return begun

    # -- what clients say -----------------------------------------------------------------------

    def acknowledged(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        """R4: an acks=all record has been acknowledged at this offset."""
        self._in_committed(tp, offset, value, "R4", "was acknowledged (acks=all)")

    def consumed(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        """R6: a consumer has read this record."""
        self._in_committed(tp, offset, value, "R6", "was read by a consumer")

    def losses_behind(self, tp: TopicPartition, offset: int, value: bytes) -> int:
        """How many of the known losses cannot have taken this record: all, if it is committed.  A
        record that is not may be one that a replaced leader still shows."""
        truth = self.partitions.get(tp)
        batch = truth.at(offset) if truth is not None else None
        known = truth is not None and batch is not None and value in batch.records
        return len(truth.given_up) if truth is not None and known else 0

    def _in_committed(
        self, tp: TopicPartition, offset: int, value: bytes, rule: str, what: str
    ) -> None:
        truth = self.partitions.get(tp)
        if truth is None or truth.compacted or truth.excuses(offset):
            return
        self.checks += 1
        batch = truth.at(offset)
        if batch is None or value not in batch.records:
            self.broken(
                rule,
                f"{tp}: {value.decode(errors='replace')} {what} at {offset}, where the committed "
                f"log (up to {truth.end}) holds {batch or 'nothing'}",
            )
