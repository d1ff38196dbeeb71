"""The controller as one machine: `step(event, now_ms)` returns the effects to carry out.

One procedure runs at a time.  While it waits for ZooKeeper or for probes, the machine takes no
event but the `Answer`; the caller keeps the others in its queue (see `busy`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from highwater.controller.rules import (
    brokers,
    feature_levels,
    leaders,
    partitions,
    reassignment,
    topic_deletion,
    topics,
)
from highwater.controller.rules import new_term as failover
from highwater.controller.rules.effects import Effect, Procedure, Question, Resign
from highwater.controller.rules.events import (
    AlterReassignments,
    Answer,
    AutoPreferredElection,
    BrokerChange,
    BrokerModification,
    ChannelOverflowed,
    ControlledShutdown,
    Elected,
    ElectLeaders,
    Event,
    FeatureLimits,
    IsrChangeNotification,
    LeaderAndIsrAnswered,
    ListReassignments,
    LogDirEventNotification,
    PartitionModification,
    PreferredElectionZnode,
    ReassignmentIsrChange,
    ReassignmentZnode,
    Recovered,
    StopReplicaAnswered,
    Suspected,
    TopicChange,
    TopicDeletion,
    UncleanElectionEnabled,
    UpdateMetadataAnswered,
)
from highwater.controller.rules.state import PartitionPhase, ReplicaPhase, Settings, State
from highwater.kafka.errors import ErrorCode

_STALE = int(ErrorCode.STALE_CONTROLLER_EPOCH)
_Answered = LeaderAndIsrAnswered | StopReplicaAnswered | UpdateMetadataAnswered


class Machine:
    """Only tests and metrics look at `state`."""

    def __init__(self, settings: Settings) -> None:
        self.state = State(settings)
        self._running: Generator[Question, Any, object] | None = None

    @property
    def busy(self) -> bool:
        return self._running is not None

    def step(self, event: Event, now_ms: int = 0) -> list[Effect]:
        """Takes one event: an `Answer` if the last step ended with a question, else any other."""
        state = self.state
        running, value = self._running, None
        if isinstance(event, Answer):
            assert running is not None, "an answer, and nothing was asked"
            value = event.value
        else:
            assert running is None, f"{event} while a procedure runs"
            running = self._running = PROCEDURES[type(event)](state, event)
        if running is not None:
            try:
                state.effects.append(running.send(value))
            except StopIteration:
                self._running = None
        effects, state.effects = state.effects, []
        return effects


def _fence(state: State, event: _Answered) -> None:
    """Resigns if a broker knows a later controller epoch: this controller is a zombie."""
    if event.error == _STALE:
        state.effects.append(Resign(f"broker {event.broker_id} knows a newer controller"))


def _leader_and_isr_answered(state: State, event: LeaderAndIsrAnswered) -> Procedure[object]:
    _fence(state, event)
    return brokers.leader_and_isr_answered(state, event)


def _stop_replica_answered(state: State, event: StopReplicaAnswered) -> Procedure[object]:
    _fence(state, event)
    return brokers.stop_replica_answered(state, event)


def _update_metadata_answered(
    state: State, event: UpdateMetadataAnswered
) -> Procedure[object] | None:
    _fence(state, event)
    return brokers.update_metadata_answered(state, event) if event.gone else None


def _listed(state: State, event: ListReassignments) -> None:
    reassignment.listed(state, event)


PROCEDURES: Mapping[type[Any], Callable[[State, Any], Procedure[object] | None]] = {
    Elected: failover.take_over,
    BrokerChange: lambda state, _: brokers.changed(state),
    BrokerModification: lambda state, event: brokers.modified(state, event.broker_id),
    TopicChange: lambda state, _: topics.changed(state),
    PartitionModification: lambda state, event: topics.modified(state, event.topic),
    TopicDeletion: lambda state, _: topic_deletion.requested(state),
    IsrChangeNotification: lambda state, _: leaders.isr_changed(state),
    LogDirEventNotification: lambda state, _: brokers.log_dir_failed(state),
    FeatureLimits: lambda state, _: feature_levels.changed(state),
    PreferredElectionZnode: lambda state, _: leaders.preferred_znode(state),
    ReassignmentZnode: lambda state, _: reassignment.znode_changed(state),
    ReassignmentIsrChange: lambda state, event: reassignment.isr_changed(state, event.tp),
    Suspected: lambda state, event: brokers.suspect(state, event.broker_id),
    Recovered: lambda state, event: brokers.recover(state, event.broker_id),
    ChannelOverflowed: lambda state, event: brokers.resend_all(state, event.broker_id),
    UncleanElectionEnabled: lambda state, event: partitions.trigger_online(state, event.topic),
    AutoPreferredElection: lambda state, _: leaders.auto_preferred(state),
    LeaderAndIsrAnswered: _leader_and_isr_answered,
    StopReplicaAnswered: _stop_replica_answered,
    UpdateMetadataAnswered: _update_metadata_answered,
    ElectLeaders: leaders.elect,
    AlterReassignments: reassignment.requested,
    ListReassignments: _listed,
    ControlledShutdown: leaders.controlled_shutdown,
}
"""The procedure for each kind of event but `Answer`.  It is a table and no chain of comparisons,
because a busy controller mostly gets brokers' answers."""


def gauges(state: State) -> dict[str, int]:
    """KafkaController's metrics, by Kafka's names."""
    deleting = [r for t in state.to_be_deleted for r in state.replicas_of(t)]
    phases = state.replica_phases
    imbalanced = 0
    for tp, known in state.leadership.items():
        replicas = state.replicas(tp)
        if not replicas or state.is_queued_for_deletion(tp.topic):
            continue
        if replicas[0] in state.assignment(tp).adding:
            imbalanced += replicas[0] in known.isr
        else:
            imbalanced += known.leader != replicas[0]
    return {
        "OfflinePartitionsCount": sum(
            phase is PartitionPhase.OFFLINE and tp.topic not in state.deletion_started
            for tp, phase in state.partition_phases.items()
        ),
        "PreferredReplicaImbalanceCount": imbalanced,
        "GlobalTopicCount": len(state.topics),
        "GlobalPartitionCount": len(state.leadership),
        "TopicsToDeleteCount": len(state.to_be_deleted),
        "ReplicasToDeleteCount": sum(
            phases.get(r) is not ReplicaPhase.DELETION_SUCCESSFUL for r in deleting
        ),
        "TopicsIneligibleToDeleteCount": len(state.ineligible_for_deletion),
        "ReplicasIneligibleToDeleteCount": sum(
            phases.get(r) is ReplicaPhase.DELETION_INELIGIBLE for r in deleting
        ),
        "ActiveBrokerCount": len(state.brokers),
        "LeaderElections": state.elections,
        "UncleanLeaderElections": state.unclean_elections,
    }
