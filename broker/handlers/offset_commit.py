"""OffsetCommit, API 8, v0-9: a member says how far it has come.

Group coordinators are not built: COORDINATOR_NOT_AVAILABLE, which clients repeat.
"""

from __future__ import annotations

from typing import Any

from broker.context import Api, Context, Reply, Response
from highwater.common.errors import ErrorCode
from highwater.common.wire.messages import OffsetCommitResponse

API = Api(key=8, name="OffsetCommit", versions=(0, 9))


def handle(ctx: Context, request: Any) -> Reply:
    return error_response(ctx, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    topic = OffsetCommitResponse.OffsetCommitResponseTopic
    partition = topic.OffsetCommitResponsePartition
    topics = [
        topic(
            name=t.name,
            partitions=[
                partition(partition_index=p.partition_index, error_code=int(code))
                for p in t.partitions
            ],
        )
        for t in request.topics
    ]
    return Response(OffsetCommitResponse(topics=topics), error_names=(code.name,))
