"""AlterReplicaLogDirs, API 34, v0-2: moves this broker's replicas between its log directories.

The answer says that the move has begun.  DescribeLogDirs shows the copy as a future replica until
it replaces the old one.  A partition that is not here yet is REPLICA_NOT_AVAILABLE (or
UNKNOWN_TOPIC_OR_PARTITION, where this broker does not know it), and will be created in that
directory.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.admin.mutations import by_topic, error_names
from highwater.broker.context import Access, Api, Context, Reply, cluster
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import AlterReplicaLogDirsResponse

API = Api(
    key=34,
    name="AlterReplicaLogDirs",
    versions=(0, 2),
    access=Access(whole=(cluster(Operation.ALTER),)),
)

_Topic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
_Partition = _Topic.AlterReplicaLogDirPartitionResult


def _wanted(request: Any) -> dict[TopicPartition, str]:
    return {
        TopicPartition(topic.name, p): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for p in topic.partitions
    }


def handle(ctx: Context, request: Any) -> Reply:
    codes = {}
    for tp, path in _wanted(request).items():
        codes[tp] = ErrorCode.NONE
        try:
            ctx.services.replicas.moves.alter(tp, path)
        except ApiError as e:
            codes[tp] = e.code
    return _answer(codes)


def _answer(codes: dict[TopicPartition, ErrorCode]) -> Response:
    results = [
        _Topic(
            topic_name=topic,
            partitions=[_Partition(partition_index=p, error_code=int(c)) for p, c in found],
        )
        for topic, found in by_topic(codes).items()
    ]
    answer = AlterReplicaLogDirsResponse(results=results)
    return Response(answer, error_names=error_names(codes.values()))


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return _answer(dict.fromkeys(_wanted(request), code))
