"""Asks a leader, for a follower, where its logs begin or end (ListOffsets)."""

from __future__ import annotations

from collections.abc import Mapping

from highwater.kafka.client.connection import ClientConnection
from highwater.kafka.types import BrokerId, LeaderEpoch, TopicPartition
from highwater.kafka.wire.messages import ListOffsetsRequest

VERSION = 5
LATEST, EARLIEST = -1, -2


async def list_offsets(
    connection: ClientConnection,
    broker_id: BrokerId,
    epochs: Mapping[TopicPartition, LeaderEpoch],
    which: int,
    timeout_s: float,
) -> dict[TopicPartition, int]:
    """The log end offset (LATEST) or log start offset (EARLIEST) of each partition, without
    those that the leader answers with an error.  Raises OSError.
    """
    request = ListOffsetsRequest
    topics: dict[str, list[object]] = {}
    for tp, epoch in epochs.items():
        partition = request.ListOffsetsTopic.ListOffsetsPartition(
            partition_index=tp.partition, current_leader_epoch=epoch, timestamp=which
        )
        topics.setdefault(tp.topic, []).append(partition)
    answer = await connection.call(
        request(
            replica_id=broker_id,
            isolation_level=0,
            topics=[request.ListOffsetsTopic(name=t, partitions=p) for t, p in topics.items()],
        ),
        VERSION,
        timeout_s,
    )
    return {
        TopicPartition(topic.name, p.partition_index): int(p.offset)
        for topic in answer.topics
        for p in topic.partitions
        if not p.error_code
    }
