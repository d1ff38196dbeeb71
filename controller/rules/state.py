"""The controller's view of the cluster: Kafka's ControllerContext.

ZooKeeper holds the truth; the state is what was last read from it or written to it.  A suspected
broker (its connection broke and a probe failed, but its registration is still there) is not in
`brokers`, so nothing is sent to it and nothing counts it as live.  But it is not dead either: no
partition is taken from it unless another member of the ISR can lead, and no unclean election is
held because of it.

Dicts are used instead of sets wherever the order of iteration decides the order of effects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from highwater.controller.rules.effects import Effect
from highwater.kafka.features import Levels, in_use
from highwater.kafka.replica_assignment import ReplicaAssignment
from highwater.kafka.types import (
    NO_LEADER,
    BrokerId,
    BrokerInfo,
    ControllerEpoch,
    TopicPartition,
    ZkVersion,
)
from highwater.kafka.znodes import PartitionState

_NO_EPOCH = ControllerEpoch(0)
_NO_VERSION = ZkVersion(0)
_CHANGES_OF_A_TERM_BITS = 32
"""The epoch of features has the controller epoch above these bits, and in them a count."""


class PartitionPhase(Enum):
    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


class ReplicaPhase(Enum):
    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"


class Replica(NamedTuple):
    tp: TopicPartition
    broker: BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The controller's part of the broker's configuration."""

    broker_id: BrokerId
    cluster_id: str = ""
    delete_topic_enable: bool = True
    unclean_leader_election_enable: bool = False
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_per_broker_percentage: int = 10
    leader_imbalance_check_interval_ms: int = 300_000


class Batch:
    """Requests for brokers at the next flush.

    Only their subjects are noted, not their content: they will carry the state at the flush.
    """

    __slots__ = (
        "all_topics",
        "leader_and_isr",
        "metadata_brokers",
        "metadata_partitions",
        "metadata_to_all",
        "stop_replica",
    )

    def __init__(self) -> None:
        self.leader_and_isr: dict[BrokerId, dict[TopicPartition, bool]] = {}
        """By broker, the partitions, and whether the replica is new there."""
        self.stop_replica: dict[BrokerId, dict[TopicPartition, bool]] = {}
        """By broker, the partitions, and whether their data is to be deleted."""
        self.metadata_partitions: dict[TopicPartition, None] = {}
        self.metadata_brokers: dict[BrokerId, None] = {}
        self.metadata_to_all = False
        self.all_topics = False
        """Whether the names of all topics are sent, so that brokers drop topics that are gone."""

    def __bool__(self) -> bool:
        """Whether there is anything to send."""
        return bool(
            self.metadata_to_all
            or self.leader_and_isr
            or self.stop_replica
            or self.metadata_partitions
            or self.metadata_brokers
        )


