"""The controller as one machine: `step(event, now_ms)` gives the effects to carry out.

One procedure runs at a time.  While it waits for ZooKeeper or for probes, the only event that the
machine takes is the `Answer`; the caller keeps the others in its queue (see `busy`).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, assert_never

from controller import brokers, failover, leaders, partitions, reassignment, topic_deletion, topics
from controller.effects import Effect, Procedure, Question, Resign
from controller.events import (
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
from controller.state import PartitionPhase, ReplicaPhase, Settings, State
from highwater.common.errors import ErrorCode


class Machine:
    """`state` is to be looked at by tests and metrics only."""

    def __init__(self, settings: Settings) -> None:
        self.state = State(settings)
        self._running: Generator[Question, Any, object] | None = None

    @property
    def busy(self) -> bool:
        return self._running is not None

    def step(self, event: Event, now_ms: int = 0) -> list[Effect]:
        """Takes one event; an `Answer` if the last step ended with a question, another if not."""
        if isinstance(event, Answer):
            assert self._running is not None, "an answer, and nothing was asked"
            self._go_on(event.value)
        else:
            assert self._running is None, f"{event} while a procedure runs"
            self._running = self._procedure(event)
            if self._running is not None:
                self._go_on(None)
        effects, self.state.effects = self.state.effects, []
        return effects

    def _go_on(self, value: Any) -> None:
        assert self._running is not None
        try:
            question = self._running.send(value)
        except StopIteration:
            self._running = None
        else:
            self.state.effects.append(question)

    def _procedure(self, event: Event) -> Procedure[object] | None:
        state = self.state
        match event:
            case Elected():
                return failover.take_over(state, event)
            case BrokerChange():
                return brokers.changed(state)
            case BrokerModification(broker_id):
                return brokers.modified(state, broker_id)
            case TopicChange():
                return topics.changed(state)
            case PartitionModification(topic):
                return topics.modified(state, topic)
            case TopicDeletion():
                return topic_deletion.requested(state)
            case IsrChangeNotification():
                return leaders.isr_changed(state)
            case LogDirEventNotification():
                return brokers.log_dir_failed(state)
            case PreferredElectionZnode():
                return leaders.preferred_znode(state)
            case ReassignmentZnode():
                return reassignment.znode_changed(state)
            case ReassignmentIsrChange(tp):
                return reassignment.isr_changed(state, tp)
            case Suspected(broker_id):
                return brokers.suspect(state, broker_id)
            case Recovered(broker_id):
                return brokers.recover(state, broker_id)
            case ChannelOverflowed(broker_id):
                return brokers.resend_all(state, broker_id)
            case UncleanElectionEnabled(topic):
                return partitions.trigger_online(state, topic)
            case AutoPreferredElection():
                return leaders.auto_preferred(state)
            case _:
                return self._answered_or_requested(event)

    def _answered_or_requested(
        self,
        event: LeaderAndIsrAnswered
        | StopReplicaAnswered
        | UpdateMetadataAnswered
        | ElectLeaders
        | AlterReassignments
        | ListReassignments
        | ControlledShutdown
        | Answer,
    ) -> Procedure[object] | None:
        state = self.state
        match event:
            case LeaderAndIsrAnswered():
                self._fence(event.error, event.broker_id)
                return brokers.leader_and_isr_answered(state, event)
            case StopReplicaAnswered():
                self._fence(event.error, event.broker_id)
                return brokers.stop_replica_answered(state, event)
            case UpdateMetadataAnswered():
                self._fence(event.error, event.broker_id)
                return None
            case ElectLeaders():
                return leaders.elect(state, event)
            case AlterReassignments():
                return reassignment.requested(state, event)
            case ListReassignments():
                reassignment.listed(state, event)
                return None
            case ControlledShutdown():
                return leaders.controlled_shutdown(state, event)
            case Answer():
                raise AssertionError("handled by step")
            case _:
                assert_never(event)

    def _fence(self, error: int, broker_id: int) -> None:
        """A broker that knows a later controller epoch: this controller is a zombie."""
        if error == ErrorCode.STALE_CONTROLLER_EPOCH:
            self.state.effects.append(Resign(f"broker {broker_id} knows a newer controller"))


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
    }
