"""The changes of topics that clients, or faults in their place, have requested: the checks allow
no others."""

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
    """Draws and notes the offset at which a log shall begin from now on, often its end; None if all
    of it is deleted already."""
    first = deleted[tp]
    if end <= first:
        return None
    deleted[tp] = end if random.random() < 0.4 else random.randint(first, end)
    return deleted[tp]


@dataclass(slots=True)
class Requested:
    """The requests so far.  Each is noted before it is sent, so that a lost answer makes no
    difference; only new partitions are noted when they are acknowledged."""

    deletions: defaultdict[TopicPartition, int] = field(default_factory=lambda: defaultdict(int))
    """The offset of DeleteRecords, below which records may be gone."""
    moves: dict[TopicPartition, set[tuple[int, ...]]] = field(default_factory=dict)
    """The sets of replicas to which a partition may be assigned."""
    cancelled: set[TopicPartition] = field(default_factory=set)
    """Partitions of which a move may have been cancelled."""
    partitions: Counter[str] = field(default_factory=Counter)
    """Topic -> the highest number of partitions that was acknowledged."""
    giving_up: set[str] = field(default_factory=set)
    """The members of a consumer group that keep partitions which they are to give up."""

    def move(self, tp: TopicPartition, assigned: tuple[int, ...], target: list[int] | None) -> None:
        """Notes a move of a partition from its assigned replicas; without a target, that a move is
        cancelled."""
        known = self.moves.setdefault(tp, set())
        known.add(tuple(assigned))
        if target is None:
            self.cancelled.add(tp)
        else:
            known.add(tuple(target))

    def grown(self, topic: str, partitions: int) -> None:
        """Notes that a topic's new number of partitions was acknowledged."""
        self.partitions[topic] = max(self.partitions[topic], partitions)
