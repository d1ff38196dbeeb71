"""The checker's knowledge of a run, and its record of broken rules."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from highwater.kafka.types import TopicPartition
from highwater.simulation.rules.agreed_log import PartitionTruth, Replica
from highwater.simulation.rules.lateness import Lateness
from highwater.simulation.rules.mirror import Batch, ReplicaMirror

if TYPE_CHECKING:
    from highwater.broker.replica.partition import Partition
    from highwater.simulation.last_events import Trace
    from highwater.simulation.rules.change_hooks import News
    from highwater.world.sim.disk import SimDisk


class Violation(NamedTuple):
    """The first broken rule of a run."""

    rule: str
    what: str
    time: float

    def __str__(self) -> str:
        return f"{self.rule} broken at {self.time:.4f} s: {self.what}"


class Book:
    """The state that the rules of one run share.  `disks`: broker id -> disk; `data_folder` is the
    log directory on each.
    """

    def __init__(
        self,
        now: Callable[[], float],
        trace: Trace,
        disks: dict[int, SimDisk],
        data_folder: str,
    ) -> None:
        self.now = now
        self.trace = trace
        self._disks = disks
        self._folder = data_folder
        self.more_folders: tuple[str, ...] = ()
        """More log directories to which replicas may move."""
        self._by_folder: dict[int, dict[str, TopicPartition]] = {broker: {} for broker in disks}
        self.partitions: dict[TopicPartition, PartitionTruth] = {}
        self.news: dict[int, News] = {broker: {} for broker in disks}
        """Broker -> the partitions of which its view may have changed since the last look."""
        self.tables: dict[int, Mapping[TopicPartition, Partition]] = {}
        """Broker -> its own table of partitions, while it runs."""
        self.violation: Violation | None = None
        self.on_violation: Callable[[], None] = lambda: None
        self.happened: Callable[[str, TopicPartition], None] = lambda *_: None
        """Is called with each event of a partition; serves the coverage, and no rule."""
        self.online: Callable[[str, TopicPartition, tuple[int, ...]], list[int]] = lambda *_: []
        """Returns those of some replicas that the controller of a process takes for online."""
        self.log_begins: Callable[[PartitionTruth, Replica, list[Batch]], None] = lambda *_: None
        """Is called for a replica whose log has lost batches at its beginning."""
        self.seen: Counter[str] = Counter()
        self.expected_losses = 0
        self.started: dict[int, float] = {}
        """Broker -> when (s, virtual) it started the last time."""
        self.wall_ms: Callable[[int], int] = lambda broker: 0
        """A broker's wall clock."""
        self.compacted: frozenset[str] = frozenset()
        """Topics whose replicas need not hold the same batches (`compacted`)."""
        self.unclean: frozenset[str] = frozenset()
        """Topics that allow unclean elections (unclean.leader.election.enable)."""
        self.shortened: set[str] = set()
        """Topics whose oldest records may be deleted, by their own retention or DeleteRecords."""
        self.deleting: set[str] = set()
        """Topics that are being deleted: their replicas vanish as a whole."""
        self.lateness = Lateness(self)
        self.checks = 0
        self.compared = 0
        """How many batches of replicas were compared with committed ones."""
        self.witnessed: list[dict[str, Any]] = []
        """Each state of a partition that was written to ZooKeeper's tree, as a line of the table
        `witness` for the SQL checks."""

    def broken(self, rule: str, what: str) -> None:
        if self.violation is None:
            self.violation = Violation(rule, what, self.now())
            self.trace.add("checker", f"{rule}: {what}")
            self.on_violation()

    def begin(self, tp: TopicPartition) -> PartitionTruth:
        """Begins a new partition, and marks what brokers already know of it as news."""
        truth = self.partitions[tp] = PartitionTruth(tp, compacted=tp.topic in self.compacted)
        for news in self.news.values():
            news[tp] = None
        return truth

    def replica(self, truth: PartitionTruth, broker: int) -> Replica:
        found = truth.replicas.get(broker)
        if found is None:
            folders = [f"{folder}/{truth.tp}" for folder in (self._folder, *self.more_folders)]
            mirror = ReplicaMirror(self._disks[broker], *folders)
            found = truth.replicas[broker] = Replica(broker, mirror)
            self._by_folder[broker].update(dict.fromkeys(folders, truth.tp))
            mirror.refresh()
        return found

    def replica_in(self, broker: int, folder: str) -> tuple[PartitionTruth, Replica] | None:
        """The replica whose log lies in this folder of the broker's disk."""
        tp = self._by_folder[broker].get(folder)
        truth = self.partitions.get(tp) if tp is not None else None
        replica = truth.replicas.get(broker) if truth is not None else None
        return (truth, replica) if truth is not None and replica is not None else None

    def hold(self, truth: PartitionTruth, replica: Replica, upto: int, rule: str, why: str) -> None:
        """Checks that the replica has the committed log from its log start up to `upto`; for a
        compacted topic only the end is compared."""
        if replica.lossy:
            return
        mirror = replica.mirror
        if mirror.start and truth.tp.topic not in self.shortened:
            self.broken(
                "R5",
                f"{truth.tp}: the log of broker {replica.broker} begins at {mirror.start}, and "
                "nobody deletes from that topic",
            )
        if truth.compacted:
            if mirror.end < upto:
                ends = f"it ends at {mirror.end}, below {upto}"
                self.broken(rule, f"{truth.tp}: broker {replica.broker} {why}; {ends}")
            return
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
            self.compared += 1
            mine += 1
            theirs += 1
        replica.matched = position
