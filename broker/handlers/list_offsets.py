"""ListOffsets, API 2, v1-7: the first, the latest, or the first offset at or after a time.

Timestamps -1 (latest), -2 (earliest), -3 (that of the largest timestamp, v7).  "Latest" is the HW
for a consumer, the LSO under read_committed, the LEO for a follower.  A new leader whose HW has not
reached the start of its epoch answers OFFSET_NOT_AVAILABLE (v5; LEADER_NOT_AVAILABLE before), as
its HW may lie below what clients have seen (KIP-207). Deviation: v0 (several offsets for a time) is
not offered.
"""

from __future__ import annotations

from typing import Any

from broker.context import Api, Context, Reply
from broker.response import Response
from highwater.common.errors import ApiError, ErrorCode
from highwater.common.types import TopicPartition
from highwater.common.wire.messages import ListOffsetsResponse

API = Api(key=2, name="ListOffsets", versions=(1, 7))

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
CONSUMER = -1
UNKNOWN = (-1, -1, -1)

_Topic = ListOffsetsResponse.ListOffsetsTopicResponse
_Partition = _Topic.ListOffsetsPartitionResponse


def handle(ctx: Context, request: Any) -> Reply:
    topics, names = [], []
    for topic in request.topics:
        partitions = []
        for p in topic.partitions:
            tp = TopicPartition(topic.name, p.partition_index)
            code, (timestamp, offset, epoch) = ErrorCode.NONE, UNKNOWN
            try:
                timestamp, offset, epoch = _find(ctx, request, tp, p)
            except ApiError as e:
                code = e.code
                if code is ErrorCode.OFFSET_NOT_AVAILABLE and ctx.version < 5:
                    code = ErrorCode.LEADER_NOT_AVAILABLE
                names.append(code.name)
            partitions.append(
                _Partition(
                    partition_index=tp.partition,
                    error_code=int(code),
                    timestamp=timestamp,
                    offset=offset,
                    leader_epoch=epoch,
                )
            )
        topics.append(_Topic(name=topic.name, partitions=partitions))
    return Response(ListOffsetsResponse(topics=topics), error_names=tuple(names))


def _find(ctx: Context, request: Any, tp: TopicPartition, asked: Any) -> tuple[int, int, int]:
    """(timestamp, offset, leader epoch), -1 where there is none; raises ApiError."""
    partition = ctx.services.replicas.partition(tp)
    partition.check_leader_epoch(asked.current_leader_epoch)
    log = partition.leader_log()
    consumer = request.replica_id == CONSUMER
    isolation = request.isolation_level if consumer and ctx.version >= 2 else 0
    if asked.timestamp == LATEST:
        latest = partition.latest_offset(isolation) if consumer else log.log_end_offset
        return -1, latest, int(partition.leader_epoch)
    if asked.timestamp == EARLIEST:
        epoch = log.epochs.epoch_for_offset(log.log_start_offset)
        return -1, log.log_start_offset, epoch
    limit = partition.latest_offset(isolation) if consumer else log.log_end_offset
    if asked.timestamp < 0 and asked.timestamp != MAX_TIMESTAMP:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    with ctx.services.replicas.disk_of(partition):
        if asked.timestamp == MAX_TIMESTAMP:
            found = log.max_timestamp_offset()
        else:
            found = log.offset_for_timestamp(asked.timestamp)
    if found is None or found[1] >= limit:
        return UNKNOWN
    return found
