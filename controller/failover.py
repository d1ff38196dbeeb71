"""The first thing a new controller does: read everything, tell everyone, take up what was left.

The watches are set with the first reads, so that nothing is missed between reading and watching.
Then in this order: who is there (and who does not answer), what topics there are, who leads.  All
live brokers get UpdateMetadata before LeaderAndIsr, for that names leaders whose addresses they
must know.  Elections, reassignments, deletions and preferred elections follow.

Brokers whose registration is still there may be dead, most of all the broker that was the
controller before.  They are probed before the first election.
"""

from __future__ import annotations

import logging

from controller import (
    brokers,
    leaders,
    partitions,
    reassignment,
    replicas,
    requests,
    topic_deletion,
    topics,
)
from controller.effects import AddBroker, Children, ProbeBrokers, Procedure, Schedule, read
from controller.events import AutoPreferredElection, Elected
from controller.state import ReplicaPhase, State
from controller.state_znodes import read_states
from highwater.common import znodes
from highwater.common.types import BrokerId
from highwater.common.znodes import PartitionState

log = logging.getLogger("controller")

FIRST_IMBALANCE_CHECK_MS = 5000


def take_over(state: State, event: Elected) -> Procedure[None]:
    """From "elected" to "ready to serve"."""
    state.epoch, state.epoch_zk_version = event
    isr_changes, log_dir_events = yield from read(
        [Children(znodes.ISR_CHANGES, watch=True), Children(znodes.LOG_DIR_EVENTS, watch=True)]
    )
    # what they tell is read now anyway
    yield from reassignment.delete_all(
        [f"{znodes.LOG_DIR_EVENTS}/{n}" for n in log_dir_events or ()]
        + [f"{znodes.ISR_CHANGES}/{n}" for n in isr_changes or ()]
    )
    yield from _read_cluster(state)
    yield from _start_machines(state)
    log.info(
        "controller epoch %d: %d brokers, %d topics, %d partitions; suspected: %s",
        state.epoch,
        len(state.brokers),
        len(state.topics),
        len(state.leadership),
        sorted(state.suspected),
    )
    resumed = yield from reassignment.znode_changed(state)
    yield from reassignment.resume(state, lambda tp, _: tp not in resumed)
    yield from topic_deletion.resume(state)
    yield from leaders.preferred_znode(state)
    if state.settings.auto_leader_rebalance_enable:
        state.effects.append(Schedule(FIRST_IMBALANCE_CHECK_MS, AutoPreferredElection()))


def _read_cluster(state: State) -> Procedure[None]:
    registered = yield from brokers.read_registrations()
    silent: dict[BrokerId, bool] = yield ProbeBrokers(tuple(registered.values()))
    state.brokers = {b: info for b, info in registered.items() if b not in silent}
    state.suspected = {b: info for b, info in registered.items() if b in silent}
    (names,) = yield from read([Children(znodes.TOPICS, watch=True)])
    yield from topics.load(state, names or ())
    found = yield from read_states(state, state.all_partitions())
    for tp, known in found.items():
        if isinstance(known, PartitionState):
            state.leadership[tp] = known
    (requested,) = yield from read([Children(znodes.DELETE_TOPICS, watch=True)])
    yield from _queue_deletions(state, requested or [])
    brokers.watch_all(state, registered.values())
    for b in sorted(state.brokers):
        state.effects.append(AddBroker(state.brokers[b]))


def _queue_deletions(state: State, requested: list[str]) -> Procedure[None]:
    unknown = [t for t in requested if t not in state.topics]
    yield from topic_deletion.forget_requests(unknown)
    ineligible = {tp.topic for tp in state.reassigning}
    for topic in requested:
        if any(not state.is_online(r.broker, r.tp) for r in state.replicas_of(topic)):
            ineligible.add(topic)
    yield from topic_deletion.queue_existing(
        state, [t for t in requested if t in state.topics], sorted(ineligible)
    )


def _start_machines(state: State) -> Procedure[None]:
    requests.send_update_metadata(state)
    online, offline = replicas.initialize_phases(state)
    yield from replicas.change(state, online, ReplicaPhase.ONLINE)
    yield from replicas.change(state, offline, ReplicaPhase.OFFLINE)
    partitions.initialize_phases(state)
    yield from partitions.trigger_online(state)
    for b in sorted(state.suspected):
        yield from brokers.leave(state, b)
