"""Starts a new controller: reads all state, sends it to brokers, goes on with unfinished work.

The watches are set with the first reads, so that nothing is missed between reading and watching.
Then it reads, in this order, the brokers (and probes them), the topics, and the leaders.  All live
brokers get UpdateMetadata before LeaderAndIsr, because the latter names leaders whose addresses
they must know.  Elections, reassignments, deletions and preferred elections follow.

Brokers whose registration is still there may be dead, most of all the broker that was the
controller before; so brokers are probed before the first election.  Others may have come back
unseen by any controller.  They are handled as a running controller would handle them: first as
failed, then as started (`bounces`).
"""

from __future__ import annotations

import logging

from highwater.controller.rules import (
    bounces,
    brokers,
    feature_levels,
    leaders,
    partitions,
    reassignment,
    replicas,
    topic_deletion,
    topics,
)
from highwater.controller.rules import request_batch as requests
from highwater.controller.rules.effects import (
    AddBroker,
    Children,
    ProbeBrokers,
    Procedure,
    Schedule,
    read,
)
from highwater.controller.rules.events import AutoPreferredElection, Elected
from highwater.controller.rules.state import ReplicaPhase, State
from highwater.controller.rules.state_znodes import read_states
from highwater.kafka import znodes
from highwater.kafka.types import BrokerId, BrokerInfo
from highwater.kafka.znodes import PartitionState

log = logging.getLogger("controller")

FIRST_IMBALANCE_CHECK_MS = 5000

Bounced = dict[BrokerId, tuple[BrokerInfo, bool]]
"""Brokers that came back unseen; True if the broker does not answer either."""


def take_over(state: State, event: Elected) -> Procedure[None]:
    """Goes from "elected" to "ready to serve"."""
    state.epoch, state.epoch_zk_version = event
    isr_changes, log_dir_events = yield from read(
        [Children(znodes.ISR_CHANGES, watch=True), Children(znodes.LOG_DIR_EVENTS, watch=True)]
    )
    # what they report is read now anyway
    yield from reassignment.delete_all(
        [f"{znodes.LOG_DIR_EVENTS}/{n}" for n in log_dir_events or ()]
        + [f"{znodes.ISR_CHANGES}/{n}" for n in isr_changes or ()]
    )
    bounced = yield from _read_cluster(state)
    yield from _start_machines(state, bounced)
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


def _read_cluster(state: State) -> Procedure[Bounced]:
    """Reads the cluster; returns the brokers that came back unseen, which do not count as live."""
    yield from feature_levels.load(state)
    registered = yield from brokers.read_registrations()
    silent: dict[BrokerId, bool] = yield ProbeBrokers(tuple(registered.values()))
    unhandled = yield from bounces.unhandled(registered)
    seen = {b: info for b, info in registered.items() if b not in unhandled}
    state.brokers = {b: info for b, info in seen.items() if b not in silent}
    state.suspected = {b: info for b, info in seen.items() if b in silent}
    (names,) = yield from read([Children(znodes.TOPICS, watch=True)])
    yield from topics.load(state, names or ())
    found = yield from read_states(state, state.all_partitions())
    state.leadership.update(
        (tp, known) for tp, known in found.items() if isinstance(known, PartitionState)
    )
    (requested,) = yield from read([Children(znodes.DELETE_TOPICS, watch=True)])
    yield from _queue_deletions(state, requested or [])
    brokers.watch_all(state, registered.values())
    for b in sorted(state.brokers):
        state.effects.append(AddBroker(state.brokers[b]))
    return {b: (registered[b], b in silent) for b in unhandled}


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


def _start_machines(state: State, bounced: Bounced) -> Procedure[None]:
    yield from requests.send_update_metadata(state, all_topics=True)
    online, offline = yield from replicas.initialize_phases(state)
    yield from replicas.change(state, online, ReplicaPhase.ONLINE)
    # the last member of an ISR stays: a dead one is better than one that may have lost records
    offline.sort(key=lambda r: r.broker not in bounced)
    yield from replicas.change(state, offline, ReplicaPhase.OFFLINE)
    partitions.initialize_phases(state)
    yield from partitions.trigger_online(state)
    for b in sorted(state.suspected):
        yield from brokers.leave(state, b)
    yield from _take_in(state, bounced)
    yield from bounces.handled(state)


def _take_in(state: State, bounced: Bounced) -> Procedure[None]:
    """Makes the bounced brokers ordinary ones: they are out of the ISRs now."""
    live = {b: info for b, (info, silent) in bounced.items() if not silent}
    state.suspected.update((b, info) for b, (info, silent) in bounced.items() if silent)
    if not live:
        return
    log.info("brokers that came back without a controller: %s", sorted(live))
    state.effects += [AddBroker(info) for info in live.values()]
    state.brokers.update(live)
    yield from brokers.started(state, list(live))
