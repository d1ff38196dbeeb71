"""Deletion of topics (Kafka's TopicDeletionManager).

A topic is deleted when all of its replicas have reported their deletion, and all live brokers have
answered that they know of it: no later controller could tell them.  Until then it stays queued
(/admin/delete_topics/T), across restarts of brokers and controllers.  A replica that is not there,
or whose broker fails meanwhile, makes the topic ineligible; when that broker returns, the topic is
eligible again, and the deletion goes on from where it was.  A topic that is being reassigned is
ineligible, too.

At the end the topic's own znodes go first, then its configuration, and last the request itself, so
that a new controller finds the request as long as anything is left to do.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from highwater.controller.rules import partitions, replicas, topics
from highwater.controller.rules import request_batch as requests
from highwater.controller.rules.effects import Children, Procedure, read, write
from highwater.controller.rules.state import PartitionPhase, Replica, ReplicaPhase, State
from highwater.kafka import znodes
from highwater.kafka.types import BrokerId, TopicPartition
from highwater.kafka.znode_fields import is_id
from highwater.world.api import Delete, NoNode, ZkError, ZkOp

log = logging.getLogger("controller")


def queue_existing(
    state: State, requested_before: Iterable[str], ineligible: Iterable[str]
) -> Procedure[None]:
    """Queues, at a controller's start, the deletions that earlier controllers have left."""
    found = list(requested_before)
    if not state.settings.delete_topic_enable:
        yield from forget_requests(found)
        return
    state.to_be_deleted.update(dict.fromkeys(found))
    state.ineligible_for_deletion.update(t for t in ineligible if t in state.to_be_deleted)


def requested(state: State) -> Procedure[None]:
    """Handles a change of /admin/delete_topics."""
    (names,) = yield from read([Children(znodes.DELETE_TOPICS, watch=True)])
    if any(t not in state.topics for t in names or ()):
        yield from topics.changed(state)  # one may have been created after they were read last
        unknown = [t for t in names or () if t not in state.topics]
        if unknown:
            log.warning("no such topics to delete: %s", ", ".join(unknown))
            yield from forget_requests(unknown)
    wanted = [t for t in names or () if t in state.topics]
    if not state.settings.delete_topic_enable:
        yield from forget_requests(wanted)
        return
    moving = {tp.topic for tp in state.reassigning}
    state.to_be_deleted.update(dict.fromkeys(wanted))
    mark_ineligible(state, [t for t in wanted if t in moving], "it is being reassigned")
    if wanted:
        yield from resume(state)


def resume_for(state: State, names: Iterable[str]) -> Procedure[None]:
    """Goes on with these topics' deletion after an obstacle is gone."""
    waiting = [t for t in names if t in state.to_be_deleted]
    if waiting:
        state.ineligible_for_deletion.difference_update(waiting)
        yield from resume(state)


def mark_ineligible(state: State, names: Iterable[str], why: str) -> None:
    for topic in names:
        if topic in state.to_be_deleted:
            log.info("deletion of %s waits: %s", topic, why)
            state.ineligible_for_deletion.add(topic)


def fail_replicas(state: State, failed: Iterable[Replica]) -> Procedure[None]:
    """Handles replicas that could not be deleted (an error, or the broker is gone)."""
    waiting = [r for r in failed if r.tp.topic in state.to_be_deleted]
    if waiting:
        yield from _to_ineligible(state, waiting)
        mark_ineligible(state, dict.fromkeys(r.tp.topic for r in waiting), "a replica failed")
        yield from resume(state)


def complete_replicas(state: State, deleted: Iterable[Replica]) -> Procedure[None]:
    """Handles replicas that were deleted on their brokers."""
    waiting = [r for r in deleted if r.tp.topic in state.to_be_deleted]
    yield from replicas.change(state, waiting, ReplicaPhase.DELETION_SUCCESSFUL)
    yield from resume(state)


def told(state: State, broker: BrokerId, names: Iterable[str]) -> Procedure[None]:
    """Handles a broker's answer that it knows of these topics' deletion."""
    for topic in names:
        if topic in state.to_be_deleted:
            state.told_of_deletion.setdefault(topic, set()).add(broker)
    yield from resume_told(state)


def resume_told(state: State) -> Procedure[None]:
    """Finishes deletions that waited only for a broker that knows by now, or is gone."""
    if any(_may_end(state, topic) for topic in state.to_be_deleted):
        yield from resume(state)


def _may_end(state: State, topic: str) -> bool:
    if not state.all_replicas_in(topic, ReplicaPhase.DELETION_SUCCESSFUL):
        return False
    if not any(tp in state.leadership for tp in state.partitions_of(topic)):
        return True  # no broker knows that there is such a topic
    # a suspect, or a broker with a new session, may be the same process, and answer from memory
    asked = {*state.brokers, *state.suspected, *state.returning}
    return asked <= state.told_of_deletion.get(topic, set())


