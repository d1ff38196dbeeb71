"""Moves leaders although the old ones are alive, and reads ISRs that leaders changed.

Preferred election runs on request, through the znode of older tools, or automatically when a broker
leads too few of its partitions; unclean election runs on request.  In a controlled shutdown, a
broker that wants to stop first gives its leaderships away, so that no client waits until its
session ends.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from highwater.controller.rules import partitions, reassignment, replicas
from highwater.controller.rules import request_batch as requests
from highwater.controller.rules.effects import (
    Children,
    Exists,
    Get,
    Procedure,
    Refuse,
    Reply,
    Schedule,
    read,
)
from highwater.controller.rules.effects import write as write_zk
from highwater.controller.rules.election import Strategy
from highwater.controller.rules.events import (
    AutoPreferredElection,
    ControlledShutdown,
    ElectLeaders,
    Outcome,
)
from highwater.controller.rules.state import Replica, ReplicaPhase, State
from highwater.controller.rules.state_znodes import Failed, read_states
from highwater.kafka import znodes
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import NO_LEADER, BrokerId, TopicPartition
from highwater.kafka.znodes import PartitionState
from highwater.world.api import Delete

log = logging.getLogger("controller")


# ---- elections on request


def elect(state: State, event: ElectLeaders) -> Procedure[None]:
    """Handles ElectLeaders; for all partitions (None), skips those that need no election."""
    wanted = list(state.all_partitions()) if event.partitions is None else list(event.partitions)
    outcomes = yield from _elect(state, wanted, event.unclean, by_operator=True)
    if event.partitions is None:
        outcomes = {
            tp: o for tp, o in outcomes.items() if o[0] is not ErrorCode.ELECTION_NOT_NEEDED
        }
    state.effects.append(Reply(event.token, outcomes))


def preferred_znode(state: State) -> Procedure[None]:
    """Handles /admin/preferred_replica_election, a list of partitions; deletes it when done."""
    path = znodes.PREFERRED_REPLICA_ELECTION
    found, answer = yield from read([Exists(path, watch=True), Get(path)])
    if found is None or answer is None:
        return
    try:
        wanted = znodes.decode_preferred_replica_election(answer[0])
    except znodes.BadZnode as e:
        log.error("%s", e)
        wanted = []
    yield from _elect(state, wanted, unclean=False, by_operator=False)
    yield from write_zk([(Delete(path),)])


def _elect(
    state: State, wanted: Iterable[TopicPartition], unclean: bool, *, by_operator: bool
) -> Procedure[dict[TopicPartition, Outcome]]:
    outcomes: dict[TopicPartition, Outcome] = {}
    electable: list[TopicPartition] = []
    for tp in wanted:
        if not state.replicas(tp):
            outcomes[tp] = (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "The partition does not exist.",
            )
        elif state.is_queued_for_deletion(tp.topic):
            outcomes[tp] = (ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted")
        elif _has_valid_leader(state, tp, unclean):
            outcomes[tp] = (ErrorCode.ELECTION_NOT_NEEDED, None)
        else:
            electable.append(tp)
    if not unclean:
        strategy = Strategy.PREFERRED
    else:
        strategy = Strategy.UNCLEAN if by_operator else Strategy.OFFLINE
    failure = (
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        if unclean
        else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    )
    results = yield from partitions.bring_online(state, electable, strategy)
    for tp in electable:
        result = results.get(tp, Failed("the partition never had a leader"))
        if isinstance(result, Failed):
            outcomes[tp] = (failure, f"Failed to elect leader for partition {tp}: {result.reason}")
        else:
            outcomes[tp] = (ErrorCode.NONE, None)
    return outcomes


def _has_valid_leader(state: State, tp: TopicPartition, unclean: bool) -> bool:
    leader = state.leader(tp)
    if unclean:
        return leader in state.suspected or (
            leader != NO_LEADER and leader in state.brokers and leader not in state.shutting_down
        )
    return leader == state.replicas(tp)[0]


# ---- preferred leaders, automatically


def auto_preferred(state: State) -> Procedure[None]:
    """Moves leaders back to brokers that lead too few of the partitions that they should."""
    settings = state.settings
    state.effects.append(
        Schedule(settings.leader_imbalance_check_interval_ms, AutoPreferredElection())
    )
    by_preferred: dict[BrokerId, list[TopicPartition]] = {}
    for tp in state.all_partitions():
        if not state.is_queued_for_deletion(tp.topic) and state.replicas(tp):
            by_preferred.setdefault(state.replicas(tp)[0], []).append(tp)
    for broker in sorted(by_preferred):
        should = by_preferred[broker]
        away = [tp for tp in should if tp in state.leadership and state.leader(tp) != broker]
        if len(away) * 100 <= settings.leader_imbalance_per_broker_percentage * len(should):
            continue
        if state.reassigning:
            continue
        movable = [
            tp for tp in away if state.is_online(broker, tp) and broker in state.leadership[tp].isr
        ]
        if movable:
            log.info("broker %d gets its leaderships back: %s", broker, movable)
            yield from partitions.bring_online(state, movable, Strategy.PREFERRED)


# ---- controlled shutdown


def controlled_shutdown(state: State, event: ControlledShutdown) -> Procedure[None]:
    """Moves the broker's leaders, and takes it out of ISRs; answers with what it still leads."""
    broker = event.broker_id
    info = state.brokers.get(broker)
    if info is None:
        refusal = Refuse(
            event.token, ErrorCode.BROKER_NOT_AVAILABLE, f"Broker id {broker} does not exist."
        )
        state.effects.append(refusal)
        return
    if -1 < event.broker_epoch < info.epoch:
        refusal = Refuse(
            event.token,
            ErrorCode.STALE_BROKER_EPOCH,
            f"Broker {broker} asks with broker epoch {event.broker_epoch}; "
            f"it is registered with {info.epoch}.",
        )
        state.effects.append(refusal)
        return
    log.info("broker %d shuts down", broker)
    state.shutting_down.add(broker)
    hosted = [
        r.tp
        for r in state.replicas_on((broker,))
        if len(state.replicas(r.tp)) > 1
        and r.tp in state.leadership
        and not state.is_queued_for_deletion(r.tp.topic)
    ]
    led = [tp for tp in hosted if state.leader(tp) == broker]
    followed = [tp for tp in hosted if state.leader(tp) != broker]
    yield from partitions.bring_online(state, led, Strategy.CONTROLLED_SHUTDOWN)
    for tp in followed:
        requests.add_stop_replica(state, (broker,), tp, delete=False)
    yield from requests.flush(state)
    yield from replicas.change(
        state, [Replica(tp, broker) for tp in followed], ReplicaPhase.OFFLINE
    )
    remaining = [
        tp
        for tp, known in state.leadership.items()
        if known.leader == broker
        and len(state.replicas(tp)) > 1
        and not state.is_queued_for_deletion(tp.topic)
    ]
    state.effects.append(Reply(event.token, remaining))


# ---- ISRs that leaders changed


def isr_changed(state: State) -> Procedure[None]:
    """Reads the new ISRs that leaders wrote, and sends them to all brokers."""
    (names,) = yield from read([Children(znodes.ISR_CHANGES, watch=True)])
    paths = [f"{znodes.ISR_CHANGES}/{n}" for n in names or ()]
    changed: dict[TopicPartition, None] = {}
    for answer in (yield from read([Get(p) for p in paths])):
        if answer is not None:
            try:
                changed.update(dict.fromkeys(znodes.decode_isr_change(answer[0])))
            except znodes.BadZnode as e:
                log.error("%s", e)
    known = [tp for tp in changed if state.replicas(tp)]
    for tp, now in (yield from read_states(state, known)).items():
        if isinstance(now, PartitionState):
            state.leadership[tp] = now
    if known:
        yield from requests.send_update_metadata(state, known)
    yield from reassignment.delete_all(paths)
