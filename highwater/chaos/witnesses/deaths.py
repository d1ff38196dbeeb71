"""Deaths of leaders with their HW below their LEO: the moments that test replication.

A leader that dies holds records that no follower has.  The next leader's epoch then starts below
the dead leader's LEO, and the dead one must truncate when it comes back (KIP-101).  `died` notes
the LEO on disk of every partition that the broker led; `settle` looks up the start of the next
leader's epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from highwater.chaos.witnesses import disk_reader as disk
from highwater.cluster.faults.witness import PartitionState
from highwater.kafka.types import TopicPartition


@dataclass(slots=True)
class Death:
    broker: int
    tp: TopicPartition
    leader_epoch: int
    log_end_offset: int
    next_start: int | None = None
    """The start of the next leader's epoch; None while there is no next leader."""

    @property
    def lost(self) -> int:
        """Records on the dead leader's disk that the next leader does not have."""
        return 0 if self.next_start is None else max(0, self.log_end_offset - self.next_start)

    @property
    def below(self) -> bool:
        return self.lost > 0


class DeathWitness:
    def __init__(self, data_dirs: Callable[[int], list[Path]]) -> None:
        self._data_dirs = data_dirs
        self.deaths: list[Death] = []

    def died(self, broker: int, led: dict[TopicPartition, PartitionState]) -> None:
        """Call it when the broker is dead and before it is restarted."""
        for tp, state in sorted(led.items()):
            folder = disk.find_partition(self._data_dirs(broker), tp)
            if folder is not None:
                leo = disk.log_end_offset(folder)
                self.deaths.append(Death(broker, tp, state.leader_epoch, leo))

    def settle(self, partitions: dict[TopicPartition, PartitionState]) -> None:
        """Looks up the start of the first later epoch, on the disk of the present leader."""
        for death in self.deaths:
            state = partitions.get(death.tp)
            if death.next_start is not None or state is None or state.leader < 0:
                continue
            if state.leader_epoch <= death.leader_epoch or state.leader == death.broker:
                continue
            folder = disk.find_partition(self._data_dirs(state.leader), death.tp)
            entries = disk.epoch_entries(folder) if folder is not None else []
            starts = [start for epoch, start in entries if epoch > death.leader_epoch]
            if starts:
                death.next_start = min(starts)

    @property
    def hw_below_leo(self) -> int:
        return sum(death.below for death in self.deaths)
