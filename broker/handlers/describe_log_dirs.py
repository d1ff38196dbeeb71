"""DescribeLogDirs, API 35, v0-4: the log directories of this broker, with the size and lag of each
replica.

A directory that has failed has the error KAFKA_STORAGE_ERROR.  The lag is how far a log ends before
its HW.  Deviation: the volume's total and usable bytes (v4) are not known, -1.
"""

from __future__ import annotations

from typing import Any

from broker.admin.requests import by_topic, error_names
from broker.context import Api, Context, Reply, Response
from highwater.common.errors import ErrorCode
from highwater.common.types import TopicPartition
from highwater.common.wire.messages import DescribeLogDirsResponse

API = Api(key=35, name="DescribeLogDirs", versions=(0, 4))

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
        if folder in logs.offline_dirs:
            code = ErrorCode.KAFKA_STORAGE_ERROR
            results.append(_result(folder, code, []))
        else:
            code = ErrorCode.NONE
            found = {
                tp: log
                for tp, log in sorted(logs.logs.items())
                if (wanted is None or tp in wanted) and log.dir.rpartition("/")[0] == folder
            }
            results.append(_result(folder, code, _topics(found)))
        codes.append(code)
    answer = DescribeLogDirsResponse(error_code=0, results=results)
    return Response(answer, error_names=error_names(codes))


def _topics(logs: dict[TopicPartition, Any]) -> list[Any]:
    return [
        _Topic(
            name=topic,
            partitions=[
                _Partition(
                    partition_index=index,
                    partition_size=log.size,
                    offset_lag=max(log.high_watermark - log.log_end_offset, 0),
                    is_future_key=False,
                )
                for index, log in partitions
            ],
        )
        for topic, partitions in by_topic(logs).items()
    ]


def _result(folder: str, code: ErrorCode, topics: list[Any]) -> Any:
    return _Dir(
        error_code=int(code),
        log_dir=folder,
        topics=topics,
        total_bytes=UNKNOWN_BYTES,
        usable_bytes=UNKNOWN_BYTES,
    )


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    answer = DescribeLogDirsResponse(error_code=int(code), results=[])
    return Response(answer, error_names=(code.name,))
