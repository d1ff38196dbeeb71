"""The machine's inputs: watches that fired, answers of brokers, requests, suspicion, time.

A watch only says that something changed.  The procedure reads again (and sets the next watch with
that read), so two equal events in the queue are as good as one: events are compared by value, and
the runtime keeps at most one of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from highwater.kafka import znodes
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import BrokerEpoch, BrokerId, ControllerEpoch, TopicPartition, ZkVersion
from highwater.world.api import WatchEvent, WatchKind


class Answer(NamedTuple):
    """The answer to the question that the last step ended with."""

    value: Any


class Elected(NamedTuple):
    """This broker has become the controller."""

    epoch: ControllerEpoch
    epoch_zk_version: ZkVersion


# ---- ZooKeeper


class BrokerChange(NamedTuple):
    """A broker registered, or its registration is gone."""

    kind: str = "brokers"


class BrokerModification(NamedTuple):
    """The data of a broker's registration changed."""

    broker_id: BrokerId


class TopicChange(NamedTuple):
    kind: str = "topics"


class PartitionModification(NamedTuple):
    """The assignment of a topic changed: partitions were added."""

    topic: str


class TopicDeletion(NamedTuple):
    kind: str = "delete_topics"


class IsrChangeNotification(NamedTuple):
    """Leaders report that they wrote new ISRs, so that the controller spreads them."""

    kind: str = "isr_change"


class LogDirEventNotification(NamedTuple):
    """A broker lost a log directory."""

    kind: str = "log_dir_event"


class FeatureLimits(NamedTuple):
    """The limits of features changed."""

    kind: str = "feature_limits"


class PreferredElectionZnode(NamedTuple):
    kind: str = "preferred_replica_election"


class ReassignmentZnode(NamedTuple):
    kind: str = "reassign_partitions"


class ReassignmentIsrChange(NamedTuple):
    """The state of a partition that is being reassigned changed."""

    tp: TopicPartition


# ---- brokers


@dataclass(frozen=True, slots=True)
class LeaderAndIsrAnswered:
    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    error: int
    partition_errors: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    """The ids that the broker's logs have and the request did not name."""


@dataclass(frozen=True, slots=True)
class StopReplicaAnswered:
    """`deleted` has the partitions that the request wanted deleted, with their errors."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    error: int
    deleted: Mapping[TopicPartition, int]


class UpdateMetadataAnswered(NamedTuple):
    """`gone` has the topics in the request that are being deleted."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    error: int
    gone: frozenset[str] = frozenset()


class ChannelOverflowed(NamedTuple):
    """A broker answers too slowly: its queue is dropped, and everything must be sent again."""

    broker_id: BrokerId


class Suspected(NamedTuple):
    """A broker's connection ended and a probe failed; its registration is still there."""

    broker_id: BrokerId


class Recovered(NamedTuple):
    """A suspect answers again."""

    broker_id: BrokerId


# ---- requests (`token` comes back in Reply or Refuse)


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    token: int
    partitions: tuple[TopicPartition, ...] | None
    unclean: bool


@dataclass(frozen=True, slots=True)
class AlterReassignments:
    token: int
    targets: Mapping[TopicPartition, tuple[BrokerId, ...] | None]


@dataclass(frozen=True, slots=True)
class ListReassignments:
    token: int
    partitions: tuple[TopicPartition, ...] | None


class ControlledShutdown(NamedTuple):
    token: int
    broker_id: BrokerId
    broker_epoch: BrokerEpoch


class UncleanElectionEnabled(NamedTuple):
    """unclean.leader.election.enable became true, for one topic or by default (None)."""

    topic: str | None


# ---- time


class AutoPreferredElection(NamedTuple):
    kind: str = "auto_preferred"


Request = ElectLeaders | AlterReassignments | ListReassignments | ControlledShutdown
Event = (
    Answer
    | Elected
    | BrokerChange
    | BrokerModification
    | TopicChange
    | PartitionModification
    | TopicDeletion
    | IsrChangeNotification
    | LogDirEventNotification
    | FeatureLimits
    | PreferredElectionZnode
    | ReassignmentZnode
    | ReassignmentIsrChange
    | LeaderAndIsrAnswered
    | StopReplicaAnswered
    | UpdateMetadataAnswered
    | ChannelOverflowed
    | Suspected
    | Recovered
    | Request
    | UncleanElectionEnabled
    | AutoPreferredElection
)

Outcome = tuple[ErrorCode, str | None]

_BY_PATH: dict[str, Event] = {
    znodes.BROKER_IDS: BrokerChange(),
    znodes.TOPICS: TopicChange(),
    znodes.DELETE_TOPICS: TopicDeletion(),
    znodes.ISR_CHANGES: IsrChangeNotification(),
    znodes.LOG_DIR_EVENTS: LogDirEventNotification(),
    znodes.FEATURE_LIMITS: FeatureLimits(),
    znodes.PREFERRED_REPLICA_ELECTION: PreferredElectionZnode(),
    znodes.REASSIGN_PARTITIONS: ReassignmentZnode(),
}


def of_watch(watch: WatchEvent) -> Event | None:
    """The event for a watch; None if another watch gives the same event."""
    known = _BY_PATH.get(watch.path)
    if known is not None:
        return known
    match watch.path.split("/")[1:]:
        case ["brokers", "ids", number]:
            if watch.kind is WatchKind.DELETED:
                return None  # the watch on /brokers/ids gives that event
            return BrokerModification(BrokerId(int(number)))
        case ["brokers", "topics", topic]:
            return None if watch.kind is WatchKind.DELETED else PartitionModification(topic)
        case ["brokers", "topics", topic, "partitions", partition, "state"]:
            return ReassignmentIsrChange(TopicPartition(topic, int(partition)))
    return None
