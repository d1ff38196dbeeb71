"""Gives each topic its id, once; the id is kept in the topic's znode and sent to every broker.

Ids are given only while every registered broker supports them (`features`).  A new topic gets its
id before its first leader.  An older topic gets one as soon as each of its live replicas has
answered a LeaderAndIsr.  The answers are needed because a log may know an id that a tool has
dropped from the znode: the answer names it, and it goes back into the znode, so that a log never
gets a second id.  An id that vanishes from a znode, or changes there, is put back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from highwater.controller.rules import request_batch as requests
from highwater.controller.rules.effects import Get, Procedure, read, write
from highwater.controller.rules.events import LeaderAndIsrAnswered
from highwater.controller.rules.state import State
from highwater.kafka import topic_ids, znodes
from highwater.kafka.errors import ErrorCode
from highwater.kafka.features import TOPIC_IDS
from highwater.world.api import BadVersion, SetData

log = logging.getLogger("controller")


def loaded(state: State, topic: str, found: znodes.TopicState, czxid: int) -> None:
    """Notes the id and the czxid of a topic's znode."""
    state.created_in[topic] = czxid
    if found.topic_id is not None:
        state.topic_ids[topic] = found.topic_id


def give_new(state: State, topics: Iterable[str]) -> Procedure[None]:
    """Gives new topics their ids; no broker has a log of them yet."""
    if TOPIC_IDS in dict(state.features()):
        without = [t for t in topics if t not in state.topic_ids]
        yield from _write(state, {t: _made(state, t) for t in without})


def settle(state: State) -> Procedure[None]:
    """Gives ids to older topics that have none, and sends them to all brokers."""
    if TOPIC_IDS not in dict(state.features()):
        return
    given = {
        topic: state.ids_told.get(topic) or _made(state, topic)
        for topic in sorted(state.topics - state.topic_ids.keys())
        if not state.is_queued_for_deletion(topic) and _all_heard(state, topic)
    }
    if not given:
        return
    yield from _write(state, given)
    for topic in given:
        state.ids_heard.pop(topic, None)
        for tp in state.partitions_of(topic):
            requests.add_leader_and_isr(state, state.replicas(tp), tp, False)
    yield from requests.flush(state)


def answered(state: State, event: LeaderAndIsrAnswered) -> Procedure[None]:
    """Handles the ids in an answer to LeaderAndIsr."""
    for topic, known in event.topic_ids.items():
        if topic in state.topic_ids:
            log.error(
                "%s has the id %s, and its log on broker %d has %s: the replica takes no part",
                topic, topic_ids.to_text(state.topic_ids[topic]), event.broker_id,
                topic_ids.to_text(known),
            )  # fmt: skip
        elif topic in state.topics:
            state.ids_told.setdefault(topic, known)
    waiting = {
        tp.topic
        for tp, error in event.partition_errors.items()
        if tp.topic not in state.topic_ids and error != ErrorCode.KAFKA_STORAGE_ERROR
    }
    for topic in waiting & state.topics:
        state.ids_heard.setdefault(topic, set()).add(event.broker_id)
    if len(state.topic_ids) < len(state.topics):
        yield from settle(state)


def put_back(state: State, topic: str, found: znodes.TopicState) -> Procedure[None]:
    """Handles a changed znode: puts the id back if it is not there any more."""
    known = state.topic_ids.get(topic)
    if known is None:
        if found.topic_id is not None:
            state.topic_ids[topic] = found.topic_id
        return
    if found.topic_id == known:
        return
    log.warning(
        "%s is without its id %s, which is put back", znodes.topic_path(topic),
        topic_ids.to_text(known),
    )  # fmt: skip
    yield from _write(state, {topic: known})


def _made(state: State, topic: str) -> bytes:
    return topic_ids.made_of(state.settings.cluster_id, topic, state.created_in[topic])


def _all_heard(state: State, topic: str) -> bool:
    hosts = {
        r.broker
        for r in state.replicas_of(topic)
        if state.is_online(r.broker, r.tp, or_shutting_down=True)
    }
    return bool(hosts) and hosts <= state.ids_heard.get(topic, set())


def _write(state: State, given: dict[str, bytes]) -> Procedure[None]:
    """Writes ids into znodes, each at the version that was read; a znode that has changed (a
    partition was added, say) is read again."""
    left = given
    while left:
        answers = yield from read([Get(znodes.topic_path(t)) for t in left])
        wanted = {}
        for (topic, topic_id), answer in zip(left.items(), answers, strict=True):
            state.topic_ids[topic] = topic_id
            if answer is None or answer[1].czxid != state.created_in[topic]:
                continue  # the topic is gone, as its watch will show
            try:
                found = znodes.decode_topic(topic, answer[0])
            except znodes.BadZnode:
                continue  # `put_back` adds the id when somebody mends the znode
            data = znodes.encode_topic(found._replace(topic_id=topic_id))
            wanted[topic] = SetData(znodes.topic_path(topic), data, answer[1].version)
        results = yield from write([(op,) for op in wanted.values()])
        again = [
            topic
            for topic, result in zip(wanted, results, strict=True)
            if isinstance(result, BadVersion)
        ]
        left = {topic: given[topic] for topic in again}