@dataclass(slots=True)
class State:
    settings: Settings
    epoch: ControllerEpoch = _NO_EPOCH
    epoch_zk_version: ZkVersion = _NO_VERSION

    brokers: dict[BrokerId, BrokerInfo] = field(default_factory=dict)
    """Live brokers, including those that are shutting down."""
    shutting_down: set[BrokerId] = field(default_factory=set)
    suspected: dict[BrokerId, BrokerInfo] = field(default_factory=dict)
    offline_dirs: dict[BrokerId, set[TopicPartition]] = field(default_factory=dict)
    """The replicas in failed log directories of live brokers."""

    feature_limits: dict[str, int] = field(default_factory=dict)
    """By feature, the highest level that an administrator allows."""
    features_sent: tuple[Levels, int] | None = None
    """The levels that were last sent to brokers, and their epoch."""

    topics: set[str] = field(default_factory=set)
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    created_in: dict[str, int] = field(default_factory=dict)
    """By topic, the czxid of its znode."""
    ids_heard: dict[str, set[BrokerId]] = field(default_factory=dict)
    """By topic without an id, the brokers that have answered a LeaderAndIsr for it."""
    ids_told: dict[str, bytes] = field(default_factory=dict)
    """By topic without an id, the id that a broker's log has."""
    assignments: dict[str, dict[int, ReplicaAssignment]] = field(default_factory=dict)
    leadership: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    partition_phases: dict[TopicPartition, PartitionPhase] = field(default_factory=dict)
    replica_phases: dict[Replica, ReplicaPhase] = field(default_factory=dict)
    reassigning: dict[TopicPartition, None] = field(default_factory=dict)

    to_be_deleted: dict[str, None] = field(default_factory=dict)
    deletion_started: set[str] = field(default_factory=set)
    returning: set[BrokerId] = field(default_factory=set)
    """Brokers that have registered again, while the end of their former life is handled."""
    told_of_deletion: dict[str, set[BrokerId]] = field(default_factory=dict)
    """By topic, the brokers that have answered that they know of its deletion."""
    ineligible_for_deletion: set[str] = field(default_factory=set)

    batch: Batch = field(default_factory=Batch)
    effects: list[Effect] = field(default_factory=list)
    unclean_elections: int = 0
    elections: int = 0

    # ---- brokers

    def features(self) -> Levels:
        """The features in use: those of all registered brokers, within their limits."""
        return in_use((*self.brokers.values(), *self.suspected.values()), self.feature_limits)

    def features_to_send(self) -> tuple[Levels, int]:
        """The features in use and their epoch, which rises with each change and controller."""
        levels = self.features()
        if self.features_sent is None:
            self.features_sent = levels, self.epoch << _CHANGES_OF_A_TERM_BITS
        elif levels != self.features_sent[0]:
            self.features_sent = levels, self.features_sent[1] + 1
        return self.features_sent

    def live_ids(self) -> list[BrokerId]:
        """Live brokers, without those that are shutting down."""
        return [b for b in self.brokers if b not in self.shutting_down]

    def is_online(
        self, broker: BrokerId, tp: TopicPartition, *, or_shutting_down: bool = False
    ) -> bool:
        """Whether the replica can lead or follow at the moment."""
        if broker not in self.brokers:
            return False
        if not or_shutting_down and broker in self.shutting_down:
            return False
        offline = self.offline_dirs.get(broker)
        return offline is None or tp not in offline

    # ---- partitions

    def assignment(self, tp: TopicPartition) -> ReplicaAssignment:
        """The assignment; without replicas if there is no such partition."""
        return self.assignments.get(tp.topic, {}).get(tp.partition, _NOBODY)

    def assign(self, tp: TopicPartition, assignment: ReplicaAssignment) -> None:
        self.assignments.setdefault(tp.topic, {})[tp.partition] = assignment

    def replicas(self, tp: TopicPartition) -> tuple[BrokerId, ...]:
        return self.assignment(tp).replicas

    def all_partitions(self) -> Iterator[TopicPartition]:
        for topic, partitions in self.assignments.items():
            for partition in partitions:
                yield TopicPartition(topic, partition)

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, p) for p in self.assignments.get(topic, ())]

    def replicas_of(self, topic: str) -> list[Replica]:
        return [
            Replica(TopicPartition(topic, p), r)
            for p, a in self.assignments.get(topic, {}).items()
            for r in a.replicas
        ]

    def replicas_on(self, brokers: Iterable[BrokerId]) -> list[Replica]:
        wanted = list(brokers)
        return [
            Replica(TopicPartition(topic, p), broker)
            for broker in wanted
            for topic, partitions in self.assignments.items()
            for p, a in partitions.items()
            if broker in a.replicas
        ]

    def leader(self, tp: TopicPartition) -> BrokerId:
        known = self.leadership.get(tp)
        return NO_LEADER if known is None else known.leader

    def partitions_in(self, *phases: PartitionPhase) -> list[TopicPartition]:
        return [tp for tp, phase in self.partition_phases.items() if phase in phases]

    def is_queued_for_deletion(self, topic: str) -> bool:
        return topic in self.to_be_deleted

    def with_offline_leader(self) -> list[TopicPartition]:
        """Partitions whose leader is gone; a suspected leader is not gone."""
        return [
            tp
            for tp, known in self.leadership.items()
            if known.leader not in self.suspected
            and not self.is_online(known.leader, tp)
            and tp.topic not in self.to_be_deleted
        ]

    def any_replica_in(self, topic: str, phase: ReplicaPhase) -> bool:
        return any(self.replica_phases.get(r) is phase for r in self.replicas_of(topic))

    def all_replicas_in(self, topic: str, phase: ReplicaPhase) -> bool:
        return all(self.replica_phases.get(r) is phase for r in self.replicas_of(topic))

    def forget_topic(self, topic: str) -> None:
        for r in self.replicas_of(topic):
            self.replica_phases.pop(r, None)
        for tp in self.partitions_of(topic):
            self.leadership.pop(tp, None)
            self.partition_phases.pop(tp, None)
            self.reassigning.pop(tp, None)
            for offline in self.offline_dirs.values():
                offline.discard(tp)
        self.assignments.pop(topic, None)
        for kept in (self.topic_ids, self.created_in, self.ids_heard, self.ids_told):
            kept.pop(topic, None)
        self.topics.discard(topic)


_NOBODY = ReplicaAssignment(())
