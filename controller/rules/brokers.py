"""Brokers that come, go, bounce, lose a log directory, fall under suspicion or answer again.

A broker is known by its registration and by that znode's czxid, the broker epoch.  A broker that
was away so briefly that the controller did not see it go has another epoch.  That is handled as a
failure and a start (a bounce), because the restarted broker knows nothing that was sent before.

Suspicion comes before the registration goes.  Everything done on suspicion can be undone: leaders
move only if another live member of the ISR can lead, and a replica leaves the ISR only if another
broker leads.  The rest waits for the registration to go.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from highwater.controller.rules import (
    bounces,
    giving_ids,
    partitions,
    reassignment,
    replicas,
    topic_deletion,
)
from highwater.controller.rules import request_batch as requests
from highwater.controller.rules.effects import (
    AddBroker,
    Children,
    Get,
    Procedure,
    RemoveBroker,
    Watched,
    read,
)
from highwater.controller.rules.election import Strategy
from highwater.controller.rules.events import (
    LeaderAndIsrAnswered,
    StopReplicaAnswered,
    UpdateMetadataAnswered,
)
from highwater.controller.rules.state import PartitionPhase, Replica, ReplicaPhase, State
from highwater.controller.rules.state_znodes import Failed
from highwater.kafka import znodes
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import BrokerEpoch, BrokerId, BrokerInfo
from highwater.kafka.znode_fields import is_id
from highwater.world.api import Stat

log = logging.getLogger("controller")


def read_registrations(
    known: Mapping[BrokerId, BrokerInfo] | None = None,
) -> Procedure[dict[BrokerId, BrokerInfo]]:
    """All registered brokers, with watches on the list and on each.

    A known broker stays as it was if nothing but its znode's data is damaged.
    """
    (names,) = yield from read([Children(znodes.BROKER_IDS, watch=True)])
    ids = sorted(BrokerId(int(n)) for n in names or () if is_id(n))
    answers = yield from read([Get(znodes.broker_path(b), watch=True) for b in ids])
    found: dict[BrokerId, BrokerInfo] = {}
    for broker, answer in zip(ids, answers, strict=True):
        info = decode(broker, answer)
        before = known.get(broker) if known is not None and answer is not None else None
        if info is None and before is not None and before.epoch == answer[1].czxid:
            info = before
        if info is not None:
            found[broker] = info
    return found


def changed(state: State) -> Procedure[None]:
    """Handles new or missing children of /brokers/ids."""
    known = {**state.brokers, **state.suspected}
    now = yield from read_registrations(known)
    new = [b for b in now if b not in known]
    dead = sorted(b for b in known if b not in now)
    bounced = [b for b in now if b in known and now[b].epoch != known[b].epoch]
    if not (new or dead or bounced):
        return
    log.info("new brokers %s, dead brokers %s, bounced brokers %s", new, dead, bounced)
    for b in (*bounced, *dead):
        state.effects.append(RemoveBroker(b))
    for b in sorted((*new, *bounced)):
        state.effects.append(AddBroker(now[b]))
    watch_all(state, now.values())
    if new:
        state.brokers.update((b, now[b]) for b in new)
        yield from started(state, new)
    if bounced:
        _remove(state, bounced)
        state.returning = set(bounced)
        yield from failed(state, bounced)
        state.returning = set()
        state.brokers.update((b, now[b]) for b in bounced)
        yield from started(state, bounced)
    if dead:
        _remove(state, dead)
        yield from failed(state, dead)
        yield from topic_deletion.resume_told(state)
    yield from giving_ids.settle(state)
    yield from bounces.handled(state)


def modified(state: State, broker: BrokerId) -> Procedure[None]:
    """Handles changed data of a registration: sends the new endpoints to all brokers."""
    (answer,) = yield from read([Get(znodes.broker_path(broker), watch=True)])
    info = decode(broker, answer)
    known = state.brokers.get(broker)
    if info is not None and known is None and broker not in state.suspected:
        yield from changed(state)  # its registration was not understood until now
        return
    if info is not None and known is not None and info.epoch == known.epoch and info != known:
        log.info("broker %d is registered anew: %s", broker, info)
        state.brokers[broker] = info
        state.effects += [RemoveBroker(broker), AddBroker(info)]
        going = [tp for t in state.deletion_started for tp in state.partitions_of(t)]
        yield from requests.send_update_metadata(state, going)


def started(state: State, new: Collection[BrokerId]) -> Procedure[None]:
    """Handles brokers that are live now: sends them everything, and lets them lead partitions."""
    for b in new:
        state.offline_dirs.pop(b, None)
    yield from requests.send_update_metadata(state, to=[b for b in state.brokers if b not in new])
    # all partitions, so that the new brokers can serve metadata
    yield from requests.send_update_metadata(state, state.leadership, to=new, all_topics=True)
    hosted = state.replicas_on(new)
    yield from replicas.change(state, hosted, ReplicaPhase.ONLINE)
    yield from partitions.trigger_online(state)
    yield from _leave_suspects(state)
    yield from reassignment.resume(state, lambda _, a: any(b in a.target for b in new))
    waiting = {r.tp.topic: None for r in hosted if state.is_queued_for_deletion(r.tp.topic)}
    if waiting:
        yield from topic_deletion.resume_for(state, waiting)


def failed(state: State, dead: Collection[BrokerId]) -> Procedure[None]:
    """Handles brokers that are gone (and out of `state.brokers`)."""
    for b in dead:
        state.offline_dirs.pop(b, None)
        state.shutting_down.discard(b)
    yield from replicas_offline(state, state.replicas_on(dead))


def replicas_offline(state: State, offline: Iterable[Replica]) -> Procedure[None]:
    """Handles replicas lost with brokers or directories: elects, shrinks ISRs, sends the news."""
    deleting = [r for r in offline if state.is_queued_for_deletion(r.tp.topic)]
    others = [r for r in offline if not state.is_queued_for_deletion(r.tp.topic)]
    partitions.mark(state, state.with_offline_leader(), PartitionPhase.OFFLINE)
    elections = yield from partitions.trigger_online(state)
    yield from replicas.change(state, others, ReplicaPhase.OFFLINE)
    if deleting:
        yield from topic_deletion.fail_replicas(state, deleting)
    if not others and all(isinstance(e, Failed) for e in elections.values()):
        yield from requests.send_update_metadata(state)  # no other request names the offline ones


def log_dir_failed(state: State) -> Procedure[None]:
    """Handles lost log directories: sends LeaderAndIsr, whose answers name the lost replicas."""
    (names,) = yield from read([Children(znodes.LOG_DIR_EVENTS, watch=True)])
    paths = [f"{znodes.LOG_DIR_EVENTS}/{n}" for n in names or ()]
    affected: dict[BrokerId, None] = {}
    for answer in (yield from read([Get(p) for p in paths])):
        if answer is not None:
            try:
                affected[znodes.decode_log_dir_event(answer[0])] = None
            except znodes.BadZnode as e:
                log.error("%s", e)
    yield from replicas.change(state, state.replicas_on(affected), ReplicaPhase.ONLINE)
    yield from reassignment.delete_all(paths)


# ---- answers


def leader_and_isr_answered(state: State, event: LeaderAndIsrAnswered) -> Procedure[None]:
    info = state.brokers.get(event.broker_id)
    if info is None or info.epoch != event.broker_epoch:
        return
    if event.error:
        log.error("broker %d answers LeaderAndIsr with error %d", event.broker_id, event.error)
        return
    before = state.offline_dirs.get(event.broker_id, set())
    now = set(before)
    for tp, error in event.partition_errors.items():
        if error == ErrorCode.KAFKA_STORAGE_ERROR:
            now.add(tp)
        elif error == ErrorCode.NONE:
            now.discard(tp)
    if now:
        state.offline_dirs[event.broker_id] = now
    else:
        state.offline_dirs.pop(event.broker_id, None)
    lost = sorted(now - before)
    if lost:
        log.warning("broker %d: no log directory for %s", event.broker_id, lost)
        yield from replicas_offline(state, [Replica(tp, event.broker_id) for tp in lost])
    yield from giving_ids.answered(state, event)


def stop_replica_answered(state: State, event: StopReplicaAnswered) -> Procedure[None]:
    info = state.brokers.get(event.broker_id)
    if info is None or info.epoch != event.broker_epoch:
        return  # its replicas were marked when the broker failed
    mine = {tp: e for tp, e in event.deleted.items() if tp.topic in state.deletion_started}
    if not mine:
        return
    bad = [Replica(tp, event.broker_id) for tp, e in mine.items() if event.error or e]
    good = [Replica(tp, event.broker_id) for tp, e in mine.items() if not (event.error or e)]
    yield from topic_deletion.fail_replicas(state, bad)
    if good:
        yield from topic_deletion.complete_replicas(state, good)


def update_metadata_answered(state: State, event: UpdateMetadataAnswered) -> Procedure[None]:
    info = state.brokers.get(event.broker_id)
    if info is not None and info.epoch == event.broker_epoch and not event.error:
        yield from topic_deletion.told(state, event.broker_id, event.gone)


def resend_all(state: State, broker: BrokerId) -> Procedure[None]:
    """Sends a slow broker the whole state again, after its queue was dropped."""
    info = state.brokers.get(broker)
    if info is None:
        return
    log.warning("broker %d is too slow with its requests: all is sent again", broker)
    state.effects += [RemoveBroker(broker), AddBroker(info)]
    stopped = [
        r
        for r in state.replicas_on((broker,))
        if state.replica_phases.get(r) is ReplicaPhase.DELETION_STARTED
    ]
    yield from requests.send_update_metadata(state, state.leadership, to=(broker,))
    hosted = [r for r in state.replicas_on((broker,)) if r not in set(stopped)]
    yield from replicas.change(state, hosted, ReplicaPhase.ONLINE)
    for r in stopped:
        requests.add_stop_replica(state, (broker,), r.tp, delete=True)
    yield from requests.flush(state)


# ---- suspicion


def suspect(state: State, broker: BrokerId) -> Procedure[None]:
    info = state.brokers.get(broker)
    if info is None:
        return
    log.warning("broker %d does not answer: leaders move away from it", broker)
    _remove(state, (broker,))
    state.suspected[broker] = info
    state.effects.append(RemoveBroker(broker))
    yield from leave(state, broker)


def recover(state: State, broker: BrokerId) -> Procedure[None]:
    """Handles a suspect that answers: sends it all state again, as after a bounce."""
    info = state.suspected.pop(broker, None)
    if info is None:
        return
    log.warning("broker %d answers again", broker)
    state.brokers[broker] = info
    state.effects.append(AddBroker(info))
    yield from started(state, (broker,))


def leave(state: State, broker: BrokerId) -> Procedure[None]:
    """Takes from a suspect what others can take over."""
    state.shutting_down.discard(broker)
    hosted = state.replicas_on((broker,))
    yield from _leave_suspects(state)
    deleting = [r for r in hosted if state.is_queued_for_deletion(r.tp.topic)]
    others = [
        r
        for r in hosted
        if not state.is_queued_for_deletion(r.tp.topic) and state.leader(r.tp) != broker
    ]
    yield from replicas.change(state, others, ReplicaPhase.OFFLINE)
    if deleting:
        yield from topic_deletion.fail_replicas(state, deleting)
    if not others:
        yield from requests.send_update_metadata(state)


def _leave_suspects(state: State) -> Procedure[None]:
    """Elects new leaders for suspects' partitions, if another member of the ISR is live.

    If no other broker can lead, the election fails, and everything stays as it was.
    """
    led = [
        tp
        for tp, known in state.leadership.items()
        if known.leader in state.suspected and not state.is_queued_for_deletion(tp.topic)
    ]
    yield from partitions.bring_online(state, led, Strategy.SUSPECTED)


# ---- parts


def watch_all(state: State, registered: Iterable[BrokerInfo]) -> None:
    state.effects.append(Watched(tuple(registered)))


def decode(broker: BrokerId, answer: tuple[bytes, Stat] | None) -> BrokerInfo | None:
    """A registration; its czxid is the broker epoch."""
    if answer is None:
        return None
    data, stat = answer
    try:
        return znodes.decode_broker(broker, data, BrokerEpoch(stat.czxid))
    except znodes.BadZnode as e:
        log.error("%s: the broker is ignored", e)
        return None


def _remove(state: State, gone: Iterable[BrokerId]) -> None:
    for b in gone:
        state.brokers.pop(b, None)
        state.suspected.pop(b, None)
        for told in (*state.told_of_deletion.values(), *state.ids_heard.values()):
            told.discard(b)
