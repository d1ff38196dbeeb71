"""ListOffsets, API 2, v1-10: the first offset, the latest, or the first at or after a time.

Timestamps -1 (latest), -2 (earliest), -3 (that of the largest timestamp, v7), -4 (the earliest on
this disk, v8: the earliest, as all is there), -5 (the latest of tiered storage, v9: none).
"Latest" is the HW for a consumer, the LSO under read_committed, the LEO for a follower.  A new
leader whose HW has not reached the start of its epoch answers OFFSET_NOT_AVAILABLE (v5;
LEADER_NOT_AVAILABLE before), as its HW may lie below what clients have seen (KIP-207).  A partition
that is named twice is INVALID_REQUEST, each time.  Deviation: v0 (several offsets for a time) is
not offered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from highwater.broker.context import Access, Api, Context, Reply, of
from highwater.broker.log.cold_reads import PLACES, read_at_once, read_loaded
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import ListOffsetsResponse
from highwater.world.api import ColdRead

if TYPE_CHECKING:
    from highwater.broker.replica.partition import Partition

API = Api(
    key=2,
    name="ListOffsets",
    versions=(1, 10),
    access=Access(
        each=of(ResourceType.TOPIC, Operation.DESCRIBE, "name"), items=("topics",), answers="topics"
    ),
)

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
EARLIEST_LOCAL, LATEST_TIERED = -4, -5
FIRST_WITH = {EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
"""The version that brought each of them."""
CONSUMER = -1
ISOLATION_LEVELS = (0, 1)
UNKNOWN = (-1, -1, -1)

_Topic = ListOffsetsResponse.ListOffsetsTopicResponse
_Partition = _Topic.ListOffsetsPartitionResponse


def handle(ctx: Context, request: Any) -> Reply | Awaitable[Reply]:
    if request.replica_id == CONSUMER and (request.isolation_level or 0) not in ISOLATION_LEVELS:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
    repeated = _repeated(request)
    try:
        found = read_at_once(
            ctx.services.world.disk,
            lambda: [_partition(ctx, request, topic, p, repeated) for topic, p in _asked(request)],
        )
    except ColdRead:
        return _from_disk(ctx, request, repeated)
    return _response(request, found)


def _repeated(request: Any) -> frozenset[TopicPartition]:
    """The partitions that the request names more than once."""
    counted = Counter(TopicPartition(topic, p.partition_index) for topic, p in _asked(request))
    return frozenset(tp for tp, times in counted.items() if times > 1)


async def _from_disk(ctx: Context, request: Any, repeated: frozenset[TopicPartition]) -> Reply:
    """Looks a timestamp up in indexes and in the log, once the disk has given what is needed."""
    found, replicas, disk = [], ctx.services.replicas, ctx.services.world.disk
    for topic, p in _asked(request):
        partition = replicas.partitions.get(TopicPartition(topic, p.partition_index))
        look = partial(_partition, ctx, request, topic, p, repeated)
        failed = partial(replicas.disk_failed, partition)
        found.append(await read_loaded(disk, look, failed, _places(partition)))
    return _response(request, found)


def _asked(request: Any) -> Iterator[tuple[str, Any]]:
    return ((topic.name, p) for topic in request.topics for p in topic.partitions)


def _places(partition: Partition | None) -> int:
    """The places to load: each segment's time index may be needed to choose the one to search."""
    log = None if partition is None else partition.log
    return PLACES + (0 if log is None else len(log.segments))


def _response(request: Any, found: Sequence[Any]) -> Response:
    partitions = iter(found)
    topics = [
        _Topic(name=topic.name, partitions=list(islice(partitions, len(topic.partitions))))
        for topic in request.topics
    ]
    errors = tuple(ErrorCode(p.error_code).name for p in found if p.error_code)
    return Response(ListOffsetsResponse(topics=topics), error_names=errors)


def _partition(
    ctx: Context, request: Any, topic: str, asked: Any, repeated: frozenset[TopicPartition]
) -> Any:
    tp = TopicPartition(topic, asked.partition_index)
    code, (timestamp, offset, epoch) = ErrorCode.NONE, UNKNOWN
    try:
        if tp in repeated:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        timestamp, offset, epoch = _find(ctx, request, tp, asked)
    except ApiError as e:
        code = e.code
        if code is ErrorCode.OFFSET_NOT_AVAILABLE and ctx.version < 5:
            code = ErrorCode.LEADER_NOT_AVAILABLE
    return _Partition(
        partition_index=tp.partition,
        error_code=int(code),
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch,
    )


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
    if ctx.version < FIRST_WITH.get(asked.timestamp, 0):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    if asked.timestamp in (EARLIEST, EARLIEST_LOCAL):
        epoch = log.epochs.epoch_for_offset(log.log_start_offset)
        return -1, log.log_start_offset, epoch
    if asked.timestamp == LATEST_TIERED:
        return UNKNOWN
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


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    found = [
        _Partition(
            partition_index=p.partition_index,
            error_code=int(code),
            timestamp=-1,
            offset=-1,
            leader_epoch=-1,
        )
        for _, p in _asked(request)
    ]
    return _response(request, found)