def resume(state: State) -> Procedure[None]:
    """Finishes the deletions that are complete, and starts or restarts those that can go on."""
    if not state.settings.delete_topic_enable:
        return
    retry: list[str] = []
    eligible: list[str] = []
    for topic in list(state.to_be_deleted):
        if state.all_replicas_in(topic, ReplicaPhase.DELETION_SUCCESSFUL):
            if _may_end(state, topic):
                yield from _complete(state, topic)
            continue
        if not state.any_replica_in(topic, ReplicaPhase.DELETION_STARTED):
            if state.any_replica_in(topic, ReplicaPhase.DELETION_INELIGIBLE):
                retry.append(topic)
            if topic not in state.ineligible_for_deletion:
                eligible.append(topic)
    failed = [
        r
        for topic in retry
        for r in state.replicas_of(topic)
        if state.replica_phases.get(r) is ReplicaPhase.DELETION_INELIGIBLE
    ]
    yield from replicas.change(state, failed, ReplicaPhase.OFFLINE)
    if eligible:
        yield from _start(state, eligible)


def _start(state: State, names: list[str]) -> Procedure[None]:
    unseen = [tp for t in names if t not in state.deletion_started for tp in state.partitions_of(t)]
    partitions.mark(state, unseen, PartitionPhase.OFFLINE)
    partitions.mark(state, unseen, PartitionPhase.NON_EXISTENT)
    state.deletion_started.update(names)
    log.info("deleting %s", ", ".join(names))
    # brokers learn first that the topics go (leader -2), and stop serving them
    yield from requests.send_update_metadata(
        state, [tp for t in names for tp in state.partitions_of(t)]
    )
    dead: list[Replica] = []
    alive: list[Replica] = []
    for topic in names:
        for r in state.replicas_of(topic):
            if not state.is_online(r.broker, r.tp):
                dead.append(r)
            elif state.replica_phases.get(r) is not ReplicaPhase.DELETION_SUCCESSFUL:
                alive.append(r)
    yield from _to_ineligible(state, dead)
    yield from replicas.change(state, alive, ReplicaPhase.OFFLINE)
    yield from replicas.change(state, alive, ReplicaPhase.DELETION_STARTED)
    mark_ineligible(state, dict.fromkeys(r.tp.topic for r in dead), "a replica is not there")


def _to_ineligible(state: State, failed: list[Replica]) -> Procedure[None]:
    """Makes replicas ineligible, by way of Offline if they are not there yet."""
    running = (ReplicaPhase.ONLINE, ReplicaPhase.NEW)
    failing = (ReplicaPhase.OFFLINE, ReplicaPhase.DELETION_STARTED)
    online = [r for r in failed if state.replica_phases.get(r) in running]
    yield from replicas.change(state, online, ReplicaPhase.OFFLINE)
    offline = [r for r in failed if state.replica_phases.get(r) in failing]
    yield from replicas.change(state, offline, ReplicaPhase.DELETION_INELIGIBLE)


def _complete(state: State, topic: str) -> Procedure[None]:
    yield from replicas.change(state, state.replicas_of(topic), ReplicaPhase.NON_EXISTENT)
    if (yield from _delete_znodes(topic)):
        log.info("deleted %s", topic)
        state.to_be_deleted.pop(topic, None)
        state.deletion_started.discard(topic)
        state.told_of_deletion.pop(topic, None)
        state.ineligible_for_deletion.discard(topic)
        state.forget_topic(topic)


def _delete_znodes(topic: str) -> Procedure[bool]:
    """Deletes everything of the topic; missing znodes count as deleted."""
    parent = znodes.partitions_path(topic)
    (numbers,) = yield from read([Children(parent)])
    ids = [TopicPartition(topic, int(n)) for n in numbers or () if is_id(n)]
    results = yield from write(
        [(Delete(znodes.state_path(tp)), Delete(znodes.partition_path(tp))) for tp in ids]
    )
    singles: list[ZkOp] = []
    for tp, result in zip(ids, results, strict=True):
        if isinstance(result, ZkError):
            singles += [Delete(znodes.state_path(tp)), Delete(znodes.partition_path(tp))]
    rest: tuple[ZkOp, ...] = (
        Delete(parent),
        Delete(znodes.topic_path(topic)),
        Delete(znodes.config_path("topics", topic)),
        Delete(znodes.delete_topic_path(topic)),
    )
    if not singles:
        (result,) = yield from write([rest])
        if not isinstance(result, ZkError):
            return True
    for op in (*singles, *rest):
        (result,) = yield from write([(op,)])
        if isinstance(result, ZkError) and not isinstance(result, NoNode):
            log.error("deletion of %s stops at %s: %s", topic, op.path, result)
            return False
    return True


def forget_requests(names: Iterable[str]) -> Procedure[None]:
    yield from write([(Delete(znodes.delete_topic_path(t)),) for t in names])
