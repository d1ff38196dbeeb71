"""Handles topics that appear, grow or vanish in ZooKeeper.

Whichever broker gets the request creates a topic by writing its assignment to /brokers/topics/T.
The controller notices the child and brings the partitions online.  More partitions come in the same
way, as a change of that znode.  Deletion is in `topic_deletion`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from highwater.controller.rules import giving_ids, partitions, replicas
from highwater.controller.rules.effects import Children, Get, Procedure, read, write
from highwater.controller.rules.election import Strategy
from highwater.controller.rules.state import PartitionPhase, Replica, ReplicaPhase, State
from highwater.kafka import znodes
from highwater.kafka.topic_names import problem_with
from highwater.kafka.types import TopicPartition
from highwater.world.api import SetData

log = logging.getLogger("controller")
_SHOWN = 300


def changed(state: State) -> Procedure[None]:
    """Handles new or missing children of /brokers/topics."""
    (names,) = yield from read([Children(znodes.TOPICS, watch=True)])
    there = set(names or ())
    for topic in sorted(state.topics - there):
        log.info("topic %s is gone from ZooKeeper", topic)
        state.forget_topic(topic)
    added = yield from load(state, [t for t in names or () if t not in state.topics])
    if not added:
        return
    new = dict.fromkeys(tp.topic for tp in added)
    log.info("new topics: %s", ", ".join(new))
    yield from giving_ids.give_new(state, new)
    yield from _create(state, added)


def load(state: State, names: Iterable[str]) -> Procedure[list[TopicPartition]]:
    """Reads assignments, with a watch on each; returns the partitions."""
    wanted = list(names)
    answers = yield from read([Get(znodes.topic_path(t), watch=True) for t in wanted])
    loaded: list[TopicPartition] = []
    for topic, answer in zip(wanted, answers, strict=True):
        found = None if answer is None else decode(topic, answer[0])
        if found is None:
            continue  # gone again, as the watch on the parent will show
        state.topics.add(topic)
        giving_ids.loaded(state, topic, found, answer[1].czxid)
        for partition, assignment in found.partitions.items():
            tp = TopicPartition(topic, partition)
            state.assign(tp, assignment)
            if assignment.is_being_reassigned:
                state.reassigning[tp] = None
            loaded.append(tp)
    return loaded


def modified(state: State, topic: str) -> Procedure[None]:
    """Handles changed data of /brokers/topics/T: only new partitions and the id matter.

    This controller writes every other change of an assignment itself.
    """
    (answer,) = yield from read([Get(znodes.topic_path(topic), watch=True)])
    if topic not in state.topics:
        yield from changed(state)  # its znode could not be read until now
        return
    found = None if answer is None else decode(topic, answer[0])
    if found is None:
        return
    yield from giving_ids.put_back(state, topic, found)
    new = {
        TopicPartition(topic, p): a
        for p, a in found.partitions.items()
        if not state.replicas(TopicPartition(topic, p))
    }
    if not new:
        return
    if state.is_queued_for_deletion(topic):
        log.warning("%s is being deleted: its new partitions are taken back", topic)
        yield from _restore(state, topic, found)
        return
    for tp, assignment in new.items():
        state.assign(tp, assignment)
    log.info("new partitions: %s", ", ".join(map(str, new)))
    yield from _create(state, list(new))


def _create(state: State, new: list[TopicPartition]) -> Procedure[None]:
    hosts = [Replica(tp, r) for tp in new for r in state.replicas(tp)]
    partitions.mark(state, new, PartitionPhase.NEW)
    yield from replicas.change(state, hosts, ReplicaPhase.NEW)
    yield from partitions.bring_online(state, new, Strategy.OFFLINE)
    yield from replicas.change(state, hosts, ReplicaPhase.ONLINE)


def _restore(state: State, topic: str, found: znodes.TopicState) -> Procedure[None]:
    known = state.assignments.get(topic, {})
    if known:
        old = znodes.TopicState(
            {p: known[p] for p in found.partitions if p in known}, state.topic_ids.get(topic)
        )
        yield from write([(SetData(znodes.topic_path(topic), znodes.encode_topic(old)),)])


def decode(topic: str, data: bytes) -> znodes.TopicState | None:
    """A topic's znode; None, with one line in the log, if it is ignored until it is correct.

    A topic with a name that no client could choose is ignored, too: it may be impossible for a
    folder, and a broker that cannot create a folder gives up the disk.
    """
    problem = problem_with(topic)
    if problem is not None:
        log.error("%s is passed over: %s", znodes.topic_path(topic)[:_SHOWN], problem[:_SHOWN])
        return None
    try:
        return znodes.decode_topic(topic, data)
    except znodes.BadZnode as e:
        log.error("%s; it is passed over", e)
        return None
