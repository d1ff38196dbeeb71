"""One partition of a coordinator's topic, and which names (groups, producers) belong to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from highwater.broker.coordinator.partition_loading import Loaded
    from highwater.broker.replica.partition import Partition

R = TypeVar("R")


def java_hash(text: str) -> int:
    """String.hashCode of Java: over UTF-16 code units, in 32 bits with a sign."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for i in range(0, len(units), 2):
        value = (31 * value + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(name: str, partitions: int) -> int:
    """The partition of a coordinator's topic that a group, or a transactional id, belongs to."""
    value = java_hash(name)
    return 0 if value == -(1 << 31) else abs(value) % partitions


class Shard(ABC, Generic[R]):
    """What one partition says, in one term of this broker as its leader.  R: a record's type."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.generation = partition.generation
        """Of the term."""
        self.loaded = False
        self.closed = False

    @property
    def leads(self) -> bool:
        """Whether the term is not over."""
        partition = self.partition
        return not self.closed and partition.is_leader and partition.generation == self.generation

    @property
    @abstractmethod
    def names(self) -> int:
        """How many it knows."""

    @abstractmethod
    def replay(self, record: R, offset: int) -> None:
        """Applies a committed record: the only way in which what is stored changes."""

    @abstractmethod
    def undecided(self, loaded: Loaded[R]) -> None:
        """Takes what a load found of transactions that have no marker yet."""

    @abstractmethod
    def forget(self) -> None:
        """What was loaded so far is thrown away."""
