"""The machine's effects, in this order: persist, then send, then answer.

`ReadZk`, `WriteZk`, `ProbeBrokers` and `Pause` are questions: the machine goes on when it gets the
`Answer`.  A step has at most one question, as its last effect.  All other effects are orders.
Effects are never changed; they are not frozen, because that makes a step shorter by a twentieth.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from highwater.kafka.errors import ErrorCode
from highwater.kafka.features import NO_EPOCH, Levels
from highwater.kafka.replica_assignment import ReplicaAssignment
from highwater.kafka.topic_ids import NO_ID
from highwater.kafka.types import (
    LEADER_DURING_DELETE,
    BrokerEpoch,
    BrokerId,
    BrokerInfo,
    LeaderEpoch,
    TopicPartition,
)
from highwater.kafka.znodes import PartitionState
from highwater.world.api import Stat, ZkError, ZkOp

T = TypeVar("T")


# ---- questions


class Get(NamedTuple):
    """Answer: (data, Stat), or None if the znode is missing."""

    path: str
    watch: bool = False


class Children(NamedTuple):
    """Answer: the names in order, or None if the znode is missing."""

    path: str
    watch: bool = False


class Exists(NamedTuple):
    """Answer: Stat or None.  The watch fires on creation, too."""

    path: str
    watch: bool = False


ReadOp = Get | Children | Exists


@dataclass(slots=True)
class ReadZk:
    """Pipelined reads; the answer is a list with one entry for each."""

    ops: tuple[ReadOp, ...]


@dataclass(slots=True)
class WriteZk:
    """Groups of writes.  A group is written wholly or not at all; no group depends on another.

    Every write is conditional on the controller epoch's zkVersion.  For each group the answer holds
    the list of its results, or the ZkError that made it fail.
    """

    groups: tuple[tuple[ZkOp, ...], ...]


@dataclass(slots=True)
class ProbeBrokers:
    """Answer: a dict of the silent brokers; the value is True if the connection was refused."""

    brokers: tuple[BrokerInfo, ...]


@dataclass(slots=True)
class Pause:
    """Lets every other task of this process have a turn; the answer is None.

    The controller shares its thread with a broker, so a procedure works on thousands of partitions
    in parts of `AT_ONCE`.
    """


AT_ONCE = 200
PAUSE = Pause()

Question = ReadZk | WriteZk | ProbeBrokers | Pause
Procedure = Generator[Question, Any, T]
GroupResult = Sequence[Stat | str | None] | ZkError


def in_turns(work: Callable[..., T], *items: Iterable[Any]) -> Generator[Pause, Any, list[T]]:
    """Like `map`, over iterables of one length, with a pause after every `AT_ONCE` of them."""
    done: list[T] = []
    for arguments in zip(*items, strict=True):
        done.append(work(*arguments))
        if len(done) % AT_ONCE == 0:
            yield PAUSE
    return done


def read(ops: Sequence[ReadOp]) -> Procedure[list[Any]]:
    """Reads from ZooKeeper; asks nothing if `ops` is empty."""
    if not ops:
        return []
    result: list[Any] = yield ReadZk(tuple(ops))
    return result


def write(groups: Sequence[Sequence[ZkOp]]) -> Procedure[list[GroupResult]]:
    if not groups:
        return []
    result: list[GroupResult] = yield WriteZk(tuple(tuple(g) for g in groups))
    return result


# ---- orders


@dataclass(slots=True)
class AddBroker:
    """Opens a channel to this broker."""

    broker: BrokerInfo


@dataclass(slots=True)
class RemoveBroker:
    """Closes the channel to this broker, and drops its queue."""

    broker_id: BrokerId


@dataclass(slots=True)
class Watched:
    """The brokers to watch for their death: all registered ones, suspected or not."""

    brokers: tuple[BrokerInfo, ...]


class LeaderAndIsrPartition(NamedTuple):
    tp: TopicPartition
    state: PartitionState
    assignment: ReplicaAssignment
    is_new: bool
    topic_id: bytes = NO_ID


@dataclass(slots=True)
class SendLeaderAndIsr:
    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    partitions: tuple[LeaderAndIsrPartition, ...]
    leaders: tuple[BrokerInfo, ...]


class StopReplicaPartition(NamedTuple):
    tp: TopicPartition
    leader_epoch: LeaderEpoch
    delete: bool


@dataclass(slots=True)
class SendStopReplica:
    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    partitions: tuple[StopReplicaPartition, ...]


class MetadataPartition(NamedTuple):
    tp: TopicPartition
    state: PartitionState
    replicas: tuple[BrokerId, ...]
    offline: tuple[BrokerId, ...]
    topic_id: bytes = NO_ID


@dataclass(slots=True)
class SendUpdateMetadata:
    """The same content for many brokers, each with its own broker epoch; encoded only once."""

    brokers: tuple[tuple[BrokerId, BrokerEpoch], ...]
    partitions: tuple[MetadataPartition, ...]
    live: tuple[BrokerInfo, ...]
    features: Levels = ()
    """The features in use."""
    features_epoch: int = NO_EPOCH
    all_topics: tuple[str, ...] | None = None
    """The names of all topics: a broker drops all others.  None says nothing about them."""

    @property
    def gone(self) -> frozenset[str]:
        """The topics that are being deleted."""
        deleted = LEADER_DURING_DELETE
        return frozenset(p.tp.topic for p in self.partitions if p.state.leader == deleted)


@dataclass(slots=True)
class Reply:
    """The answer to a request that came through the ControllerPort."""

    token: int
    value: Any


@dataclass(slots=True)
class Refuse:
    token: int
    code: ErrorCode
    detail: str | None = None


@dataclass(slots=True)
class Schedule:
    """Gives this event to the machine after a delay."""

    delay_ms: int
    event: Any


@dataclass(slots=True)
class Resign:
    """Gives the controllership up."""

    reason: str


Send = SendLeaderAndIsr | SendStopReplica | SendUpdateMetadata
Order = AddBroker | RemoveBroker | Watched | Send | Reply | Refuse | Schedule | Resign
Effect = Question | Order
