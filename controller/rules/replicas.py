"""The replica state machine (Kafka's ReplicaStateMachine).

Each change has its requests.  A change to New or Online sends LeaderAndIsr to the replica.  A
change to Offline sends it StopReplica (without deletion), removes it from the ISR, and sends the
new ISR to leader and followers.  A change to DeletionStarted sends StopReplica with deletion.
Other changes are only noted.

The ISR is shrunk here because no other part would do it soon: a leader notices a missing follower
only by its lag, and if the leader itself is removed the partition is left without one (-1).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from highwater.controller.rules import request_batch as requests
from highwater.controller.rules.effects import AT_ONCE, PAUSE, Procedure, in_turns
from highwater.controller.rules.state import Replica, ReplicaPhase, State
from highwater.controller.rules.state_znodes import Failed, read_states, write_states
from highwater.kafka.types import NO_LEADER, BrokerId, LeaderEpoch, TopicPartition
from highwater.kafka.znodes import PartitionState
from highwater.world.api import BadVersion

log = logging.getLogger("controller")

_NEW, _ONLINE, _OFFLINE = ReplicaPhase.NEW, ReplicaPhase.ONLINE, ReplicaPhase.OFFLINE
_STARTED, _SUCCESSFUL = ReplicaPhase.DELETION_STARTED, ReplicaPhase.DELETION_SUCCESSFUL
_INELIGIBLE, _GONE = ReplicaPhase.DELETION_INELIGIBLE, ReplicaPhase.NON_EXISTENT

VALID_BEFORE: Mapping[ReplicaPhase, tuple[ReplicaPhase, ...]] = {
    _NEW: (_GONE,),
    _ONLINE: (_NEW, _ONLINE, _OFFLINE, _INELIGIBLE),
    _OFFLINE: (_NEW, _ONLINE, _OFFLINE, _INELIGIBLE),
    _STARTED: (_OFFLINE,),
    _SUCCESSFUL: (_STARTED,),
    _INELIGIBLE: (_OFFLINE, _STARTED),
    _GONE: (_SUCCESSFUL,),
}


def change(state: State, replicas: Iterable[Replica], target: ReplicaPhase) -> Procedure[None]:
    """Moves replicas to a phase, with everything that follows from it."""
    by_broker: dict[BrokerId, list[TopicPartition]] = {}
    for r in (yield from _valid(state, replicas, target)):
        by_broker.setdefault(r.broker, []).append(r.tp)
    for broker, partitions in by_broker.items():
        match target:
            case ReplicaPhase.NEW:
                _to_new(state, broker, partitions)
            case ReplicaPhase.ONLINE:
                _to_online(state, broker, partitions)
            case ReplicaPhase.OFFLINE:
                yield from _to_offline(state, broker, partitions)
            case ReplicaPhase.DELETION_STARTED:
                for tp in partitions:
                    state.replica_phases[Replica(tp, broker)] = target
                    requests.add_stop_replica(state, (broker,), tp, delete=True)
            case ReplicaPhase.DELETION_SUCCESSFUL | ReplicaPhase.DELETION_INELIGIBLE:
                for tp in partitions:
                    state.replica_phases[Replica(tp, broker)] = target
            case ReplicaPhase.NON_EXISTENT:
                _forget(state, broker, partitions)
        if len(partitions) >= AT_ONCE:
            yield PAUSE
    yield from requests.flush(state)


def initialize_phases(state: State) -> Procedure[tuple[list[Replica], list[Replica]]]:
    """Sets the phases at a controller's start; returns the online and the offline replicas.

    An offline replica begins as ineligible for deletion: its broker may have gone while there was
    no controller.  Replicas on a suspected broker are in neither list.
    """
    online: list[Replica] = []
    offline: list[Replica] = []

    def look(tp: TopicPartition) -> None:
        for broker in state.replicas(tp):
            r = Replica(tp, broker)
            if state.is_online(broker, tp):
                state.replica_phases[r] = _ONLINE
                online.append(r)
            elif broker in state.suspected and not state.is_queued_for_deletion(tp.topic):
                state.replica_phases[r] = _ONLINE
            else:
                state.replica_phases[r] = _INELIGIBLE
                offline.append(r)

    yield from in_turns(look, state.all_partitions())
    return online, offline


def _valid(
    state: State, replicas: Iterable[Replica], target: ReplicaPhase
) -> Procedure[list[Replica]]:
    allowed = VALID_BEFORE[target]
    valid: list[Replica] = []

    def check(r: Replica) -> None:
        phase = state.replica_phases.setdefault(r, _GONE)
        if phase in allowed:
            valid.append(r)
        else:
            if phase is _GONE:
                del state.replica_phases[r]
            log.error(
                "replica %d of %s cannot go from %s to %s",
                r.broker,
                r.tp,
                phase.value,
                target.value,
            )

    yield from in_turns(check, replicas)
    return valid


def _to_new(state: State, broker: BrokerId, partitions: list[TopicPartition]) -> None:
    for tp in partitions:
        known = state.leadership.get(tp)
        if known is not None:
            if known.leader == broker:
                log.error("replica %d of %s cannot be new: it is the leader", broker, tp)
                del state.replica_phases[Replica(tp, broker)]
                continue
            requests.add_leader_and_isr(state, (broker,), tp, is_new=True)
        state.replica_phases[Replica(tp, broker)] = _NEW


def _to_online(state: State, broker: BrokerId, partitions: list[TopicPartition]) -> None:
    for tp in partitions:
        r = Replica(tp, broker)
        if state.replica_phases[r] is not _NEW and tp in state.leadership:
            requests.add_leader_and_isr(state, (broker,), tp, is_new=False)
        state.replica_phases[r] = _ONLINE


def _to_offline(
    state: State, broker: BrokerId, partitions: list[TopicPartition]
) -> Procedure[None]:
    for tp in partitions:
        requests.add_stop_replica(state, (broker,), tp, delete=False)
    with_leadership = [tp for tp in partitions if tp in state.leadership]
    removed = yield from _remove_from_isr(state, broker, with_leadership)

    def tell(tp: TopicPartition) -> None:
        if not state.is_queued_for_deletion(tp.topic):
            others = [r for r in state.replicas(tp) if r != broker]
            requests.add_leader_and_isr(state, others, tp, is_new=False)
        state.replica_phases[Replica(tp, broker)] = _OFFLINE

    yield from in_turns(tell, removed)
    for tp in partitions:
        if tp not in state.leadership:
            requests.add_update_metadata(state, (tp,))
            state.replica_phases[Replica(tp, broker)] = _OFFLINE


def _forget(state: State, broker: BrokerId, partitions: list[TopicPartition]) -> None:
    for tp in partitions:
        state.assign(tp, state.assignment(tp).without((broker,)))
        state.replica_phases.pop(Replica(tp, broker), None)


def _remove_from_isr(
    state: State, broker: BrokerId, partitions: list[TopicPartition]
) -> Procedure[list[TopicPartition]]:
    """Takes a broker out of the ISRs; returns the partitions whose ISR does not have it now.

    The state is always read first: memory cannot show that a replica is not in the ISR.
    """
    done: list[TopicPartition] = []

    def propose(tp: TopicPartition, now: PartitionState | Failed | None) -> PartitionState | None:
        if isinstance(now, Failed):
            log.error("replica %d of %s stays in the ISR: %s", broker, tp, now.reason)
        elif now is None:
            if state.is_queued_for_deletion(tp.topic):
                del state.leadership[tp]  # its znodes are gone already
            else:
                log.error("replica %d of %s: it has no state in ZooKeeper", broker, tp)
        elif broker not in now.isr:
            state.leadership[tp] = now._replace(controller_epoch=state.epoch)
            done.append(tp)
        else:
            return _without(state, broker, now)
        return None

    remaining = partitions
    while remaining:
        found = yield from read_states(state, remaining)
        wanted = yield from in_turns(propose, found, found.values())
        proposals = {tp: new for tp, new in zip(found, wanted, strict=True) if new is not None}
        remaining = []
        for tp, result in (yield from write_states(proposals)).items():
            if isinstance(result, PartitionState):
                state.leadership[tp] = result
                done.append(tp)
            elif isinstance(result, BadVersion):
                remaining.append(tp)
            else:
                log.error("replica %d of %s stays in the ISR: %s", broker, tp, result)
    return done


def _without(state: State, broker: BrokerId, now: PartitionState) -> PartitionState:
    """The state without the broker; the last member stays in the ISR, as only it has everything."""
    return PartitionState(
        state.epoch,
        NO_LEADER if now.leader == broker else now.leader,
        LeaderEpoch(now.leader_epoch + 1),
        now.isr if len(now.isr) == 1 else tuple(r for r in now.isr if r != broker),
        now.zk_version,
    )
