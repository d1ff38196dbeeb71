"""The options of a run: its length, its load, its workloads, and its faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a run, beside its seed."""

    seconds: float = 30.0
    pace: float = 1.0
    """The clients' load: 1 is some 85 operations a virtual second, and most of the cost."""
    faults: bool = True
    power_loss: bool = False
    """More of the faults are power losses."""
    flush: bool = False
    """log.flush.interval.messages=1 in every seed, and more power losses."""
    compacted: bool = False
    """A compacted topic as well, cleaned on every replica (`compacted`)."""
    trimmed: bool = False
    """A topic whose beginning is deleted, and requests of several partitions (`trimmed`)."""
    retained: bool = False
    """Topics with retention by size and by time, and lookups by time (`retained`)."""
    admin: bool = False
    """Administrators at work, and a topic made again under its name (`administrators`)."""
    transactions: bool = False
    """Transactional producers, hijacked now and then, and a read_committed consumer."""
    groups: bool = False
    """A consumer group whose members come and go."""
    unclean: bool = False
    """The topic that may lose records allows unclean elections."""
    cold_reads: bool = False
    """A third of the bytes that readers ask for is only on the disk."""
    stalls: bool = False
    """The machine stands still now and then: brokers, ZooKeeper and clients at once."""
    joints: bool = False
    """Events that are staged to meet (`joints`)."""
    static_members: bool = False
    """A group of static members; offsets and groups that are deleted (`static_members`,
    `filing`)."""
    log_dirs: bool = False
    """Two log directories a broker: replicas move, and one fails (`directory_faults`)."""
    disk_errors: bool = False
    """More disks that are full; single calls that fail; power lost in an fsync (`disk_faults`)."""
    sql: bool = True
    """Judge the history by the SQL of the checks, too."""
    vary: tuple[str, ...] = ()
    """Variations of the schedule, one after the other (`variations`)."""
    only: tuple[int, ...] | None = None
    """Only the faults at these positions of the schedule (left by shrinking)."""
    coverage: bool = False
    """Note what the seed reaches of the product (`coverage`)."""
    trace: Callable[[str], None] | None = None

    @property
    def reads_epochs(self) -> bool:
        """Whether a consumer names the epoch of its last record (`epoch_reader`)."""
        return self.unclean and self.power_loss
