"""TxnOffsetCommit, API 28, v0-4: commits a group's offsets as part of a transaction.

Group coordinators are not built: COORDINATOR_NOT_AVAILABLE, which clients repeat.
"""

from __future__ import annotations

from typing import Any

from broker.context import Api, Context, Reply, Response
from highwater.common.errors import ErrorCode
from highwater.common.wire.messages import TxnOffsetCommitResponse

API = Api(key=28, name="TxnOffsetCommit", versions=(0, 4))


def handle(ctx: Context, request: Any) -> Reply:
    return error_response(ctx, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
    partition = topic.TxnOffsetCommitResponsePartition
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
    return Response(TxnOffsetCommitResponse(topics=topics), error_names=(code.name,))
