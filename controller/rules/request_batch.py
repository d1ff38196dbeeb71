"""The batch: one LeaderAndIsr, one UpdateMetadata and one StopReplica for each broker and change.

The order of the three matters.  UpdateMetadata comes after LeaderAndIsr, so that clients are not
sent to a leader that does not know yet that it leads; StopReplica comes last, so that others
follow a new leader before the old replica goes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from highwater.controller.rules.effects import (
    AT_ONCE,
    PAUSE,
    LeaderAndIsrPartition,
    MetadataPartition,
    Procedure,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
    StopReplicaPartition,
    in_turns,
)
from highwater.controller.rules.state import Batch, State
from highwater.kafka.topic_ids import NO_ID
from highwater.kafka.types import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    UNKNOWN_EPOCH,
    BrokerId,
    BrokerInfo,
    LeaderEpoch,
    TopicPartition,
    ZkVersion,
)


def add_leader_and_isr(
    state: State, brokers: Iterable[BrokerId], tp: TopicPartition, is_new: bool
) -> None:
    """Adds the partition's state for these brokers, and its metadata for all."""
    batch = state.batch
    for broker in brokers:
        if broker >= 0:
            partitions = batch.leader_and_isr.setdefault(broker, {})
            partitions[tp] = is_new or partitions.get(tp, False)
    batch.metadata_to_all = True
    batch.metadata_partitions[tp] = None


def add_stop_replica(
    state: State, brokers: Iterable[BrokerId], tp: TopicPartition, delete: bool
) -> None:
    for broker in brokers:
        if broker >= 0:
            partitions = state.batch.stop_replica.setdefault(broker, {})
            partitions[tp] = delete or partitions.get(tp, False)


def add_update_metadata(
    state: State,
    partitions: Iterable[TopicPartition] = (),
    *,
    to: Iterable[BrokerId] | None = None,
) -> None:
    """Adds the live brokers and these partitions' states, for some brokers or for all."""
    if to is None:
        state.batch.metadata_to_all = True
    else:
        state.batch.metadata_brokers.update(dict.fromkeys(to))
    state.batch.metadata_partitions.update(dict.fromkeys(partitions))


def send_update_metadata(
    state: State,
    partitions: Iterable[TopicPartition] = (),
    *,
    to: Iterable[BrokerId] | None = None,
    all_topics: bool = False,
) -> Procedure[None]:
    add_update_metadata(state, partitions, to=to)
    state.batch.all_topics |= all_topics
    yield from flush(state)


def flush(state: State) -> Procedure[None]:
    """Turns the batch into effects."""
    batch = state.batch
    if not batch:
        return
    state.batch = Batch()
    for broker in sorted(batch.leader_and_isr):
        info = state.brokers.get(broker)
        if info is not None:
            _leader_and_isr(state, info, batch.leader_and_isr[broker])
            if len(batch.leader_and_isr[broker]) >= AT_ONCE:
                yield PAUSE
    if batch.metadata_to_all or batch.metadata_brokers:
        yield from _update_metadata(state, batch)
    for broker in sorted(batch.stop_replica):
        info = state.brokers.get(broker)
        if info is not None:
            state.effects.append(
                SendStopReplica(
                    broker,
                    info.epoch,
                    tuple(
                        StopReplicaPartition(tp, _stop_epoch(state, tp), delete)
                        for tp, delete in batch.stop_replica[broker].items()
                    ),
                )
            )


def _leader_and_isr(state: State, to: BrokerInfo, wanted: dict[TopicPartition, bool]) -> None:
    leadership, ids = state.leadership, state.topic_ids
    partitions = tuple(
        [
            LeaderAndIsrPartition(
                tp, leadership[tp], state.assignment(tp), is_new, ids.get(tp.topic, NO_ID)
            )
            for tp, is_new in wanted.items()
            if tp in leadership
        ]
    )
    if partitions:
        leaders = sorted({p.state.leader for p in partitions})
        # a suspected leader may answer again any time, and no broker would tell its followers then
        known = {**state.brokers, **state.suspected} if state.suspected else state.brokers
        state.effects.append(
            SendLeaderAndIsr(
                to.id,
                to.epoch,
                partitions,
                tuple([known[b] for b in leaders if b in known]),
            )
        )


def _update_metadata(state: State, batch: Batch) -> Procedure[None]:
    live = tuple([state.brokers[b] for b in sorted(state.brokers)])
    to_all, some = batch.metadata_to_all, batch.metadata_brokers
    brokers = tuple([(b.id, b.epoch) for b in live if to_all or b.id in some])
    if not brokers:
        return
    known = [tp for tp in batch.metadata_partitions if tp in state.leadership]
    partitions = yield from in_turns(partial(_metadata, state), known)
    topics = tuple(sorted(state.topics)) if batch.all_topics else None
    levels, epoch = state.features_to_send()
    state.effects.append(
        SendUpdateMetadata(brokers, tuple(partitions), live, levels, epoch, topics)
    )


def _metadata(state: State, tp: TopicPartition) -> MetadataPartition:
    known = state.leadership[tp]
    if tp.topic in state.to_be_deleted:
        known = known._replace(
            leader=LEADER_DURING_DELETE, leader_epoch=LeaderEpoch(0), zk_version=ZkVersion(0)
        )
    replicas = state.replicas(tp)
    offline = tuple([r for r in replicas if not state.is_online(r, tp)])
    return MetadataPartition(tp, known, replicas, offline, state.topic_ids.get(tp.topic, NO_ID))


def _stop_epoch(state: State, tp: TopicPartition) -> LeaderEpoch:
    """The leader epoch for StopReplica.  The replica stops unless it knows a later one; -2 wins
    over any (KIP-570)."""
    if tp.topic in state.to_be_deleted:
        return EPOCH_DURING_DELETE
    known = state.leadership.get(tp)
    return UNKNOWN_EPOCH if known is None else known.leader_epoch
