"""AlterPartitionReassignments, API 45, v0: moves partitions to other brokers, or cancels a move
(KIP-455).

Only the controller does it; null replicas cancel.  The answer is given when the move has been
written to ZooKeeper, not when it is done.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.admin.mutations import by_topic, error_names
from highwater.broker.context import Access, Api, Context, Reply, cluster
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import AlterPartitionReassignmentsResponse

API = Api(
    key=45,
    name="AlterPartitionReassignments",
    versions=(0, 0),
    access=Access(whole=(cluster(Operation.ALTER),)),
)

_Topic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_Partition = _Topic.ReassignablePartitionResponse


async def handle(ctx: Context, request: Any) -> Reply:
    targets = {
        TopicPartition(topic.name, p.partition_index): (
            None if p.replicas is None else list(p.replicas)
        )
        for topic in request.topics
        for p in topic.partitions
    }
    try:
        outcomes = await ctx.services.controller.alter_partition_reassignments(targets)
    except ApiError as e:
        return _error(e.code, e.detail)
    responses = [
        _Topic(
            name=topic,
            partitions=[
                _Partition(partition_index=p, error_code=int(code), error_message=message)
                for p, (code, message) in partitions
            ],
        )
        for topic, partitions in by_topic(outcomes).items()
    ]
    answer = AlterPartitionReassignmentsResponse(error_code=0, responses=responses)
    return Response(answer, error_names=error_names(code for code, _ in outcomes.values()))


def _error(code: ErrorCode, message: str | None) -> Response:
    answer = AlterPartitionReassignmentsResponse(
        error_code=int(code), error_message=message, responses=[]
    )
    return Response(answer, error_names=(code.name,))


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    """The error at the top and at every partition."""
    answer = _error(code, None)
    answer.message.responses = [
        _Topic(
            name=topic.name,
            partitions=[
                _Partition(
                    partition_index=p.partition_index,
                    error_code=int(code),
                    error_message=code.name,
                )
                for p in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return answer
