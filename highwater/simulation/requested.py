"""What clients asked of topics, or faults in their place: the checks hold the topics to that."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from highwater.kafka.types import TopicPartition

if TYPE_CHECKING:
    from highwater.world.chance import Random


def beginning(
    deleted: dict[TopicPartition, int], tp: TopicPartition, end: int, random: Random
) -> int | None:
    """Draws and notes where a log is to begin from now on, often at its end; None where all of it
    is deleted."""
    first = deleted[tp]
    if end <= first:
        return None
    deleted[tp] = end if random.random() < 0.4 else random.randint(first, end)
    return deleted[tp]


@dataclass(slots=True)
class Requested:
    """Each is noted before it is asked for, so that a lost answer makes no difference; partitions
    once they are acknowledged."""

    deletions: defaultdict[TopicPartition, int] = field(default_factory=lambda: defaultdict(int))
    """DeleteRecords: records below may be gone."""
    moves: dict[TopicPartition, set[tuple[int, ...]]] = field(default_factory=dict)
    """Replicas that a partition may be on."""
    cancelled: set[TopicPartition] = field(default_factory=set)
    """Partitions of which a move may have been cancelled."""
    partitions: Counter[str] = field(default_factory=Counter)
    """The most partitions that were acknowledged, by topic."""

    def move(self, tp: TopicPartition, assigned: tuple[int, ...], target: list[int] | None) -> None:
        """A move of a partition from those replicas; no target cancels one."""
        known = self.moves.setdefault(tp, set())
        known.add(tuple(assigned))
        if target is None:
            self.cancelled.add(tp)
        else:
            known.add(tuple(target))

    def grown(self, topic: str, partitions: int) -> None:
        """So many were acknowledged."""
        self.partitions[topic] = max(self.partitions[topic], partitions)
