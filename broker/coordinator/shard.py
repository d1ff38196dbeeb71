"""One partition of a coordinator's topic, and the names (groups, producers) that belong to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from highwater.broker.coordinator.partition_loading import Loaded
    from highwater.broker.replica.partition import Partition


class Appended(Protocol):
    """An entry of this shard that stands in the log and is not known to be committed."""

    @property
    def end_offset(self) -> int:
        """The offset that the HW must reach to have passed the entry."""


R = TypeVar("R")
P = TypeVar("P", bound=Appended)
N = TypeVar("N")
W = TypeVar("W")


@dataclass(slots=True)
class PendingWrite(Generic[N, W]):
    """A write that was appended.  `settled`: its `then` was called, perhaps with a time-out."""

    named: N
    """The group or the transaction."""
    write: W
    end_offset: int
    settled: bool = False


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


class Shard(ABC, Generic[R, P]):
    """The contents of one partition, in one term of this broker as its leader.

    R is a record's type.  An appended write waits in `pending`, in the order of offsets, until the
    HW has passed it.  Then it is replayed, and only then is a client answered.  A write that waited
    too long is answered with an error, and is replayed all the same if it is committed later: the
    log decides.
    """

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.generation = partition.generation
        """`Partition.generation` as the term began: it moves on when this broker ceases to lead."""
        self.pending: deque[P] = deque()
        self.loaded = False
        self.closed = False

    @property
    def leads(self) -> bool:
        """Whether the term still lasts."""
        partition = self.partition
        return not self.closed and partition.is_leader and partition.generation == self.generation

    @property
    @abstractmethod
    def names(self) -> int:
        """The number of names in the shard."""

    @abstractmethod
    def replay(self, record: R, offset: int) -> None:
        """Applies a committed record: stored state changes only here."""

    def take_committed(self) -> P | None:
        """Replays the oldest entry if the HW has passed it, and returns it."""
        if not self.pending or self.pending[0].end_offset > self.partition.high_watermark:
            return None
        done = self.pending.popleft()
        self.replay_appended(done)
        return done

    @abstractmethod
    def replay_appended(self, done: P) -> None:
        """Applies a committed entry."""

    @abstractmethod
    def undecided(self, loaded: Loaded[R]) -> None:
        """Takes the records of transactions that had no marker at the end of a load."""

    @abstractmethod
    def forget(self) -> None:
        """Throws away what was loaded so far."""
