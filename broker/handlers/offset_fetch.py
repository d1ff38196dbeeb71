"""OffsetFetch, API 9, v0-9: how far a group has come.

Group coordinators are not built: COORDINATOR_NOT_AVAILABLE, which clients repeat.
v0 and v1 have the error at each partition, v2 at the top, v8 at each of several groups.
"""

from __future__ import annotations

from typing import Any

from broker.context import Api, Context, Reply, Response
from highwater.common.errors import ErrorCode
from highwater.common.wire.messages import OffsetFetchResponse

API = Api(key=9, name="OffsetFetch", versions=(0, 9))

FIRST_WITH_TOP_ERROR = 2
FIRST_WITH_GROUPS = 8
_Topic = OffsetFetchResponse.OffsetFetchResponseTopic
_Partition = _Topic.OffsetFetchResponsePartition


def handle(ctx: Context, request: Any) -> Reply:
    return error_response(ctx, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    if ctx.version >= FIRST_WITH_GROUPS:
        groups = [
            OffsetFetchResponse.OffsetFetchResponseGroup(
                group_id=group.group_id, topics=[], error_code=int(code)
            )
            for group in request.groups
        ]
        return Response(OffsetFetchResponse(groups=groups), error_names=(code.name,))
    topics = []
    if ctx.version < FIRST_WITH_TOP_ERROR:
        topics = [
            _Topic(name=t.name, partitions=[_partition(p, code) for p in t.partition_indexes])
            for t in request.topics
        ]
    answer = OffsetFetchResponse(topics=topics, error_code=int(code))
    return Response(answer, error_names=(code.name,))


def _partition(index: int, code: ErrorCode) -> Any:
    return _Partition(partition_index=index, committed_offset=-1, metadata="", error_code=int(code))
