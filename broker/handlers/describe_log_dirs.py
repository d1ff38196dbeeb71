"""DescribeLogDirs, API 35, v0-4: the log directories of this broker, with the size and lag of each
replica.

A directory that has failed has the error KAFKA_STORAGE_ERROR.  The lag is the distance from a log's
end to its HW; for a copy in the making (KIP-113) it is the distance to the end of the current log.
v4 adds the size of the volume and its usable space (KIP-827).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from highwater.broker.admin.mutations import by_topic, error_names
from highwater.broker.context import Access, Api, Context, Reply, cluster
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode
from highwater.kafka.security.acls import Operation
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import DescribeLogDirsResponse

if TYPE_CHECKING:
    from highwater.broker.log.log_manager import LogManager

log = logging.getLogger(__name__)

API = Api(
    key=35,
    name="DescribeLogDirs",
    versions=(0, 4),
    access=Access(whole=(cluster(Operation.DESCRIBE),)),
)

UNKNOWN_BYTES = -1
_Dir = DescribeLogDirsResponse.DescribeLogDirsResult
_Topic = _Dir.DescribeLogDirsTopic
_Partition = _Topic.DescribeLogDirsPartition


def handle(ctx: Context, request: Any) -> Reply:
    wanted = None
    if request.topics is not None:
        wanted = {TopicPartition(t.topic, p) for t in request.topics for p in t.partitions}
    logs = ctx.services.logs
    results, codes = [], []
    for folder in ctx.services.config.log_dirs:
        code, topics, space = ErrorCode.KAFKA_STORAGE_ERROR, [], (UNKNOWN_BYTES, UNKNOWN_BYTES)
        if folder not in logs.offline_dirs:
            try:
                space = ctx.services.world.disk.space(folder)
            except OSError as e:
                log.warning("the size of the volume of %s is not known: %s", folder, e)
            code, topics = ErrorCode.NONE, _topics(_replicas(logs, folder, wanted))
        results.append(
            _Dir(
                error_code=int(code),
                log_dir=folder,
                topics=topics,
                total_bytes=space[0],
                usable_bytes=space[1],
            )
        )
        codes.append(code)
    answer = DescribeLogDirsResponse(error_code=0, results=results)
    return Response(answer, error_names=error_names(codes))


def _replicas(
    logs: LogManager, folder: str, wanted: set[TopicPartition] | None
) -> dict[TopicPartition, Any]:
    """The current and future replicas in one directory; it never has both of one partition."""
    found = {
        tp: _Partition(
            partition_index=tp.partition,
            partition_size=of.size,
            offset_lag=max(of.high_watermark - of.log_end_offset, 0),
            is_future_key=False,
        )
        for tp, of in logs.logs.items()
        if (wanted is None or tp in wanted) and logs.dir_of(of) == folder
    }
    for tp, of in logs.futures.logs.items():
        current = logs.get(tp)
        if (wanted is None or tp in wanted) and logs.dir_of(of) == folder and current is not None:
            found[tp] = _Partition(
                partition_index=tp.partition,
                partition_size=of.size,
                offset_lag=current.log_end_offset - of.log_end_offset,
                is_future_key=True,
            )
    return dict(sorted(found.items()))


def _topics(replicas: dict[TopicPartition, Any]) -> list[Any]:
    return [
        _Topic(name=topic, partitions=[replica for _, replica in found])
        for topic, found in by_topic(replicas).items()
    ]


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    answer = DescribeLogDirsResponse(error_code=int(code), results=[])
    return Response(answer, error_names=(code.name,))
