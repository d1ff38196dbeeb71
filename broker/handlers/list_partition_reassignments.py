"""ListPartitionReassignments, API 46, v0: the partitions being moved, and their targets (KIP-455).

Only the controller knows them.  Null topics mean all of them.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.admin.mutations import by_topic
from highwater.broker.context import Access, Api, Context, Reply, cluster
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import ListPartitionReassignmentsResponse

API = Api(
    key=46,
    name="ListPartitionReassignments",
    versions=(0, 0),
    access=Access(whole=(cluster(Operation.DESCRIBE),)),
)

_Topic = ListPartitionReassignmentsResponse.OngoingTopicReassignment
_Partition = _Topic.OngoingPartitionReassignment


async def handle(ctx: Context, request: Any) -> Reply:
    partitions = None
    if request.topics is not None:
        partitions = [
            TopicPartition(t.name, p) for t in request.topics for p in t.partition_indexes
        ]
    try:
        moves = await ctx.services.controller.list_partition_reassignments(partitions)
    except ApiError as e:
        return _error(e.code, e.detail)
    topics = [
        _Topic(
            name=topic,
            partitions=[
                _Partition(
                    partition_index=p,
                    replicas=list(move.replicas),
                    adding_replicas=list(move.adding),
                    removing_replicas=list(move.removing),
                )
                for p, move in found
            ],
        )
        for topic, found in by_topic(moves).items()
    ]
    return Response(ListPartitionReassignmentsResponse(error_code=0, topics=topics))


def _error(code: ErrorCode, message: str | None) -> Response:
    answer = ListPartitionReassignmentsResponse(
        error_code=int(code), error_message=message, topics=[]
    )
    return Response(answer, error_names=(code.name,))


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return _error(code, None)
