"""Finds the replicas that a reassignment took from this broker while it was away.

The controller's StopReplica did not reach the broker then, and no LeaderAndIsr names it for these
partitions any more.  A leader among the replicas would go on serving the clients that still use it,
in an epoch that is over.  So the broker looks for such replicas in UpdateMetadata, which lists each
partition's replicas, and stops and deletes them as StopReplica would have done.

Source: KafkaController.stopRemovedReplicasOfReassignedPartition, which reaches live brokers only.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import TYPE_CHECKING

from highwater.broker.metadata.metadata_update import STEP, MetadataUpdate
from highwater.broker.replica.partition_states import StopReplica
from highwater.kafka.types import TopicPartition

if TYPE_CHECKING:
    from highwater.broker.replica.replica_manager import ReplicaManager

log = logging.getLogger(__name__)


def strays(
    replicas: ReplicaManager, update: MetadataUpdate
) -> Generator[None, None, list[StopReplica]]:
    """This broker's replicas of partitions that the update assigns to other brokers, in a newer
    leader epoch than the replica knows.  Pauses after each STEP partitions."""
    found: list[StopReplica] = []
    for n, tp in enumerate(update.partitions(), 1):
        state = update.topics[tp.topic][tp.partition]
        # a replica that is taken away stays in the ISR, and counts there, for a moment
        if state is not None and replicas.broker_id not in (*state.replicas, *state.isr):
            known = _last_epoch(replicas, tp)
            if known is not None and known < state.leader_epoch:
                log.info(
                    "%s has replicas %s in epoch %d: the one here, of epoch %d, is deleted",
                    tp, list(state.replicas), state.leader_epoch, known,
                )  # fmt: skip
                found.append(StopReplica(tp, state.leader_epoch, delete=True))
        if n % STEP == 0:
            yield
    return found


def _last_epoch(replicas: ReplicaManager, tp: TopicPartition) -> int | None:
    """The newest leader epoch that this broker's replica knows, or -1; None without a replica."""
    partition, replica_log = replicas.partitions.get(tp), replicas.logs.get(tp)
    if partition is None and replica_log is None:
        return None
    own = -1 if replica_log is None else replica_log.epochs.latest
    return own if partition is None else max(own, int(partition.leader_epoch))
